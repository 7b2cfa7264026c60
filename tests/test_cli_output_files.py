"""cli/output_files.py: outputs of subcommands destroy no file that is read, no run and no device."""

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from command_line import run_pellucid, usage_error_message
from trained_runs import copy_run_folder, digits_run

from pellucid.cli.audit import AuditArguments
from pellucid.cli.evaluate import EvaluateArguments
from pellucid.cli.export import ExportArguments
from pellucid.cli.look import LookArguments
from pellucid.cli.output_files import check_output_file, check_output_files, inputs_of_flags
from pellucid.cli.predict_arguments import PredictArguments
from pellucid.cli.score import ScoreArguments
from pellucid.errors import InputError

TABLE = "words,digits\none,1\ntwo,2\n"


def test_a_new_file_and_an_old_result_are_accepted(tmp_path: Path) -> None:
    check_output_file("--output", tmp_path / "new.csv")
    (tmp_path / "old.csv").write_text("x")
    check_output_file("--output", tmp_path / "old.csv", [tmp_path / "other.csv", None, Path("-")])
    assert (tmp_path / "old.csv").read_text() == "x"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(InputError, match=r"--html .*pipe.html is a device or a pipe: name a file"):
        check_output_file("--html", tmp_path / "pipe.html")


@pytest.mark.parametrize(("name", "message"), [("-", "name one"), ("words.tsv.gz", "leave .gz out")])
def test_standard_output_and_compressed_files_are_refused(name: str, message: str) -> None:
    """Regression test: audit wrote a file named "-", and plain text to a file named .gz, which no reader accepts."""
    with pytest.raises(InputError, match=message):
        check_output_file("--output", Path(name))


def test_another_name_of_an_input_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    os.link(tmp_path / "data.csv", tmp_path / "link.csv")
    with pytest.raises(InputError, match="is a file that this command reads: name another file"):
        check_output_file("--output", tmp_path / "link.csv", [tmp_path / "data.csv"])


RUN = Path("run")
WRITING: list[tuple[Any, str]] = [
    (PredictArguments(run=RUN), "output"),
    (ScoreArguments(run=RUN), "output"),
    (EvaluateArguments(run=RUN), "errors"),
    (EvaluateArguments(run=RUN), "html"),
    (AuditArguments(file=RUN), "output"),
    (AuditArguments(file=RUN), "html"),
    (LookArguments(paths=(RUN,)), "export"),
    (ExportArguments(run=RUN), "html"),
]
"""Arguments of subcommands that write a file, with the field that names it."""
OUTPUTS = {"output", "errors", "html", "export"}


def list_path_fields(args: Any) -> list[str]:  # noqa: ANN401
    hints = get_type_hints(type(args))
    return [field.name for field in fields(args) if "Path" in str(hints[field.name])]


@pytest.mark.parametrize(
    ("args", "output", "name"),
    [(args, output, name) for args, output in WRITING for name in list_path_fields(args) if name not in OUTPUTS],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_no_output_replaces_a_file_of_another_flag(args: Any, output: str, name: str, tmp_path: Path) -> None:  # noqa: ANN401
    """Regression test: evaluate --errors replaced the file of --lexicon. A new flag is an input by itself."""
    path = tmp_path / "data.html"
    path.write_text("x")
    value = (path,) if "tuple" in str(get_type_hints(type(args))[name]) else path
    with pytest.raises(InputError, match="is a file that this command reads: name another file"):
        check_output_files(replace(args, **{name: value, output: path}), {output: ""})


def test_the_files_that_a_placeholder_matches_are_inputs(tmp_path: Path) -> None:
    """Regression test: evaluate 'runs/{}' 'data/{}.csv' --errors data/de.csv replaced data/de.csv."""
    (tmp_path / "data").mkdir()
    for name in ("de.csv", "de.txt"):
        (tmp_path / "data" / name).write_text(TABLE)
    args = EvaluateArguments(
        run=tmp_path / "{}", file=tmp_path / "data" / "{}.csv", target=tmp_path / "data" / "{}.txt"
    )
    assert {tmp_path / "data" / "de.csv", tmp_path / "data" / "de.txt"} <= set(inputs_of_flags(args, ["errors"]))
    for name in ("de.csv", "de.txt"):
        with pytest.raises(InputError, match="is a file that this command reads"):
            check_output_files(replace(args, errors=tmp_path / "data" / name), {"errors": ""})
    check_output_files(replace(args, errors=tmp_path / "data" / "fr.csv"), {"errors": ".csv"})


@pytest.mark.parametrize("name", ["config.toml", "log.jsonl", ".lock", "ensemble.json", "snapshots/0001.safetensors"])
def test_a_link_to_a_file_of_a_run_is_no_output(name: str, tmp_path: Path) -> None:
    """Regression test: the output was written through the link, over the file of the run."""
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    (tmp_path / "run" / "config.toml").write_text("x")
    file.write_text("x")
    (tmp_path / "out.txt").symlink_to(file)
    (tmp_path / "folder").symlink_to(file.parent)
    for path in (tmp_path / "out.txt", file, tmp_path / "folder" / file.name):
        with pytest.raises(InputError, match="is a file of a run folder: name another file"):
            check_output_file("--output", path)
    (tmp_path / "run" / "outputs.txt").write_text("x")
    check_output_file("--output", tmp_path / "run" / "outputs.txt")


def test_the_files_to_which_those_of_a_run_lead_are_inputs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("x")
    (tmp_path / "stored").write_text("x")
    (tmp_path / "run" / "model.safetensors").symlink_to(tmp_path / "stored")
    with pytest.raises(InputError, match="is a file that this command reads"):
        check_output_files(PredictArguments(run=tmp_path / "run", output=tmp_path / "stored"), {"output": ""})


@pytest.mark.parametrize(
    ("mark", "name", "owner"),
    [
        ("study.journal", "trials.json", "a hyperparameter search"),
        ("prepared.json", "examples.arrow", "a folder of prepared data"),
    ],
)
def test_a_file_of_a_search_or_of_prepared_data_is_no_output(mark: str, name: str, owner: str, tmp_path: Path) -> None:
    (tmp_path / mark).write_text("x")
    with pytest.raises(InputError, match=f"is a file of {owner}: name another file"):
        check_output_file("--output", tmp_path / name)


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("x")
    (tmp_path / "errors.csv").symlink_to(tmp_path / "page.html")
    args = EvaluateArguments(run=RUN, html=tmp_path / "page.html", errors=tmp_path / "errors.csv")
    with pytest.raises(InputError, match=r"--html and --errors are one file, .*errors.csv: name another file"):
        check_output_files(args, {"html": ".html", "errors": ".csv"})


@pytest.mark.parametrize("name", ["validation.jsonl", "log.jsonl", "card.md", "confidence.json", "corpus.arrow"])
def test_a_training_replaces_no_file_that_no_training_has_written(name: str, tmp_path: Path) -> None:
    """Regression test: train data/validation.jsonl --run data replaced its training file by the validation set, and log
    and card of the run replaced files of the user."""
    (tmp_path / "data").mkdir()
    content = "".join(f'{{"source": "{"ab" * i}", "target": "{"ba" * i}"}}\n' for i in range(1, 20))
    (tmp_path / "data" / name).write_text(content)
    (tmp_path / "train.jsonl").write_text(content)
    flags = ("--run", tmp_path / "data", "--size", "tiny", "--input-format", "jsonl", "--no-pair-ngram")
    message = usage_error_message(run_pellucid("train", tmp_path / "data" / name, *flags))
    assert f"{name} is a file that this command reads, and it would write to it" in message
    message = usage_error_message(run_pellucid("train", tmp_path / "train.jsonl", *flags))
    assert message == f"{tmp_path / 'data'} is not empty and holds no run ({name}); name a new folder"
    assert os.listdir(tmp_path / "data") == [name] and (tmp_path / "data" / name).read_text() == content


def test_a_training_replaces_no_settings_of_the_user(tmp_path: Path) -> None:
    """The file of --config stays, also if its settings are those of the run; a resumed run may be given its own."""
    (tmp_path / "run").mkdir()
    (tmp_path / "train.tsv").write_text("".join(f"{'ab' * i}\t{'ba' * i}\n" for i in range(1, 20)))
    config = tmp_path / "run" / "config.toml"
    config.write_text("seed = 3  # mine\n")
    train = ("train", tmp_path / "train.tsv", "--run", tmp_path / "run", "--size", "tiny", "--no-pair-ngram")
    message = usage_error_message(run_pellucid(*train, "--config", config))
    assert f"{config} is a file that this command reads, and it would write to it" in message
    message = usage_error_message(run_pellucid(*train, "--seed", "3"))
    assert message == f"{config} is a file of settings that no training has written; name a new folder"
    assert config.read_text() == "seed = 3  # mine\n"


def test_a_resumed_run_may_be_given_its_own_settings(tmp_path: Path) -> None:
    trained = digits_run()
    run = copy_run_folder(trained.run, tmp_path / "run")
    train = ("train", trained.files.train, "--valid", trained.files.valid, "--run", run)
    result = run_pellucid(*train, "--config", run / "config.toml")
    assert result.code == 0, result.err


def test_a_search_replaces_no_file_that_it_reads(tmp_path: Path) -> None:
    """Regression test: tune --run D --space D/space.txt replaced the search space by its description."""
    (tmp_path / "search").mkdir()
    space = tmp_path / "search" / "space.txt"
    space.write_text("[training]\nlearning_rate = [0.001, 0.002]\n")
    (tmp_path / "train.tsv").write_text("".join(f"{'ab' * i}\t{'ba' * i}\n" for i in range(1, 20)))
    tune = ("tune", tmp_path / "train.tsv", "--run", tmp_path / "search", "--size", "tiny", "--trials", "1")
    message = usage_error_message(run_pellucid(*tune, "--space", space))
    assert f"{space} is a file that this command reads, and it would write to it" in message
    result = run_pellucid(*tune)
    assert result.code == 2 and f"{tmp_path / 'search'} is not empty and holds no study (space.txt)" in result.err
    assert space.read_text().startswith("[training]")


def test_prepare_replaces_no_settings_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "out" / "parts").mkdir(parents=True)
    settings = tmp_path / "out" / "parts" / "settings.toml"
    settings.write_text("seed = 3\n")
    (tmp_path / "train.tsv").write_text("a\tb\n")
    result = run_pellucid("prepare", tmp_path / "train.tsv", "--out", tmp_path / "out", "--config", settings)
    assert "is a file that this command reads, and it would write to it" in usage_error_message(result)


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "{run}", "data.csv", "--errors", "data.csv"),
        ("audit", "data.csv", "--header", "--output", "data.csv"),
        ("audit", "data.csv", "--header", "--apply", "other.csv", "--output", "other.csv"),
        ("audit", "data.csv", "--header", "--compare", "other.csv", "--output", "other.csv"),
        ("look", "{run}", "page.html", "--export", "page.html"),
    ],
)
def test_the_files_of_the_user_are_unchanged(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("data.csv", "other.csv", "page.html"):
        (tmp_path / name).write_text(TABLE)
    filled = [text.format(run=digits_run().run) for text in arguments]
    message = usage_error_message(run_pellucid(*filled, folder=tmp_path))
    assert "is a file that this command reads: name another file" in message
    assert all((tmp_path / name).read_text() == TABLE for name in ("data.csv", "other.csv", "page.html"))


def test_the_files_of_a_run_are_unchanged(tmp_path: Path) -> None:
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    before = (run / "vocabulary.json").read_bytes()
    (tmp_path / "data.tsv").write_text("one\t1\n")
    result = run_pellucid("look", run, tmp_path / "data.tsv", "--export", run / "vocabulary.json")
    assert "is a file of a run folder: name another file" in usage_error_message(result)
    assert (run / "vocabulary.json").read_bytes() == before


def test_a_worklist_with_decisions_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    header = "line,source,target,decision,new_target\n"
    decided = f"{header}2,one,1,replace,11\n3,two,2,,\n"
    (tmp_path / "worklist.csv").write_text(decided)
    audit = ("audit", tmp_path / "data.csv", "--header", "--output", tmp_path / "worklist.csv")
    message = usage_error_message(run_pellucid(*audit))
    assert message.endswith(
        "has 1 decision, which a new worklist would replace: apply them by --apply, or name another file"
    )
    assert (tmp_path / "worklist.csv").read_text() == decided
    (tmp_path / "worklist.csv").write_text(f"{header}2,one,1,,11\n")
    assert "only an earlier worklist without decisions is replaced" in usage_error_message(run_pellucid(*audit))
    (tmp_path / "worklist.csv").write_bytes(decided.encode("utf-16"))
    assert "only an earlier worklist without decisions is replaced" in usage_error_message(run_pellucid(*audit))
    (tmp_path / "worklist.csv").write_text(f"{header}2,one,1,,\n")
    result = run_pellucid(*audit)
    assert result.code == 0 and (tmp_path / "worklist.csv").read_text().startswith("rank,")
    assert "Next: write replace, keep or remove into the column decision, and apply the file with --apply" in result.err


def test_the_page_of_an_audit_ends_with_html(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(TABLE)
    result = run_pellucid("audit", tmp_path / "data.csv", "--header", "--html", tmp_path / "page.csv")
    assert "--html takes a file that ends with .html" in usage_error_message(result)
