"""training/training_data.py: training and validation sets from files."""

from pathlib import Path

import pytest
from trained_runs import (
    DataFiles,
    make_copy_examples,
    make_small_config,
)

from pellucid.config.settings import DataConfig
from pellucid.errors import BadLineError, ConfigError, DataError
from pellucid.training import training_data as reading
from pellucid.training.mix_in import mix_in_pairs
from pellucid.training.training_data import TrainingFiles


@pytest.mark.parametrize("where", ["train", "valid"])
def test_a_file_of_mostly_bad_lines_is_not_trained_on(tmp_path: Path, where: str) -> None:
    """Also if bad lines are skipped: the rest would be an accident."""
    files = {name: tmp_path / f"{name}.tsv" for name in ("train", "valid")}
    for name, path in files.items():
        path.write_text("".join(f"a{index}\t{name}\n" for index in range(10)), "utf-8")
    skip = DataConfig(on_bad_line="skip")
    for num_bad, is_refused in ((9, False), (10, False), (11, True)):
        bad = "bad\n" * num_bad
        files[where].write_text(bad + "".join(f"a{index}\t{where}\n" for index in range(10)), "utf-8")
        if is_refused:
            with pytest.raises(DataError) as raised:
                reading.read_files(TrainingFiles(*files.values()), skip, None)
            assert str(raised.value) == (
                f"{files[where]}: 11 of 21 lines are bad, so the format, the delimiter or the columns are "
                f"probably wrong; the first: {files[where]}:1: expected 2 columns, got 1 (tabs separate columns)"
            )
        else:
            reads = reading.read_files(TrainingFiles(*files.values()), skip, None).file_events
            assert sum(len(read.bad_lines) for read in reads) == num_bad


def test_skipping_is_not_advised_where_already_the_first_line_is_bad(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\nbad\na\tb\n", "utf-8")
    (tmp_path / "b.tsv").write_text("a\tb\nbad\n", "utf-8")
    for name, has_advice in (("a", False), ("b", True)):
        with pytest.raises(BadLineError) as raised:
            reading.read_files(TrainingFiles(tmp_path / f"{name}.tsv", None), DataConfig(), None)
        assert ("--on-bad-line" in str(raised.value)) == has_advice


def test_a_delimiter_is_refused_for_other_formats(tmp_path: Path) -> None:
    files = TrainingFiles(tmp_path / "a.tsv", None)
    with pytest.raises(ConfigError, match=r"^data\.delimiter .* a\.tsv is read as tsv: give --input-format csv"):
        reading.resolve_auto_settings(files._replace(train=Path("a.tsv")), DataConfig(delimiter=";"))
    for format in ("csv", "auto"):
        config = DataConfig(delimiter=";", input_format=format)
        named = files._replace(train=Path("a.txt"))
        assert reading.resolve_auto_settings(named, config).input_format == "csv"
    assert reading.resolve_auto_settings(files, DataConfig(delimiter="tab")).input_format == "tsv"


def test_the_overlap_is_counted_without_a_copy_of_the_training_data() -> None:
    training, files = make_copy_examples(30, seed=1), DataFiles(Path("a"), Path("b"))
    for validation_examples in (make_copy_examples(30, seed=2), training[:3], [*training[:3], training[0]]):
        known = set(training)
        assert reading._count_shared(training, validation_examples, files, DataConfig()) == sum(
            example in known for example in validation_examples
        )


def test_examples_are_compared_as_the_model_reads_their_sources(tmp_path: Path) -> None:
    """Regression test: shared and mixed-in examples were compared as texts, whatever their normal form."""
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text("é\tx\nab\ty\n", "utf-8")
    valid.write_text("e\u0301\tx\ncd\tx\n", "utf-8")
    data = reading.read_files(TrainingFiles(train, valid), DataConfig(), None)
    assert data.report.num_shared == 1
    config = make_small_config({"mix_in": str(train)})
    mixed, event = mix_in_pairs(data._replace(training_examples=[]), config, config.data)
    assert [example.source for example in mixed.training_examples] == ["ab"] and event.num_validation == 1
