"""Train, resume, predict, evaluate, export a page and train an ensemble, in the working folder, on any system.

Run with the folder of the example pairs as argument; prints "done" and the module of its locks at the end.
"""

import io
import sys
from pathlib import Path

from pellucid import file_lock
from pellucid.cli import main
from pellucid.cli.arguments import config_from_flags
from pellucid.cli.train import parse_train_arguments
from pellucid.training import training_data
from pellucid.training.run_folder import in_use, read_log
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles

PAIRS = 300
FLAGS = ("--size", "tiny", "--training.epochs", "2", "--training.eval_interval", "1", "--threads", "1")


def run(*arguments: object) -> None:
    """Run a subcommand, which must succeed."""
    code = main([str(argument) for argument in arguments])
    assert code == 0, (arguments, code)


def interrupt_training(folder: Path) -> None:
    """Begin the training of the command line, and stop it after its first checkpoint; it is locked meanwhile."""
    command_line = ["train.tsv", "--valid", "valid.tsv", "--run", str(folder), *FLAGS]
    config = config_from_flags(parse_train_arguments(command_line))
    events = train_run(TrainingFiles(Path("train.tsv"), Path("valid.tsv")), folder, config)
    next(event for event in events if type(event).__name__ == "FileSaved")
    assert in_use(folder)
    assert main(["train", *command_line]) == 2, "two trainings in one folder"
    events.close()
    assert not in_use(folder)


def train_and_use(examples: Path) -> None:
    """Do everything once. The corpus is mapped into memory, as one of many pairs is."""
    training_data.MIN_CORPUS_SYMBOLS = 1
    for name, split in (("train", "train"), ("valid", "dev")):
        lines = (examples / f"{split}.tsv").read_text("utf-8").splitlines(keepends=True)[:PAIRS]
        Path(f"{name}.tsv").write_text("".join(lines), "utf-8")
    interrupt_training(Path("run"))
    run("train", "train.tsv", "--valid", "valid.tsv", "--run", "run", *FLAGS)
    assert [record["event"] for record in read_log(Path("run"))].count("started") == 2
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"1984\n12\n"), "utf-8")
    run("predict", "run")
    run("evaluate", "run", "valid.tsv", "--html", "report.html")
    run("look", "run", "valid.tsv", "--export", "page.html")
    run("train", "train.tsv", "--valid", "valid.tsv", "--run", "ensemble", "--ensemble", "2", "--jobs", "2", *FLAGS)
    names = sorted(path.name for path in Path("ensemble").iterdir())
    assert names == [".lock", "ensemble.json", "seed-1", "seed-2"], names
    written = [path for path in Path().rglob("*") if path.suffix in (".toml", ".json", ".jsonl", ".md", ".html")]
    assert len(written) > 12
    for path in written:
        assert b"\r" not in path.read_bytes(), path
    for path in Path().rglob("*.tmp"):
        raise AssertionError(f"{path} is left over")


if __name__ == "__main__":  # a worker process imports this module, too
    train_and_use(Path(sys.argv[1]))
    print("done", "fcntl" if vars(file_lock)["fcntl"] else "msvcrt")
