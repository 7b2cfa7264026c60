"""Export of runs to a web page, for the subcommand export."""

from collections.abc import Sequence
from pathlib import Path

from pellucid.cli.messages import print_message
from pellucid.data.examples import Example, read_examples
from pellucid.errors import InputError
from pellucid.export.stored_parameters import Precision
from pellucid.export.web_page import build_model_page, has_pair_ngram, render_model_page
from pellucid.files import check_writable, write_text
from pellucid.viewer.inputs import ValidationFileError, ViewedRun, find_validation_file, open_run, run_names


def export_html(folders: Sequence[Path], file: Path, precision: Precision, source: str | None) -> None:
    """Write a web page that runs one model, or two, and print its size.

    Args:
        folders: Run folders.
        file: HTML file.
        precision: Number format of the stored parameters.
        source: First source that the page decodes; None for the first of the validation file.

    Raises:
        InputError: The page does not support a run, or a source has to be given.
        RunError: A run folder is invalid, or the file cannot be written.
    """
    check_writable(file)
    runs = [open_run(folder, name, "cpu", None) for folder, name in zip(folders, run_names(folders), strict=True)]
    example = _first_example(runs[0]) if source is None else Example(source, "", "")
    features = runs[0].loaded_predictor.tokenizers.features.split(example.features)
    page = render_model_page(build_model_page(runs, precision, example.source, features))
    write_text(file, page)
    print(f"{file}: {len(page.encode('utf-8')) / 1e6:.2f} MB, parameters in {precision}")
    for run in runs:
        if has_pair_ngram(run):
            print_message(
                f"{run.folder}: the page shows the network alone, without the pair n-gram model of the run: its "
                f"outputs are those of pellucid predict --no-pair-ngram"
            )


def _first_example(run: ViewedRun) -> Example:
    """Return the first example of the validation file."""
    try:
        file = find_validation_file(run.folder, run.loaded_predictor.config.data, run.log)
        examples = read_examples(file.path, file.data, file.target).examples
    except ValidationFileError as error:
        raise InputError(f"{error}; --source TEXT gives the page its first source") from None
    return next(example for example in examples if example.source)
