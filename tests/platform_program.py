"""Train, resume, predict, evaluate, export a page and train an ensemble in the working folder, on any system.

The argument is the folder of the example pairs. The last output line is "done" and the module that locks files.
"""

import io
import sys
from pathlib import Path

from pellucid import file_lock
from pellucid.cli import main
from pellucid.cli.arguments import TrainingFlagParser, config_from_flags
from pellucid.cli.train import TrainArguments
from pellucid.run_folder.lock import in_use
from pellucid.run_folder.log import read_log
from pellucid.training import corpus_cache
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles

NUM_PAIRS = 300
FLAGS = ("--size", "tiny", "--training.epochs", "2", "--training.eval_interval", "1", "--threads", "1")


def run_pellucid(*arguments: object) -> None:
    """Run a subcommand, and assert that it succeeds."""
    code = main([str(argument) for argument in arguments])
    assert code == 0, (arguments, code)


def interrupt_training(folder: Path) -> None:
    """Train until the first checkpoint, and assert that the run folder is locked meanwhile."""
    command_line = ["train.tsv", "--valid", "valid.tsv", "--run", str(folder), *FLAGS]
    config = config_from_flags(TrainingFlagParser(TrainArguments, "train", command_line).parse())
    events = train_run(TrainingFiles(Path("train.tsv"), Path("valid.tsv")), folder, config)
    next(event for event in events if type(event).__name__ == "FileSaved")
    assert in_use(folder)
    assert main(["train", *command_line]) == 2, "a second training run started in the folder of the first"
    events.close()
    assert not in_use(folder)


def train_and_use(examples: Path) -> None:
    """Run every subcommand once. The corpus is mapped into memory, as a large corpus is."""
    corpus_cache.MIN_CORPUS_SYMBOLS = 1
    for name, split in (("train", "train"), ("valid", "dev")):
        lines = (examples / f"{split}.tsv").read_text("utf-8").splitlines(keepends=True)[:NUM_PAIRS]
        Path(f"{name}.tsv").write_text("".join(lines), "utf-8")
    interrupt_training(Path("run"))
    run_pellucid("train", "train.tsv", "--valid", "valid.tsv", "--run", "run", *FLAGS)
    assert [record["event"] for record in read_log(Path("run"))].count("started") == 2
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"1984\n12\n"), "utf-8")
    run_pellucid("predict", "run")
    run_pellucid("evaluate", "run", "valid.tsv", "--html", "report.html")
    run_pellucid("look", "run", "valid.tsv", "--export", "page.html")
    run_pellucid(
        "train", "train.tsv", "--valid", "valid.tsv", "--run", "ensemble", "--ensemble", "2", "--jobs", "2", *FLAGS
    )
    names = sorted(path.name for path in Path("ensemble").iterdir())
    assert names == [".lock", "confidence.json", "ensemble.json", "seed-1", "seed-2"], names
    text_files = [path for path in Path().rglob("*") if path.suffix in (".toml", ".json", ".jsonl", ".md", ".html")]
    assert len(text_files) > 12
    for path in text_files:
        assert b"\r" not in path.read_bytes(), path
    for path in Path().rglob("*.tmp"):
        raise AssertionError(f"{path} is a leftover temporary file")


if __name__ == "__main__":  # worker processes import this module without running it
    train_and_use(Path(sys.argv[1]))
    print("done", "fcntl" if vars(file_lock)["fcntl"] else "msvcrt")
