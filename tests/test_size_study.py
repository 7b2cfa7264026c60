"""The study of the default size: resumption, refused results, statistics, report and figure."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained_runs import copy_run_folder, digits_run

from benchmarks import size_report, size_study
from benchmarks.size_report import (
    RANKINGS,
    Study,
    bootstrap_error_rates,
    describe_run,
    format_report,
    read_study,
    wrong_outputs,
)
from benchmarks.size_study import Training, describe_inputs, measure, train_missing
from pellucid.files import write_json

OPTIONS = ["--target-symbols", "words"]
TRAINING = Training(1000, "small", 1)
NEURAL = "network alone"


def write_data(folder: Path, pairs: int = 1000, dev: str = "ab\tA B\nc\tC\n") -> Path:
    """Write a subset, and return the folder of the subsets."""
    subset = folder / str(pairs)
    subset.mkdir(parents=True, exist_ok=True)
    (subset / "train.tsv").write_text("a\tA\n", "utf-8")
    (subset / "dev.tsv").write_text(dev, "utf-8")
    return folder


def make_result(
    size: str, wrong: Sequence[str], seed: int = 1, pairs: int = 1000, seconds: float = 9
) -> dict[str, Any]:
    """Return a result of an earlier version, with the same wrong words in both rankings."""
    values = {"data": f"/none/{pairs}", "options": OPTIONS, "seconds": seconds}
    return {**Training(pairs, size, seed)._asdict(), **values, "wrong": dict.fromkeys(RANKINGS, wrong)}


def write_study(folder: Path, words: Sequence[str], *results: Mapping[str, Any]) -> Path:
    """Write the files of a study, and return its folder."""
    (folder / "results").mkdir(parents=True)
    write_json(folder / "words.json", words)
    for result in results:
        name = Training(result["pairs"], result["size"], result["seed"]).name
        write_json(folder / "results" / f"{name}.json", result)
    return folder


def fake_pellucid(run: Path, wrong: str = "ab") -> Callable[..., float]:
    """Return a replacement of `run_pellucid`: a training copies a run folder, an evaluation has one wrong word."""

    def run_pellucid(command: str, *arguments: str | Path) -> float:
        if command == "evaluate":
            (run / "errors.csv").write_text(f"source,target\n{wrong},x\n", "utf-8")
            return 0.0
        assert not run.exists()
        copy_run_folder(digits_run().run, run)
        return 3.0

    return run_pellucid


def test_an_interrupted_training_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: it was resumed, and the seconds were those of its last process."""
    run = tmp_path / "out" / "runs" / TRAINING.name
    run.mkdir(parents=True)
    (run / "training.safetensors").touch()
    data = write_data(tmp_path / "data")
    shutil.copy(digits_run().files.train, data / "1000" / "train.tsv")
    monkeypatch.setattr(size_study, "run_pellucid", fake_pellucid(run))
    result = measure(TRAINING, data, tmp_path / "out", [], ["ab", "c"])
    assert result["seconds"] == 3 and [*result["wrong"].values()] == [["ab"], ["ab"]]
    assert result["description"] == describe_run(run, digits_run().files.train)._asdict()


def test_a_training_is_described_by_its_data_and_environment() -> None:
    run = digits_run()
    pairs = [line.split("\t") for line in run.files.train.read_text("utf-8").splitlines()]
    description = describe_run(run.run, run.files.train)
    assert description.source_length == pytest.approx(np.mean([len(source) for source, _ in pairs]))
    assert description.target_length == pytest.approx(np.mean([len(target) for _, target in pairs]))
    assert description.num_source_symbols == len({symbol for source, _ in pairs for symbol in source})
    assert description.num_target_symbols == len({symbol for _, target in pairs for symbol in target})
    assert description.pair_ngram_weight == 0
    assert "pellucid " in description.environment and "torch " in description.environment


def test_results_of_other_data_or_options_are_refused(tmp_path: Path) -> None:
    """Regression test: the path of the data was compared, not its content."""
    data = write_data(tmp_path / "data")
    result = {**make_result("small", ["ab"]), **describe_inputs(TRAINING, data, OPTIONS)}
    out = write_study(tmp_path / "out", ["ab", "c"], result)
    train_missing([TRAINING], data, out, OPTIONS)
    train_missing([TRAINING], write_data(tmp_path / "copy"), out, OPTIONS)
    with pytest.raises(SystemExit, match=r"1000-small-1\.json belongs to other options: remove it"):
        train_missing([TRAINING], data, out, [*OPTIONS, "--dropout", "0.2"])
    (data / "1000" / "train.tsv").write_text("a\tB\n", "utf-8")
    with pytest.raises(SystemExit, match="belongs to other data: remove it"):
        train_missing([TRAINING], data, out, OPTIONS)


def test_results_of_earlier_versions_have_the_path_of_their_data(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data")
    out = write_study(tmp_path / "out", ["ab", "c"], {**make_result("small", []), "data": str(data / "1000")})
    train_missing([TRAINING], data, out, OPTIONS)
    with pytest.raises(SystemExit, match="belongs to other data"):
        train_missing([TRAINING], write_data(tmp_path / "copy"), out, OPTIONS)


def test_a_refused_training_leaves_the_words_of_the_study(tmp_path: Path) -> None:
    """Regression test: the words of other data replaced those of the results, whose error rate became 0."""
    data, other = write_data(tmp_path / "data"), write_data(tmp_path / "other", dev="d\tD\n")
    result = {**make_result("small", ["ab", "c"]), **describe_inputs(TRAINING, data, OPTIONS)}
    out = write_study(tmp_path / "out", ["ab", "c"], result)
    with pytest.raises(SystemExit, match="belongs to other data"):
        train_missing([TRAINING], other, out, OPTIONS)
    with pytest.raises(SystemExit, match="have different words"):
        train_missing([TRAINING._replace(size="base")], other, out, OPTIONS)
    assert json.loads((out / "words.json").read_text("utf-8")) == ["ab", "c"]
    assert "| 100.00 (100.00 to 100.00) |" in format_report([read_study(out, "english")])


def test_subsets_with_different_words_are_refused(tmp_path: Path) -> None:
    """Regression test: all results were compared with the words of the first subset."""
    data = write_data(write_data(tmp_path / "data"), 3000, "d\tD\n")
    with pytest.raises(SystemExit, match=r"3000/dev\.tsv and .*1000/dev\.tsv have different words"):
        train_missing([TRAINING, TRAINING._replace(pairs=3000)], data, tmp_path / "out", OPTIONS)
    assert not (tmp_path / "out").exists()


def test_words_are_the_sources_that_an_evaluation_reads(tmp_path: Path) -> None:
    """Regression test: sources ended at a line separator (U+2028) and at a form feed."""
    data = write_data(tmp_path / "data", dev="a\u2028b\tA\nc\x0cd\tC\na\u2028b\tB\n")
    assert size_study.find_words([TRAINING], data, tmp_path) == ["a\u2028b", "c\x0cd"]


def test_wrong_words_that_are_no_words_of_the_study_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression test: they were counted as correct."""
    out = write_study(tmp_path / "out", ["ab"], make_result("small", ["ab", "x"]))
    with pytest.raises(SystemExit, match=r"small-1\.json: 1 wrong words, such as 'x', are not among the validation"):
        read_study(out, "english")
    data = write_data(tmp_path / "data")
    monkeypatch.setattr(size_study, "run_pellucid", fake_pellucid(tmp_path / "new" / "runs" / TRAINING.name, "y"))
    with pytest.raises(SystemExit, match="such as 'y', are not among"):
        train_missing([TRAINING], data, tmp_path / "new", OPTIONS)
    assert not [*(tmp_path / "new" / "results").iterdir()]


def test_outcomes_have_a_row_for_each_seed_and_a_column_for_each_word() -> None:
    results = [make_result("base", ["a"]), make_result("base", ["c", "a"], seed=2)]
    wrong = wrong_outputs(results, ["a", "b", "c", "d"], NEURAL)
    assert wrong.tolist() == [[True, False, False, False], [True, False, True, False]]


def test_resampled_rates_have_the_variance_of_words_and_seeds() -> None:
    words = np.arange(400) < 200
    # One seed: 100 sqrt(p (1 - p) / W) with p = 1/2 and W = 400.
    assert bootstrap_error_rates(words[None]).std() == pytest.approx(2.5, rel=0.06)
    # Two seeds, of which one has only wrong outputs: 0, 50 or 100 % with the probabilities 1/4, 1/2 and 1/4.
    values, counts = np.unique(bootstrap_error_rates(np.array([[True] * 5, [False] * 5])), return_counts=True)
    assert values.tolist() == [0, 50, 100]
    assert counts / size_report.RESAMPLES == pytest.approx([0.25, 0.5, 0.25], abs=0.04)


def test_the_difference_of_two_networks_has_the_same_words_and_independent_seeds() -> None:
    first, second = np.arange(400) < 200, np.arange(400) < 220
    # The outputs of 20 words differ: 100 sqrt(q (1 - q) / W) with q = 1/20. With other words it would be 3.5.
    difference = bootstrap_error_rates(second[None], seed=2) - bootstrap_error_rates(first[None])
    assert difference.mean() == pytest.approx(5, abs=0.1)
    assert difference.std() == pytest.approx(1.09, rel=0.06)
    # Each network has one good and one bad seed: the difference is that of two independent choices of two seeds.
    seeds = np.array([[True], [False]])
    assert (bootstrap_error_rates(seeds, seed=2) - bootstrap_error_rates(seeds)).std() == pytest.approx(50, rel=0.06)


def test_intervals_are_percentiles() -> None:
    assert size_report.format_interval(np.arange(201.0)) == "5.00 to 195.00"


def test_the_report_has_rates_differences_and_descriptions(tmp_path: Path) -> None:
    description = size_report.RunDescription(5.25, 7.5, 26, 39, 0.25, "pellucid 0.1.0, AMD")
    described = make_result("large", [], seconds=1234.4) | {"description": description._asdict()}
    other = make_result("large", [], 2, seconds=1234.4) | {
        "description": description._replace(pair_ngram_weight=0.5)._asdict()
    }
    base = [make_result("base", ["a"]), make_result("base", ["a"], 2, seconds=10)]
    out = write_study(tmp_path / "out", ["a", "b", "c", "d"], described, other, *base)
    lines = format_report([read_study(out, "english")]).splitlines()
    # One of four words is wrong: the number of wrong words in a sample has a binomial distribution (n = 4, p = 1/4),
    # whose percentiles 2.5 and 97.5 are 0 and 3.
    unknown = " | ".join(["not recorded"] * 4)
    assert lines[2] == (
        f"| english | 1,000 | {unknown} | `base` | 2 | 25.00 (0.00 to 75.00) |  | 25.00 (0.00 to 75.00) |  | "
        "not recorded | 10 |"
    )
    assert lines[3] == (
        "| english | 1,000 | 5.2 | 7.5 | 26 | 39 | `large` | 2 | 0.00 (0.00 to 0.00) | -25.00 (-75.00 to 0.00) | "
        "0.00 (0.00 to 0.00) | -25.00 (-75.00 to 0.00) | 0.25, 0.5 | 1,234 |"
    )
    assert lines[-2:] == ["* not recorded: 2 trainings", "* pellucid 0.1.0, AMD: 2 trainings"]


def test_settings_are_compared_with_the_first_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["a", "b", "c", "d"]
    defaults = write_study(tmp_path / "defaults", words, make_result("base", ["a"]))
    other = write_study(tmp_path / "other", words, make_result("base", []), make_result("large", ["a"], seconds=1234))
    size_study.main(["report", "--settings", f"defaults={defaults}", f"no dropout={other}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].count("minus defaults") == 2
    rate, none = "25.00 (0.00 to 75.00) | ", "0.00 (0.00 to 0.00) | -25.00 (-75.00 to 0.00) | "
    assert lines[2:5] == [
        f"| defaults | 1,000 | `base` | 1 | {rate} | {rate} | 9 |",
        f"| no dropout | 1,000 | `base` | 1 | {none}{none}9 |",
        f"| no dropout | 1,000 | `large` | 1 | {rate} | {rate} | 1,234 |",
    ]
    with pytest.raises(SystemExit, match="different validation words"):
        third = write_study(tmp_path / "third", ["a"], make_result("base", []))
        size_study.main(["report", "--settings", f"defaults={defaults}", f"third={third}"])


def test_results_of_earlier_versions_have_the_description_of_their_run(tmp_path: Path) -> None:
    run = digits_run()
    data = write_data(tmp_path / "data")
    shutil.copy(run.files.train, data / "1000" / "train.tsv")
    out = write_study(tmp_path / "out", ["a"], make_result("small", []) | {"data": str(data / "1000")})
    copy_run_folder(run.run, out / "runs" / TRAINING.name)
    (result,) = read_study(out, "digits").results
    assert result["description"] == describe_run(run.run, run.files.train)


def test_studies_of_several_tasks_have_one_report_and_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english = write_study(tmp_path / "english", ["a", "b"], make_result("base", ["a"]))
    greek = write_study(tmp_path / "greek", ["x"], make_result("base", ["x"]), make_result("small", [], pairs=300))
    figure = tmp_path / "figure.svg"
    size_study.main(["report", "--tasks", f"English={english}", f"Greek={greek}", "--figure", str(figure)])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:5]]
    assert [(row[0], row[1], row[6], row[8].split()[0]) for row in rows] == [
        ("| English", "1,000", "`base`", "50.00"),
        ("| Greek", "300", "`small`", "0.00"),
        ("| Greek", "1,000", "`base`", "100.00"),
    ]
    text = figure.read_text("utf-8")
    assert all(f"<!-- {label} -->" in text for label in ("English", "Greek", "small, network alone"))
    size_study.main(["report", "--out", str(english)])
    assert "\n| english | 1,000 |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        size_study.main(["report", "--tasks", str(english)])
    with pytest.raises(SystemExit, match="has no results of a study"):
        size_study.main(["report", "--out", str(tmp_path / "none")])


def test_curves_have_the_rates_and_intervals_of_each_number_of_pairs() -> None:
    from matplotlib.figure import Figure

    results = [make_result("base", ["a"]), make_result("base", ["a", "b"], pairs=3000)]
    axes = Figure().subplots()
    size_report._draw_curves(axes, Study("english", results, ["a", "b"]))
    curves: dict[str, Any] = {str(curve.get_label()): curve for curve in axes.containers}
    assert [*curves] == ["base, with the pair n-gram model", "base, network alone"]
    for line, _, (bars,) in curves.values():
        assert line.get_xydata().tolist() == [[1000, 50], [3000, 100]]
        assert [segment.tolist() for segment in bars.get_segments()] == [
            [[1000, 0], [1000, 100]],
            [[3000, 100], [3000, 100]],
        ]
