"""Page data of trained runs for the tests of the page."""

import shutil
from functools import cache
from pathlib import Path

import msgspec
from trained_runs import digits_run, train_to_end

from pellucid.viewer.handlers import decode_source
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.schema import DecodeRequest, ForcedAttentionRow


@cache
def digits_page_data(served: bool = True, beam_size: int | None = 1) -> PageData:
    """Return the page data of the digits run, compared with itself on its validation file; greedy by default."""
    trained = digits_run()
    models = [open_run(trained.run, name, "cpu", beam_size) for name in ("run", "rival")]
    sources = read_example_file(trained.files.valid, trained.config.data)
    return assemble_page(models, [sources], 30, served)


@cache
def find_forced_chain() -> tuple[int, list[ForcedAttentionRow]]:
    """Return the index of an example of the digits run, and three rows of forced attention, applied one after another.

    The first one makes the output longer, the second one concerns the new last step, and the third one makes the output
    short again.
    """
    page_data = digits_page_data(beam_size=3)
    for index, item in enumerate(page_data.contents.examples):
        request = DecodeRequest(text=item.text, beam_size=len(item.traces))
        num_steps, num_positions = len(item.traces[0].target), len(item.traces[0].source)
        rows = [
            _one_hot_row(step, position, num_positions)
            for step in range(num_steps)
            for position in range(num_positions)
        ]
        for longer in rows:
            last = len(_decode_target(page_data, request, [longer])) - 1
            for shorter in (row for row in rows if last >= num_steps and row.step != longer.step):
                chain = [longer, _one_hot_row(last, 0, num_positions), shorter]
                if len(_decode_target(page_data, request, chain)) <= last:
                    return index, chain
    raise AssertionError("no forced attention makes an output longer so that another row makes it short again")


def _one_hot_row(step: int, position: int, num_positions: int) -> ForcedAttentionRow:
    """Return forced attention with the whole weight on one source position."""
    return ForcedAttentionRow(step=step, weights=[float(other == position) for other in range(num_positions)])


def _decode_target(page_data: PageData, request: DecodeRequest, rows: list[ForcedAttentionRow]) -> list[str]:
    """Return the target symbols that the model writes with this forced attention."""
    return decode_source(page_data, msgspec.structs.replace(request, forced_attention=rows)).traces[0].target


def make_interrupted_run(folder: Path) -> Path:
    """Train the digits run in this folder until its second validation; return the folder."""
    from pellucid.training.events import ValidationCompleted
    from pellucid.training.session import train_run

    trained = digits_run()
    events, num_validations = train_run(trained.files, folder, trained.config), 0
    for event in events:
        num_validations += isinstance(event, ValidationCompleted)
        if num_validations == 2:
            break
    events.close()
    return folder


def make_run_without_model(folder: Path, complete_run: Path) -> Path:
    """Make a run folder as it is before the first validation of `complete_run`; return it."""
    folder.mkdir()
    for name in ("config.toml", "vocabulary.json"):
        shutil.copy(complete_run / name, folder)
    return folder


def copy_model_files(folder: Path, complete_run: Path) -> None:
    """Copy the model, the snapshots and the log of `complete_run` to this folder."""
    shutil.copytree(complete_run / "snapshots", folder / "snapshots")
    shutil.copy(complete_run / "model.safetensors", folder)
    shutil.copy(complete_run / "log.jsonl", folder)


def pending_page_data(folder: Path) -> PageData:
    """Return the page data of a run in training on the validation file of the digits run.

    Without a model they contain only the name of the file.
    """
    model, trained = open_run(folder, "run", "cpu", None), digits_run()
    sources = [read_example_file(trained.files.valid, trained.config.data)] if model.predictor else []
    return assemble_page([model], sources, 30, True, pending_file=trained.files.valid.name)


def resume_training(folder: Path) -> None:
    """Resume the digits run in this folder, and train it to its end."""
    trained = digits_run()
    train_to_end(trained.files, folder, trained.config)
