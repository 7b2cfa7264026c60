"""Trainings that are killed, stopped and refused writes, resumed, and compared with an undisturbed training.

    python benchmarks/crashes.py [--seed 1] [--trials 600] [--kinds kill error ...] [--folder DIR] [--json FILE]
    python benchmarks/crashes.py --table FILE...

Each trial draws a run (a training from files, with a checkpoint at each update, without validation file, a fine-tuning,
an ensemble or a search), a fault and its place by the seed: the n-th system call that writes below the folder, of all
that an undisturbed training makes, or a time. Then the same command is given again until it ends, and the folder is
compared bit for bit with the undisturbed one. Faults:

kill      SIGKILL before the call, or after half of a write
error     the call fails: no space, input/output error, read-only, quota; once, after half of a write, or from then on
time      SIGKILL at a random time
second    SIGSTOP; a second training in the same folder is refused; then SIGCONT
together  two trainings start in one folder at once
rename    the folder gets another name, while the training is stopped at the call
remove    the folder is removed there
clock     the clock is set forward or back by up to ten years
space     a file system of memory (tmpfs) is really full
readonly  ext4 becomes read-only, as after an error of the disk (remount,abort)
power     ext4 is shut down without writing its journal, and mounted again: what was not flushed is lost
nan       a parameter becomes NaN
memory    an allocation fails
strace    kill or error by `strace --inject` in a process of its own, without the library of `write_faults.c`

Kinds that need root, a file system or a program that is missing are left out, and the last line says so. A trial fails
if a command ends otherwise than with exit code 0, or with exit code 2 and a message without a traceback (a killed one
aside), if a temporary file remains, or if the folder differs. Updates that are computed twice are the work redone;
bytes of the undisturbed folder that the resumed one lacks are the bytes lost. --table prints the totals of the files
that --json wrote. Linux; needs a C compiler.
"""

import argparse
import errno
import fcntl
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.crash_faults import (
    CALL_KINDS,
    CommandEnd,
    CommandRunner,
    Fault,
    compare,
    finished_trials,
    list_temporaries,
    preload,
    read_contents,
)

ERRORS = {"no space": errno.ENOSPC, "input/output": errno.EIO, "read-only": errno.EROFS, "quota": errno.EDQUOT}
MAX_SHIFT = 10 * 365 * 86400
EXT4_SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, 2
"""Request of `ioctl` that shuts a file system down, and its flag that loses what is not flushed."""
SIZES = ("--size", "tiny", "--encoder.hidden_size", "6", "--decoder.hidden_size", "12", "--batch-size", "4")
INJECTED = ("rename", "fsync", "unlink", "mkdir", "fchmod")
"""System calls at which strace injects faults: the writes among others are those of all files."""


class RunKind(NamedTuple):
    """A command of which trials are made."""

    arguments: tuple[str, ...]
    """Arguments; DATA is the folder of the data, RUN the run folder."""
    weight: float
    """Share among the runs that are drawn."""
    is_single: bool = True
    """False for an ensemble and a search."""
    saves_every_update: bool = False
    """Write a checkpoint at every update, and a file of the training data."""


TRAIN = ("train", "DATA/train.tsv", "--run", "RUN", *SIZES)
VALID = ("--valid", "DATA/dev.tsv")
RUNS = {
    "train": RunKind((*TRAIN, *VALID, "--epochs", "3"), 4),
    "every update": RunKind(
        (*TRAIN, *VALID, "--epochs", "1.5", "--eval-interval", "0.5", "--no-pair-ngram", "--weight-averaging", "last"),
        2,
        saves_every_update=True,
    ),
    "held out": RunKind((*TRAIN, "--epochs", "2"), 1),
    "fine-tuning": RunKind((*TRAIN, *VALID, "--init-from", "DATA/initial", "--epochs", "2"), 1),
    "ensemble": RunKind((*TRAIN, *VALID, "--epochs", "2", "--ensemble", "2", "--jobs", "1"), 1, is_single=False),
    "tune": RunKind(
        (
            *("tune", "DATA/train.tsv", *VALID, "--run", "RUN", "--space", "DATA/space.toml"),
            *("--jobs", "1", *SIZES[:6], "--epochs", "2", "--trials", "2"),
        ),
        1,
        is_single=False,
    ),
}
KINDS = {
    **{"kill": 25, "error": 25, "time": 5, "second": 3, "together": 3, "rename": 4, "remove": 4, "clock": 4},
    **{"space": 4, "readonly": 4, "power": 8, "nan": 3, "memory": 3, "strace": 5},
}
"""Number of trials of each kind, among 100."""
FOLDER_KINDS = ("space", "readonly", "power")
SINGLE_KINDS = ("second", "together", "rename", "remove", "nan", "memory", *FOLDER_KINDS, "strace")


class Oracle(NamedTuple):
    """Undisturbed run of a command."""

    contents: dict[str, bytes]
    calls: int
    """Number of its system calls that write."""
    updates: int
    seconds: float
    size: int
    """Bytes of its folder."""
    trials: list[dict[str, Any]]
    """Finished trials of a search."""


@dataclass
class Trial:
    """A trial and its result."""

    number: int
    kind: str
    run: str
    random: random.Random
    folder: Path
    faults: list[str] = field(default_factory=list)
    """Faults that occurred."""
    problems: list[str] = field(default_factory=list)
    """Reasons why the trial failed."""
    redone: int = 0
    """Updates that were computed again."""
    bytes_lost: int = 0
    temporaries: int = 0
    """Temporary files that the fault left, and that were removed later."""
    messages: list[str] = field(default_factory=list)

    @property
    def run_folder(self) -> Path:
        """Folder of the run."""
        return self.folder / "run"


class CrashDriver:
    """Runs trials, one after the other."""

    def __init__(self, runner: CommandRunner, folder: Path, seed: int) -> None:
        """Write the data; import what commands need, so that forks do not repeat it.

        Args:
            runner: Runner of commands.
            folder: Folder for data and runs.
            seed: Seed of all trials.
        """
        self.runner, self.folder, self.seed = runner, folder, seed
        self.data = folder / "data"
        self.oracles: dict[str, Oracle] = {}
        _import_package(runner)
        _write_data(self.data)
        code = runner.wait(runner.start(lambda: _run_main(self._arguments("train", self.data / "initial"))))
        if code.code:
            raise SystemExit(f"the undisturbed training failed:\n{code.message}")

    def _arguments(self, run: str, folder: Path) -> list[str]:
        """Return the command line of a run."""
        return [text.replace("DATA", str(self.data)).replace("RUN", str(folder)) for text in RUNS[run].arguments]

    def start(self, run: str, folder: Path) -> int:
        """Start the command of a run; return its process.

        Args:
            run: Name of the run.
            folder: Its folder.
        """

        def run_command() -> int:
            """Run the command, with more checkpoints if the run has them."""
            if RUNS[run].saves_every_update:
                from pellucid.training import corpus_cache, run_folder_writer

                run_folder_writer.SAVE_SECONDS, corpus_cache.MIN_CORPUS_SYMBOLS = -1.0, 0
            return _run_main(self._arguments(run, folder))

        return self.runner.start(run_command)

    def oracle(self, run: str) -> Oracle:
        """Return the undisturbed run, which is made once.

        Args:
            run: Name of the run.
        """
        if run not in self.oracles:
            parent = self.folder / "undisturbed" / run.replace(" ", "-")
            parent.mkdir(parents=True)
            runner, folder = self.runner, parent / "run"
            runner.arm(parent, Fault())
            before, started_at = runner.orders.updates, time.monotonic()
            finished = runner.wait(self.start(run, folder))
            if finished.code:
                raise SystemExit(f"the undisturbed run {run!r} failed:\n{finished.message}")
            seconds = time.monotonic() - started_at
            trials = finished_trials(folder) if run == "tune" else []
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            updates = runner.orders.updates - before
            self.oracles[run] = Oracle(read_contents(folder), runner.orders.count, updates, seconds, size, trials)
            runner.disarm()
        return self.oracles[run]

    def try_trial(self, number: int, kind: str) -> Trial:
        """Make a trial.

        Args:
            number: Number of the trial, which decides with the seed what is drawn.
            kind: Kind of the fault.
        """
        generator = random.Random(f"{self.seed} {number}")
        names = [name for name in RUNS if RUNS[name].is_single or kind not in SINGLE_KINDS]
        if kind == "strace":
            names = ["train", "held out"]
        run = generator.choices(names, [RUNS[name].weight for name in names])[0]
        parent = self.folder / "trials" / f"{number:05}"
        parent.mkdir(parents=True)
        trial = Trial(number, kind, run, generator, parent)
        oracle, before = self.oracle(run), self.runner.orders.updates
        with _file_system(kind, trial, oracle) as usable:
            if usable:
                getattr(self, f"_{kind}")(trial, oracle)
                self.resume(trial, oracle)
        updates = self.runner.orders.updates - before
        trial.redone = max(0, updates - oracle.updates) if RUNS[run].is_single or run == "ensemble" else 0
        if not trial.problems:
            shutil.rmtree(parent, ignore_errors=True)
        return trial

    def resume(self, trial: Trial, oracle: Oracle) -> None:
        """Give the command of a trial again, without a fault, and compare the folder with the undisturbed one.

        Args:
            trial: The trial.
            oracle: Undisturbed run.
        """
        self._check_model(trial)
        left = {path.name for path in list_temporaries(trial.folder)}
        finished = self.runner.wait(self.start(trial.run, trial.run_folder))
        if finished.code:
            trial.problems.append(f"resuming ended with exit code {finished.code}: {finished.message[-2000:]}")
        remaining = {path.name for path in list_temporaries(trial.folder)}
        trial.temporaries += len(left - remaining)
        if remaining:
            trial.problems.append(f"temporary files remain: {', '.join(sorted(remaining))}")
        if trial.run == "tune":
            found = finished_trials(trial.run_folder) if (trial.run_folder / "trials.json").exists() else []
            if any(expected not in found for expected in oracle.trials):
                trial.problems.append(f"the search found {found}, expected {oracle.trials}")
            return
        difference = compare(trial.run_folder, oracle.contents)
        trial.bytes_lost = difference.bytes_lost
        if difference.files:
            trial.problems.append(f"the folder differs: {', '.join(difference.files)}")

    def _check_model(self, trial: Trial) -> None:
        """Check that a model that a fault left can be loaded, if its settings are there."""
        if RUNS[trial.run].is_single and (trial.run_folder / "model.safetensors").exists():

            def load() -> int:
                """Load the model."""
                import pellucid

                pellucid.load(trial.run_folder)
                return 0

            finished = self.runner.wait(self.runner.start(load))
            if finished.code:
                trial.problems.append(f"the model cannot be loaded: {finished.message[-1000:]}")

    def disturb(self, trial: Trial, fault: Fault, expected: Sequence[int]) -> CommandEnd:
        """Give the command of a trial with a fault, and check how it ends.

        Args:
            trial: The trial.
            fault: The fault.
            expected: Exit codes that are right, besides 0.
        """
        self.runner.arm(trial.folder, fault)
        finished = self.runner.wait(self.start(trial.run, trial.run_folder))
        self.record(trial, fault)
        self.check_end(trial, finished, expected)
        return finished

    def record(self, trial: Trial, fault: Fault) -> None:
        """Record that a fault occurred, if it did, and count no more calls.

        Args:
            trial: The trial.
            fault: The fault.
        """
        orders = self.runner.orders
        self.runner.disarm()
        if orders.landed:
            name = errno.errorcode.get(fault.code, "")
            trial.faults.append(f"{fault.action} {name} at call {fault.call}, {CALL_KINDS[orders.met - 1]}")

    def check_end(self, trial: Trial, finished: CommandEnd, expected: Sequence[int]) -> None:
        """Check the exit code and the message of a command.

        Args:
            trial: The trial.
            finished: End of the command.
            expected: Exit codes that are right, besides 0.
        """
        trial.messages.append(finished.message.strip().rpartition("\n")[2])
        if finished.code not in (0, *expected):
            trial.problems.append(f"exit code {finished.code}: {finished.message[-3000:]}")
        elif "Traceback" in finished.message:
            trial.problems.append(f"a traceback: {finished.message[-3000:]}")
        elif finished.code == 2 and not finished.message.strip():
            trial.problems.append("exit code 2 without a message")

    def _draw_call(self, trial: Trial, oracle: Oracle) -> int:
        """Draw the number of a call; a resumed command makes fewer."""
        return trial.random.randint(1, oracle.calls if not trial.faults else max(1, oracle.calls // 2))

    def _kill(self, trial: Trial, oracle: Oracle) -> None:
        """Kill the command, up to three times."""
        for _ in range(trial.random.choice((1, 1, 1, 2, 3))):
            action = trial.random.choice(("kill", "kill part"))
            # A killed worker ends its command with exit code 2; a search goes on, and fails if all trials do.
            expected = (-signal.SIGKILL,) if RUNS[trial.run].is_single else (-signal.SIGKILL, 1, 2)
            self.disturb(trial, Fault(action, self._draw_call(trial, oracle)), expected)

    def _error(self, trial: Trial, oracle: Oracle) -> None:
        """Let calls fail, up to twice."""
        for _ in range(trial.random.choice((1, 1, 1, 2))):
            action = trial.random.choice(("fail", "fail part", "fail always", "fail space"))
            code = errno.ENOSPC if action == "fail space" else trial.random.choice(list(ERRORS.values()))
            self.disturb(trial, Fault(action, self._draw_call(trial, oracle), code), (2,))

    def _time(self, trial: Trial, oracle: Oracle) -> None:
        """Kill the command at a random time, with its workers or without."""
        process = self.start(trial.run, trial.run_folder)
        time.sleep(trial.random.uniform(0, oracle.seconds))
        with suppress(ProcessLookupError):
            (os.killpg if trial.random.random() < 0.5 else os.kill)(process, signal.SIGKILL)
        finished = self.runner.wait(process)
        if finished.code == -signal.SIGKILL:
            trial.faults.append("SIGKILL at a random time")
        self.check_end(trial, finished, (-signal.SIGKILL,))

    def _stop(self, trial: Trial, oracle: Oracle) -> int:
        """Start the command, which stops itself at a call; return its process, or 0 if it ends before."""
        fault = Fault("stop", self._draw_call(trial, oracle))
        self.runner.arm(trial.folder, fault)
        process = self.start(trial.run, trial.run_folder)
        if self.runner.wait_for_stop(process):
            self.record(trial, fault)
            return process
        self.runner.wait(process)
        self.runner.disarm()
        return 0

    def _second(self, trial: Trial, oracle: Oracle) -> None:
        """Train a second time in the folder of a stopped training."""
        process = self._stop(trial, oracle)
        if process:
            number = self.runner.processes
            second = self.runner.wait(self.start(trial.run, trial.run_folder))
            os.kill(process, signal.SIGCONT)
            first = self.runner.wait(process, number)
            self.check_end(trial, second, (2,))
            self.check_end(trial, first, (2,))
            if second.code and "in use" not in second.message:
                trial.problems.append(f"the second training was refused for another reason: {second.message}")
            if first.code and second.code:
                trial.problems.append(f"both trainings ended: {first.message}")

    def _together(self, trial: Trial, oracle: Oracle) -> None:
        """Start two trainings in one folder, the second up to a run later."""
        processes = [(self.start(trial.run, trial.run_folder), self.runner.processes)]
        time.sleep(oracle.seconds * trial.random.choice((0.0, 0.0, trial.random.random())))
        processes.append((self.start(trial.run, trial.run_folder), self.runner.processes))
        ends = [self.runner.wait(process, number) for process, number in processes]
        trial.faults.append("two trainings in one folder")
        for finished in ends:
            self.check_end(trial, finished, (2,))
            if finished.code and "in use" not in finished.message and "was in use" not in finished.message:
                trial.problems.append(f"a training was refused for another reason: {finished.message}")
        if all(finished.code for finished in ends):
            trial.problems.append("both trainings were refused")

    def _move_away(self, trial: Trial, oracle: Oracle, move: Callable[[Path], object]) -> None:
        """Rename or remove the folder of a stopped training."""
        process = self._stop(trial, oracle)
        if process:
            existed = (trial.run_folder / ".lock").exists()
            if existed:
                move(trial.run_folder)
            else:
                trial.faults.pop()
            os.kill(process, signal.SIGCONT)
            finished = self.runner.wait(process)
            self.check_end(trial, finished, (2,))
            if existed and finished.code == 0:
                trial.problems.append("the training ended without an error, though its folder was gone")
            if existed and trial.run_folder.exists():
                names = [path.name for path in trial.run_folder.rglob("*")]
                trial.problems.append(f"the folder was created again, with {', '.join(names) or 'no file'}")
                shutil.rmtree(trial.run_folder)

    def _rename(self, trial: Trial, oracle: Oracle) -> None:
        """Rename the folder of a stopped training; its files must not change afterwards."""
        away = trial.folder / "renamed"
        contents = dict[str, bytes]()

        def move(folder: Path) -> None:
            """Rename the folder, and keep its contents."""
            folder.rename(away)
            contents.update(_raw_contents(away))

        self._move_away(trial, oracle, move)
        if away.exists():
            after = _raw_contents(away)
            changed = [
                name for name in {*contents, *after} if contents.get(name) != after.get(name) and name != "log.jsonl"
            ]
            if changed:
                trial.problems.append(f"files of the renamed folder changed: {', '.join(changed)}")
            away.rename(trial.run_folder)

    def _remove(self, trial: Trial, oracle: Oracle) -> None:
        """Remove the folder of a stopped training."""
        self._move_away(trial, oracle, shutil.rmtree)

    def _clock(self, trial: Trial, oracle: Oracle) -> None:
        """Set the clock."""
        shift = trial.random.choice((-1, 1)) * trial.random.randint(1, MAX_SHIFT)
        self.disturb(trial, Fault("shift", self._draw_call(trial, oracle), shift=shift), ())

    def _space(self, trial: Trial, oracle: Oracle) -> None:
        """Train on a file system that is too small, and enlarge it."""
        finished = self.runner.wait(self.start(trial.run, trial.run_folder))
        self.check_end(trial, finished, (2,))
        if finished.code:
            trial.faults.append("no space left on tmpfs")
            if "no space left" not in finished.message:
                trial.problems.append(f"the message names another reason: {finished.message[-1000:]}")
        _mount(trial.folder, "-o", "remount,size=64M")

    def _readonly(self, trial: Trial, oracle: Oracle) -> None:
        """Make the file system read-only under a stopped training, and mount it again."""
        process = self._stop(trial, oracle)
        if process:
            _mount(trial.folder, "-o", "remount,abort")
            os.kill(process, signal.SIGCONT)
            self.check_end(trial, self.runner.wait(process), (2,))
            _mount_again(trial)

    def _power(self, trial: Trial, oracle: Oracle) -> None:
        """Shut the file system down under a stopped training, as a loss of power does, and mount it again."""
        process = self._stop(trial, oracle)
        if process:
            _shut_down(trial.folder)
            os.kill(process, signal.SIGKILL)
            self.runner.wait(process)
            _mount_again(trial)

    def _nan(self, trial: Trial, oracle: Oracle) -> None:
        """Make a parameter NaN before an update."""
        self._poison(trial, oracle, 1, ("diverged", "not finite", "learning_rate"))

    def _memory(self, trial: Trial, oracle: Oracle) -> None:
        """Let an allocation of PyTorch or of NumPy fail in an update."""
        self._poison(trial, oracle, trial.random.choice((2, 3)), ("out of memory", "batch_size"))

    def _poison(self, trial: Trial, oracle: Oracle, kind: int, phrases: Sequence[str]) -> None:
        """Disturb one update, and check the message."""
        update = trial.random.randint(1, oracle.updates)
        self.runner.arm(trial.folder, Fault())
        self.runner.orders.poisoned = kind * POISON + self.runner.orders.updates + update
        finished = self.runner.wait(self.start(trial.run, trial.run_folder))
        self.runner.disarm()
        self.runner.orders.poisoned = 0
        trial.faults.append(f"{trial.kind} at update {update}")
        self.check_end(trial, finished, (2,))
        if finished.code != 2 or not all(phrase in finished.message for phrase in phrases):
            trial.problems.append(f"exit code {finished.code}: {finished.message[-2000:]}")

    def _strace(self, trial: Trial, oracle: Oracle) -> None:
        """Kill the command, or let a call fail, with strace; the process imports the package itself."""
        call, number = trial.random.choice(INJECTED), trial.random.randint(1, 25)
        error = trial.random.choice(("", "EIO", "ENOSPC"))
        inject = f"inject={call}:{f'error={error}' if error else 'signal=KILL'}:when={number}"
        trace = trial.folder / "trace"
        program = [sys.executable, "-m", "pellucid", *self._arguments(trial.run, trial.run_folder)]
        options = ["strace", "-f", "--seccomp-bpf", "-o", str(trace), "-e", f"trace={call}", "-e", inject]
        environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "WRITE_FAULTS")}
        environment["PYTHONPATH"] = str(Path(__file__).parents[1])
        ended = subprocess.run([*options, *program], env=environment, capture_output=True, text=True, check=False)
        if "INJECTED" in trace.read_text("utf-8", "replace") or "killed by SIGKILL" in trace.read_text("utf-8"):
            trial.faults.append(inject)
        trace.unlink()
        self.check_end(trial, CommandEnd(ended.returncode, ended.stderr), (2,) if error else (-signal.SIGKILL, 137))

    def count_with_strace(self) -> tuple[int, int]:
        """Return the number of writing system calls of a training that the library counts, and that strace sees."""
        parent = self.folder / "counted"
        parent.mkdir()
        trace = self.folder / "trace"
        self.runner.arm(parent, Fault())
        options = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={','.join(WRITING_CALLS)}"]
        program = [sys.executable, "-m", "pellucid", *self._arguments("train", parent / "run")]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        subprocess.run([*options, *program], env=environment, capture_output=True, check=True)
        self.runner.disarm()
        lines = trace.read_text("utf-8", "replace").splitlines()
        # A written text may name the folder; the file that it is written to stands before the text.
        places = [line.partition('"')[0] if "write" in line.partition("(")[0] else line for line in lines]
        calls = [place for place in places if str(parent) in place and "resumed>" not in place]
        opened = [line for line in calls if "openat" in line.partition("(")[0]]
        reading = [line for line in opened if not any(flag in line for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))]
        return self.runner.orders.count, len(calls) - len(reading)


WRITING_CALLS = (
    *("openat", "open", "creat", "write", "pwrite64", "writev", "pwritev", "rename", "renameat", "renameat2", "unlink"),
    *("unlinkat", "mkdir", "mkdirat", "rmdir", "fsync", "fdatasync", "ftruncate", "truncate", "chmod", "fchmod"),
    *("fchmodat", "link", "linkat", "symlink", "symlinkat", "copy_file_range", "sendfile", "fallocate", "msync"),
)
POISON = 10**9
"""Unit of the order that disturbs an update: NaN 1, PyTorch's allocation 2, NumPy's 3; the update is added."""


def _import_package(runner: CommandRunner) -> None:
    """Import the package with the kernels, count updates, and let workers be forked."""
    import torch

    import pellucid.cli.train
    import pellucid.cli.tune
    import pellucid.reporting.progress
    import pellucid.training.ensemble_training
    import pellucid.worker_pool
    from pellucid.kernels.kernel_loader import load_kernels
    from pellucid.training import loop

    with suppress(ImportError):
        import pellucid.tuning.search  # Optuna
    torch.set_num_threads(1)
    load_kernels()
    pellucid.worker_pool.START_METHOD = "fork"
    orders, update = runner.orders, loop._train_step

    def count_update(*arguments: Any) -> Any:  # noqa: ANN401 (those of the function)
        """Count an update, and disturb it if that is ordered."""
        orders.updates += 1
        kind, number = divmod(orders.poisoned, POISON)
        if kind and number == orders.updates:
            _disturb_update(kind, arguments[0])
        return update(*arguments)

    loop._train_step = count_update  # type: ignore[assignment,unused-ignore]


def _disturb_update(kind: int, state: Any) -> None:  # noqa: ANN401 (a TrainingState)
    """Make a parameter NaN, or let an allocation fail."""
    import numpy as np
    import torch

    if kind == 1:
        next(state.predictor.network.parameters()).data.view(-1)[0] = float("nan")
        return
    used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, resource.RLIM_INFINITY))
    torch.empty(2**30) if kind == 2 else np.empty(2**30)


def _run_main(arguments: list[str]) -> int:
    """Run a command line in this process, as `python -m pellucid` does."""
    from pellucid.cli import main

    return main(arguments)


def _write_data(folder: Path) -> None:
    """Write the data of all runs, and the space of the search."""
    folder.mkdir(parents=True)
    generator = random.Random(1)
    for name, number in (("train", 40), ("dev", 10)):
        texts = ("".join(generator.choices("abcd", k=generator.randint(1, 3))) for _ in range(number))
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{text}\n" for text in texts), "utf-8")
    (folder / "space.toml").write_text("[training]\nlearning_rate = { from = 0.001, to = 0.01, scale = 'log' }\n")


def _raw_contents(folder: Path) -> dict[str, bytes]:
    """Return the content of each file that is not temporary."""
    temporary = set(list_temporaries(folder))
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p not in temporary}


def _mount(folder: Path, *options: str) -> None:
    """Mount a file system."""
    subprocess.run(["mount", *options, folder], check=True, capture_output=True)


@contextmanager
def _file_system(kind: str, trial: Trial, oracle: Oracle) -> Iterator[bool]:
    """Mount the file system that a trial needs at its folder, and yield whether this is possible."""
    if kind not in FOLDER_KINDS:
        yield True
        return
    image = trial.folder.with_suffix(".image")
    if kind == "space":
        size = trial.random.randint(16 * 1024, int(oracle.size * 1.3))
        _mount(trial.folder, "-t", "tmpfs", "-o", f"size={size}", "none")
    else:
        with image.open("wb") as file:
            file.truncate(16 * 2**20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        _mount(trial.folder, "-o", "loop", str(image))
        shutil.rmtree(trial.folder / "lost+found")
        os.sync()
    try:
        yield True
    finally:
        subprocess.run(["umount", trial.folder], check=True)
        image.unlink(missing_ok=True)


def _mount_again(trial: Trial) -> None:
    """Mount the ext4 file system of a trial again, which replays its journal."""
    subprocess.run(["umount", trial.folder], check=True)
    _mount(trial.folder, "-o", "loop", str(trial.folder.with_suffix(".image")))


def _shut_down(folder: Path) -> None:
    """Shut a file system down; what was not flushed is lost."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, EXT4_SHUTDOWN, WITHOUT_JOURNAL.to_bytes(4, sys.byteorder))
    finally:
        os.close(descriptor)


def missing_kinds(folder: Path) -> dict[str, str]:
    """Return the kinds of trials that cannot be made here, each with the reason.

    Args:
        folder: Folder for the trials.
    """
    missing = {} if shutil.which("strace") else {"strace": "strace is missing"}
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        return {**missing, **dict.fromkeys(FOLDER_KINDS, "needs root and mkfs.ext4")}
    generator, place = random.Random(0), folder / "mounted"
    place.mkdir()
    try:
        trial = Trial(0, "power", "train", generator, place)
        with _file_system("power", trial, Oracle({}, 0, 0, 0.0, 2**20, [])):
            _shut_down(place)
    except (OSError, subprocess.CalledProcessError) as error:
        missing |= dict.fromkeys(FOLDER_KINDS, f"mounting fails: {error}")
    place.rmdir()
    return missing


def draw_kinds(number: int, kinds: Mapping[str, int]) -> list[str]:
    """Return the kind of each trial: shares of a total, mixed evenly.

    Args:
        number: Number of trials.
        kinds: Weight of each kind.
    """
    total = sum(kinds.values())
    due = dict.fromkeys(kinds, 0.0)
    drawn = []
    for _ in range(number):
        due = {kind: value + kinds[kind] / total for kind, value in due.items()}
        kind = max(due, key=lambda name: due[name])
        due[kind] -= 1
        drawn.append(kind)
    return drawn


def read_trials(path: Path) -> list[Trial]:
    """Return the trials of a file that `--json` wrote.

    Args:
        path: The file.
    """
    records = map(json.loads, path.read_text("utf-8").splitlines())
    return [Trial(**record, random=random.Random(), folder=Path()) for record in records]


def describe_trials(trials: Sequence[Trial]) -> str:
    """Return a Markdown table of the trials by kind.

    Args:
        trials: The trials.
    """
    lines = [
        "| kind | trials | with a fault | faults | updates redone | temporary files swept | bytes lost | failed |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    groups = {kind: [trial for trial in trials if trial.kind == kind] for kind in KINDS}
    for kind, group in (*groups.items(), ("all", list(trials))):
        if group:
            numbers = (
                *(len(group), sum(bool(trial.faults) for trial in group), sum(len(trial.faults) for trial in group)),
                *(sum(trial.redone for trial in group), sum(trial.temporaries for trial in group)),
                *(sum(trial.bytes_lost for trial in group), sum(bool(trial.problems) for trial in group)),
            )
            lines.append(f"| {kind} | {' | '.join(f'{number:,}' for number in numbers)} |")
    return "\n".join(lines)


def main() -> int:
    """Make the trials, print the totals, and return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--folder", type=Path, default=None, help="folder for the runs; those of failed trials stay")
    parser.add_argument("--json", type=Path, default=None, help="file for one line of JSON per trial")
    parser.add_argument("--table", type=Path, nargs="+", default=[], help="print the totals of such files, and stop")
    args = parser.parse_args()
    if args.table:
        print(describe_trials([trial for path in args.table for trial in read_trials(path)]))
        return 0
    folder = args.folder or Path(os.environ.get("CRASHES_FOLDER") or tempfile.mkdtemp(prefix="crashes-"))
    os.environ["CRASHES_FOLDER"] = str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    orders = preload(folder)
    for name in set(RUNS) - set(args.runs):
        RUNS[name] = RUNS[name]._replace(weight=0)
    driver = CrashDriver(CommandRunner(orders, folder / "output"), folder, args.seed)
    missing = {kind: reason for kind, reason in missing_kinds(folder).items() if kind in args.kinds}
    kinds = {kind: KINDS[kind] for kind in args.kinds if kind not in missing}
    if "strace" in kinds:
        counted, seen = driver.count_with_strace()
        print(f"system calls of a training that write below its folder: {counted} counted, {seen} seen by strace")
    trials, started_at = list[Trial](), time.monotonic()
    for index, kind in enumerate(draw_kinds(args.trials, kinds)):
        trial = driver.try_trial(args.first + index, kind)
        trials.append(trial)
        for problem in trial.problems:
            print(f"trial {trial.number} ({kind}, {trial.run}, {'; '.join(trial.faults)}): {problem}", flush=True)
        if args.json:
            with args.json.open("a", encoding="utf-8") as file:
                record = {key: value for key, value in asdict(trial).items() if key not in ("random", "folder")}
                file.write(json.dumps(record) + "\n")
    print(describe_trials(trials))
    updates = sum(driver.oracles[trial.run].updates for trial in trials)
    print(
        f"seed {args.seed}, {len(trials)} trials in {time.monotonic() - started_at:,.0f} s; "
        f"{updates:,} updates undisturbed"
    )
    print(f"{platform.platform()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")
    for kind, reason in missing.items():
        print(f"left out: {kind} ({reason})")
    return int(any(trial.problems for trial in trials))


if __name__ == "__main__":
    sys.exit(main())
