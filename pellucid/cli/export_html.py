"""Export of runs to a web page, for the subcommand export."""

from collections.abc import Sequence
from pathlib import Path

from pellucid.cli.messages import print_message
from pellucid.cli.sources import print_result
from pellucid.data.examples import Example, read_examples
from pellucid.errors import InputError
from pellucid.export.stored_parameters import Precision
from pellucid.export.web_page import build_model_page, has_pair_ngram, render_model_page
from pellucid.files import file_exists, follow_links, open_regular, write_text
from pellucid.viewer.inputs import ValidationFileError, ViewedRun, find_validation_file, open_run, run_names

HTML_START = b"<!doctype html"
"""First bytes of a web page, in lower case."""


def export_html(folders: Sequence[Path], file: Path, precision: Precision, source: str | None) -> None:
    """Write a web page that runs one model, or two, and print its size.

    Args:
        folders: Run folders.
        file: HTML file, which the command line has checked (`check_output_files`).
        precision: Number format of the stored parameters.
        source: First source that the page decodes; None for the first of the validation file.

    Raises:
        InputError: The page does not support a run, the file exists and is not a web page, or a source has to be given.
        RunError: A run folder is invalid, or the file cannot be written.
    """
    _check_file(file)
    runs = [open_run(folder, name, "cpu", None) for folder, name in zip(folders, run_names(folders), strict=True)]
    example = _first_example(runs[0]) if source is None else Example(source, "", "")
    features = runs[0].loaded_predictor.tokenizers.features.split(example.features)
    page = render_model_page(build_model_page(runs, precision, example.source, features))
    write_text(follow_links(file), page)
    print_result(f"{file}: {len(page.encode('utf-8')) / 1e6:.2f} MB, parameters in {precision}")
    for run in runs:
        if has_pair_ngram(run):
            print_message(
                f"{run.folder}: the page shows the network alone, without the pair n-gram model of the run: its "
                f"outputs are those of pellucid predict --no-pair-ngram"
            )


def _check_file(file: Path) -> None:
    """Raise `InputError` if the page would replace a file that is not a web page."""
    if file_exists(file):
        with open_regular(file, InputError) as stream:
            start = stream.read(len(HTML_START)) or b""
        if start and start.lower() != HTML_START:
            raise InputError(f"--html {file} exists and is not a web page: name another file")


def _first_example(run: ViewedRun) -> Example:
    """Return the first example of the validation file."""
    try:
        file = find_validation_file(run.folder, run.loaded_predictor.config.data, run.log)
        examples = read_examples(file.path, file.data, file.target).examples
    except ValidationFileError as error:
        raise InputError(f"{error}; --source TEXT gives the page its first source") from None
    return next(example for example in examples if example.source)
