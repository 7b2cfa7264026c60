"""Runs and files of examples that a page shows, and which examples of a large file."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from os.path import isfile, realpath
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import DataConfig, Device
from pellucid.config.toml import to_toml
from pellucid.data.examples import (
    BadLine,
    Example,
    ignored_columns,
    is_undecided,
    read_examples,
    read_pairs,
    read_sources,
)
from pellucid.data.headers import header_note
from pellucid.decoding.predictor import Predictor
from pellucid.errors import DataError, InputError, RunError, quote
from pellucid.evaluation.metrics import Scored, worst
from pellucid.files import is_there
from pellucid.model.network import parameter_count
from pellucid.tasks.registry import task_of
from pellucid.tasks.task import Task
from pellucid.training.run_folder import (
    CONFIG,
    MODEL,
    damage_told,
    has_stopped,
    load,
    load_run_config,
    members,
    read_log,
)
from pellucid.viewer.examples import Known, spelled
from pellucid.viewer.schema import Card


def choose(scored: Sequence[Scored], most: int, rivals: Sequence[Sequence[Scored]] = ()) -> tuple[list[int], str]:
    """The numbers of the examples that are shown, in the file's order, and in words which they are.

    All, where there are no more than `most`. Else those on which the runs differ, one having right what another has
    wrong, up to four fifths of `most` (more where the others are fewer): those that the first has right and those that
    it has wrong alike, each drawn evenly where they are too many. Of the others the worst wrong ones, at most half as
    many as there is room for (more where too few are right), and right ones drawn evenly from the whole file.
    """
    if len(scored) <= most:
        return list(range(len(scored))), f"all {len(scored):,} examples"
    parted = [at for at, own in enumerate(scored) if any(rival[at].exact != own.exact for rival in rivals)]
    others = min(most // 5, len(scored) - len(parted))
    differing, left = _both(scored, parted, most - others), set(parted)
    room = most - len(differing)
    wrong = [at for at in worst(scored, len(scored)) if at not in left]
    right = [at for at, each in enumerate(scored) if each.exact and at not in left]
    shown_wrong = wrong[: max(room - len(right), min(len(wrong), room // 2))]
    shown_right = evenly(right, room - len(shown_wrong))
    chosen = sorted([*differing, *shown_wrong, *shown_right])
    ones = ("that all runs have wrong", "that all have right") if rivals else ("wrong ones", "right ones")
    if not rivals and not wrong:
        return chosen, f"{most:,} of {len(scored):,} examples, drawn evenly from the file, in which none is wrong"
    mistaken = _many(len(shown_wrong), len(wrong), f"the {len(shown_wrong):,} worst of {len(wrong):,}")
    words = f"{_differ(len(differing), len(parted)) if rivals else ''}{mistaken} {ones[0]}"
    drawn = f"{len(shown_right):,} of {len(right):,}"
    good = f"{_many(len(shown_right), len(right), drawn)} {ones[1]}"
    even = ", drawn evenly from the file" if 0 < len(shown_right) < len(right) else ""
    return chosen, f"{len(chosen):,} of {len(scored):,} examples: {words}, and {good}{even}"


def _both(scored: Sequence[Scored], parted: Sequence[int], most: int) -> list[int]:
    """Of the examples on which runs differ so many; of those that the first has right and of the others alike many."""
    first, other = ([at for at in parted if scored[at].exact is right] for right in (True, False))
    share = max(min(len(first), most // 2), most - len(other))
    return [*evenly(first, share), *evenly(other, most - min(share, len(first)))]


def _many(shown: int, there: int, some: str) -> str:
    """How many are shown: all, none, or `some`."""
    return f"all {there:,}" if shown == there else some if shown else f"none of {there:,}"


def _differ(shown: int, parted: int) -> str:
    """How many of the examples that a run has right and another wrong are shown."""
    those = "that one run has right and another wrong"
    many = f"{shown:,} of {parted:,} {those}, drawn evenly"
    return f"{many if shown < parted else f'all {parted:,} {those}'}; "


def evenly(numbers: Sequence[int], count: int) -> list[int]:
    """So many of the numbers, at even distances; all where there are no more."""
    if count >= len(numbers):
        return list(numbers)
    return [numbers[at] for at in np.linspace(0, len(numbers) - 1, max(count, 0)).round().astype(int).tolist()]


@dataclass(frozen=True)
class Model:
    """A run, or an ensemble of runs."""

    name: str
    folder: Path
    transducer: Predictor | None
    """None while its training has not reached a first validation."""

    @property
    def ready(self) -> Predictor:
        """What decodes; `RunError` where there is nothing yet."""
        if self.transducer is None:
            raise RunError(f"{self.folder} holds no model yet: its training has not reached a first validation")
        return self.transducer

    @property
    def alone(self) -> bool:
        """Whether it is one network that writes symbol by symbol: its states can be seen."""
        return self.transducer is not None and self.transducer.autoregressive and not self.transducer.is_ensemble


def open_model(folder: Path, name: str, device: Device, beam: int | None) -> Model:
    """A run of a folder, searching as wide as is asked for; `InputError` for what is no run."""
    if _begun(folder):
        return Model(name, folder, None)
    transducer = load(folder, device)
    return Model(name, folder, transducer if beam is None else transducer.with_beam(beam))


def _begun(folder: Path) -> bool:
    """Whether a training goes on here that has no model yet; one that is over without a model is broken."""
    here = is_there(folder / CONFIG) and not is_there(folder / MODEL) and members(folder) == [folder]
    return here and not has_stopped(read_log(folder))


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for each: that of its folder, the whole path where two have one name; one folder's are numbered."""
    # Path.resolve raises a RuntimeError for a link that leads to itself, which is told where the folder is read.
    short = [Path(realpath(folder)).name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name} ({times + 1})" if times else name for name, times in zip(names, before, strict=True)]


def own_file(run: Path) -> tuple[Path, Path | None] | None:
    """The development file that a run was trained with, and that of its targets, if they are where they were.

    Of an ensemble, those of its first member.
    """
    folder = members(run)[0]
    read = [record for record in read_log(folder) if record["event"] == "read"]
    if len(read) < 2:
        return None
    path, target = Path(str(read[1].get("path", ""))), read[1].get("target")
    if target is None and load_run_config(folder).data.format == "text":
        return None
    beside = None if target is None else Path(str(target))
    # isfile, unlike is_file, takes any name: the log may be a stranger's.
    return (path, beside) if isfile(path) and (beside is None or isfile(beside)) else None


def card(model: Model) -> Card:
    """What a run's model is."""
    log = read_log(model.folder)
    if model.transducer is None:
        config, facts = load_run_config(model.folder), list[tuple[str, str]]()
    else:
        config, facts = model.transducer.config, _sizes(model, model.transducer)
    task = task_of(config)
    told = [("model", task.architecture(config)), *facts, *_course(log, task), ("seed", f"{config.seed}")]
    told += [("log", sentence) for sentence in damage_told(model.folder)]
    attends = config.attention.type != "none" and not task.settings.per_position
    return Card(name=model.name, facts=told, config=to_toml(config), attends=attends, task=config.task)


def _sizes(model: Model, transducer: Predictor) -> list[tuple[str, str]]:
    """Numbers of parameters and symbols."""
    vocabularies, count = transducer.vocabularies, len(members(model.folder))
    each = " each" if count > 1 else ""
    return [
        *([("ensemble", f"{count} networks")] if count > 1 else []),
        ("parameters", f"{parameter_count(transducer.network):,}{each}"),
        ("source symbols", f"{len(vocabularies.source.symbols):,}"),
        ("target symbols", f"{len(vocabularies.target.symbols):,}"),
        *([("search", _search(transducer.config.search.beam_size))] if transducer.autoregressive else []),
    ]


def _search(width: int) -> str:
    """How outputs are found."""
    return "greedy" if width == 1 else f"beam of {width}"


def _course(log: Sequence[dict[str, Any]], task: Task) -> list[tuple[str, str]]:
    """What the log tells of data and training."""
    read = [record for record in log if record["event"] == "read"]
    counted = [record for record in log if "update" in record]
    best = [record for record in log if record["event"] == "validated" and record["best"]]
    facts = []
    if read:
        facts.append(("trained on", f"{read[0].get('examples', 0):,} examples"))
    if counted:
        last = counted[-1]
        facts.append(("training", f"{last['update']:,} updates, {last['samples']:,} samples, {last['seconds']:,.0f} s"))
    if best:
        name, key = task.labels.best_score
        scores = f"{name} {best[-1][key]:.2f} % at update {best[-1]['update']:,}"
        facts.append(("best validation", scores))
    return facts


def check_tasks(models: Sequence[Model]) -> None:
    """`InputError` where runs have different tasks: their answers and their scores do not compare."""
    first, *others = [(each.name, _task(each)) for each in models]
    for name, task in others:
        if task != first[1]:
            raise InputError(
                f"runs of one task can be compared: that of {first[0]} is {quote(first[1])}, of {name} {quote(task)}"
            )


def _task(model: Model) -> str:
    """What the run was trained to do; known before it has a model."""
    return (load_run_config(model.folder) if model.transducer is None else model.transducer.config).task


def chosen(models: Sequence[Model], rival: int) -> Model:
    """The run that is asked: −1 the first, else a place among its rivals; `InputError` for one that is not there."""
    if rival != -1 and len(models) == 1:
        raise InputError(f"rival: the page shows one run alone: expected −1, got {quote(rival)}")
    if not -1 <= rival < len(models) - 1:
        raise InputError(f"rival: expected −1 to {len(models) - 2}, got {quote(rival)}")
    return models[rival + 1]


MEND = "look shows files whose lines are all good: mend such lines or leave them out"


class Sources(NamedTuple):
    """Examples and what is known of each; whether they have targets."""

    name: str
    examples: list[Example]
    known: list[Known]
    paired: bool
    spelled: bool = False
    """Whether every source is its target's digits in words, so that where each symbol comes from is known."""
    left_out: str = ""
    """What the file holds beside, in words: columns that are not read, bad lines that are skipped, blank ones."""


def read_file(path: Path, data: DataConfig, target: Path | None = None) -> Sources:
    """Pairs where the first line is one, or where a file of targets stands beside it; else sources.

    `DataError` names what cannot be read, and its line.
    """
    for each in (path, target):
        if each is not None and each.is_fifo():
            raise DataError(f"{each} is a pipe, and look reads a file more than once: write it to a file first")
    if target is None and _alone(path, data):
        return sources_alone(path.name, read_sources(path, data), data)
    reading = read_examples(path, msgspec.structs.replace(data, on_bad_line="skip"), target)
    if reading.bad and data.on_bad_line == "stop":
        raise DataError(str(reading.bad[0]), MEND)
    pairs = zip(reading.examples, reading.lines, strict=True)
    truth = spelled(reading.examples)
    known = [Known((each.target,), line, truth) for each, line in pairs]
    columns = ignored_columns(path, data) if target is None else ""
    header = header_note(reading.examples) if is_undecided(path, data, target) else ""
    left_out = "; ".join(each for each in (header, columns, skipped(reading.bad), blank(reading.blank)) if each)
    return Sources(path.name, reading.examples, known, paired=True, spelled=truth, left_out=left_out)


def sources_alone(name: str, lines: Iterable[Example | BadLine], data: DataConfig) -> Sources:
    """Sources without targets, blank ones left out.

    `DataError` where there is none, and for a bad line unless such are skipped.
    """
    listed, known, bad, empty = list[Example](), list[Known](), list[BadLine](), 0
    for number, each in enumerate(lines, start=1):
        if isinstance(each, BadLine):
            if data.on_bad_line == "stop":
                raise DataError(str(each))
            bad.append(each)
        elif each.source:
            listed.append(each)
            known.append(Known(line=number))
        else:
            empty += 1
    if not listed:
        raise DataError(f"{name} holds no source" + (f": {skipped(bad)}" if bad else ""))
    left_out = "; ".join(each for each in (skipped(bad), blank(empty)) if each)
    return Sources(name, listed, known, paired=False, left_out=left_out)


def skipped(bad: Sequence[BadLine]) -> str:
    """How many bad lines were left out, and the first of them; "" where none was."""
    lines = "bad line" if len(bad) == 1 else "bad lines"
    return f"{len(bad):,} {lines} skipped, the first: line {bad[0].line}: {bad[0].reason}" if bad else ""


def blank(lines: int) -> str:
    """How many blank lines were left out; "" where none was."""
    return f"{lines:,} blank {'line' if lines == 1 else 'lines'} left out" if lines else ""


def _alone(path: Path, data: DataConfig) -> bool:
    """Whether the first line is a source and no pair."""
    if data.format == "text":
        return True
    first = next(iter(read_pairs(path, data)), None)
    if not isinstance(first, BadLine):
        return False
    return all(isinstance(each, Example) for each in islice(read_sources(path, data), 1))
