"""The page contents are assembled from runs and a file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from page_data import digits_page_data, make_interrupted_run
from page_runs import long_page_data
from trained_runs import DataFiles, copy_run_folder, copy_task_run, digits_run, make_small_config, train_to_end

from pellucid.config.settings import DataConfig
from pellucid.config.toml import build_config, to_toml
from pellucid.data.synthetic import spell_digits
from pellucid.decoding.trace_schema import decode_array
from pellucid.errors import DataError, RunError
from pellucid.evaluation.confusion import align_symbols
from pellucid.files import digest_file
from pellucid.run_folder.lock import lock_run_folder
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer import inputs
from pellucid.viewer import page_contents as contents_module
from pellucid.viewer.inputs import ValidationFileError, find_validation_file, open_run, read_example_file
from pellucid.viewer.page_contents import assemble_page, paired_outcomes
from pellucid.viewer.schema import PageContents
from pellucid.viewer.training_history import mean_training_losses, training_history


def test_examples_are_the_predictions_of_the_run() -> None:
    shown, transducer = digits_page_data(), load(digits_run().run).with_beam(1)
    contents = shown.contents
    assert contents.num_examples == 40 and len(contents.examples) == 30 and contents.served
    for item, trace in zip(
        contents.examples, transducer.predict([item.text for item in contents.examples]), strict=True
    ):
        (page_trace,) = item.traces
        assert page_trace.output == trace.output and page_trace.target == list(trace.target)
        np.testing.assert_array_equal(decode_array(page_trace.attention), trace.attention)
        np.testing.assert_array_equal(decode_array(page_trace.log_probabilities), trace.log_probabilities)
        assert decode_array(page_trace.entropy).shape == (len(trace.target),)
        assert item.exact == (trace.output == item.references[0])


def test_edits_convert_the_reference_to_the_output() -> None:
    wrong = [item for item in digits_page_data().contents.examples if not item.exact]
    assert wrong
    for item in wrong:
        assert item.errors == sum(edit.kind != "same" for edit in item.edits)
        steps = [edit.step for edit in item.edits if edit.step is not None]
        assert steps == list(range(len(item.traces[0].output)))
        assert "".join(edit.expected or "" for edit in item.edits) == item.references[0]


def test_line_numbers_are_those_of_the_file() -> None:
    lines = digits_run().files.valid.read_text("utf-8").splitlines()
    for item in digits_page_data().contents.examples:
        assert item.line is not None and lines[item.line - 1].split("\t") == [item.text, *item.references]


def test_corpus_counts_all_examples_and_links_to_shown_ones() -> None:
    shown = digits_page_data()
    corpus, items = shown.contents.corpus, shown.contents.examples
    assert corpus is not None and corpus.num_examples == 40
    assert sum(length.total for length in corpus.lengths) == 40
    for interval in [*corpus.positions, *corpus.lengths]:
        assert all(not items[index].exact for index in interval.example_indices)
        assert interval.total - interval.correct >= len(interval.example_indices)
    first = corpus.confusions[0]
    for index in first.example_indices:
        output = items[index].traces[0].output
        assert (first.expected, first.predicted) in align_symbols(list(output), list(items[index].references[0]))
    exact = corpus.scores[0]
    assert exact.low is not None and exact.value is not None and exact.high is not None
    assert exact.low <= exact.value <= exact.high


def test_state_points_have_their_symbol() -> None:
    shown = digits_page_data()
    space, items = shown.contents.state_space, shown.contents.examples
    assert space is not None
    for cloud, symbols in ((space.encoder, "source"), (space.decoder, "target")):
        assert decode_array(cloud.coordinates).shape == (len(cloud.points), 2)
        own = [point for point in cloud.points if point.example >= 0]
        assert own
        for point in own:
            assert getattr(items[point.example].traces[0], symbols)[point.position] == point.symbol
            assert f"‹{point.symbol}›" in point.context
    states = items[0].traces[0].states
    assert states is not None and states.encoder_pca is not None
    assert decode_array(states.encoder_pca).shape == (len(items[0].traces[0].source), 2)


def test_exported_page_has_details_that_a_server_computes_on_request() -> None:
    served, exported = (
        digits_page_data().contents.examples[0].traces[0],
        digits_page_data(served=False).contents.examples[0].traces[0],
    )
    assert served.attribution is None and exported.attribution is not None
    assert exported.states is not None and exported.states.encoder.shape[0] == len(exported.source)
    assert decode_array(exported.attribution.occlusion).shape == (len(exported.target), len(exported.source))


def test_beam_has_all_outputs_and_one_search_tree() -> None:
    items = digits_page_data(beam_size=3).contents.examples
    for item in items:
        assert 1 <= len(item.traces) <= 3
        assert item.traces[0].search_tree is not None and all(trace.search_tree is None for trace in item.traces[1:])
        assert sum(trace.nbest_probability or 0 for trace in item.traces) == pytest.approx(1)


def test_pages_have_the_outputs_of_the_default_beam() -> None:
    """The first output of an example is that of predict, without a flag for either."""
    items, transducer = digits_page_data(beam_size=None).contents.examples, load(digits_run().run)
    predicted = transducer.predict([item.text for item in items])
    assert [item.traces[0].output for item in items] == [trace.output for trace in predicted]
    assert max(len(item.traces) for item in items) == transducer.config.search.beam_size == 5


def test_compared_runs_decode_the_same_examples() -> None:
    (compared_run,) = digits_page_data().contents.compared_runs
    examples = digits_page_data().contents.examples
    assert [item.text for item in compared_run.examples] == [item.text for item in examples]
    assert [item.traces[0].output for item in compared_run.examples] == [item.traces[0].output for item in examples]


def test_contents_round_trip_through_json() -> None:
    """A number that is not finite would be null in JSON, which is another value, or no value of the field."""
    contents = digits_page_data(served=False, beam_size=3).contents
    encoded = msgspec.json.encode(contents)
    assert msgspec.json.decode(encoded, type=PageContents) == contents


def test_training_has_a_frame_per_validation() -> None:
    training = digits_page_data().contents.training
    assert training is not None and training.finished
    validated = [line["update"] for line in read_log(digits_run().run) if line["event"] == "validated"]
    assert [frame.update for frame in training.frames] == validated
    for frame in training.frames:
        assert frame.source_pca is not None and frame.source_pca.shape == [len(training.source_symbols), 2]
        assert len(frame.probes) == 4 and "exact_match" in frame.metrics


@pytest.mark.parametrize(
    ("smoothing", "dropout", "causes"),
    [
        (0.0, 0.0, ""),
        (0.1, 0.0, "label smoothing of 0.1"),
        (0.0, 0.2, "dropout"),
        (0.1, 0.2, "label smoothing of 0.1 and dropout"),
    ],
)
def test_loss_caption_explains_the_difference_of_the_losses(
    tmp_path: Path, smoothing: float, dropout: float, causes: str
) -> None:
    config = to_toml(make_small_config({"label_smoothing": smoothing}, dropout))
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    history = training_history(open_run(tmp_path, "run", "cpu", None))
    caption = history.loss_caption if history else ""
    expected = f"Only the training loss includes {causes}, so it may be higher."
    assert (expected in caption) if causes else caption.endswith("at each validation.")


def test_large_attention_reduces_the_number_of_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "MAX_WEIGHTS", 500)
    trained = digits_run()
    sources = read_example_file(trained.files.valid, trained.config.data)
    contents = assemble_page([open_run(trained.run, "run", "cpu", None)], [sources], 30, True).contents
    assert 0 < len(contents.examples) < 30 and contents.selection_note.endswith("; more would make the page too large")
    assert contents.corpus is not None and contents.corpus.num_examples == 40


def test_sources_without_targets_have_no_scores(tmp_path: Path) -> None:
    (tmp_path / "sources.txt").write_text("one\n\nnine two\n")
    trained = digits_run()
    sources = read_example_file(tmp_path / "sources.txt", trained.config.data)
    assert not sources.has_targets
    contents = assemble_page([open_run(trained.run, "run", "cpu", None)], [sources], 30, True).contents
    assert contents.corpus is None and [item.line for item in contents.examples] == [1, 3]
    assert all(item.references == [] and item.exact is None for item in contents.examples)


def test_skipped_lines_are_counted_in_the_note(tmp_path: Path) -> None:
    trained = digits_run()
    path = tmp_path / "wide.tsv"
    path.write_text("one\t1\tx\nnine\t9\n\ntwo\t\tx\nsix two\t62\tx\n")
    skip_config = msgspec.structs.replace(trained.config.data, on_bad_line="skip")
    sources = read_example_file(path, skip_config)
    assert [metadata.line for metadata in sources.metadata] == [1, 5]
    contents = assemble_page([open_run(trained.run, "run", "cpu", None)], [sources], 30, True).contents
    assert contents.selection_note == (
        "all 2 examples; the file has 3 columns; used are 1 as source, 2 as target; "
        "2 bad lines skipped, the first: line 2: expected 3 columns as in line 1, got 2; 1 blank line skipped"
    )
    with pytest.raises(DataError, match=r"wide.tsv:2: .*; --on-bad-line skip .*skips and counts"):
        read_example_file(path, trained.config.data)
    (tmp_path / "sources.txt").write_bytes(b"one\n\xff\n\n \nnine\n")
    sources_only = read_example_file(tmp_path / "sources.txt", skip_config)
    assert len(sources_only.examples) == 2 and sources_only.note.endswith("; 2 blank lines skipped")
    assert sources_only.note.startswith("1 bad line skipped, the first: line 2: invalid UTF-8")


def test_validation_file_is_found(tmp_path: Path) -> None:
    trained = digits_run()
    copy_run_folder(trained.run, tmp_path / "runs" / "seed-1")
    (tmp_path / "runs" / "ensemble.json").write_text('{"members": ["seed-1"]}')
    assert find_validation_file(tmp_path / "runs", DataConfig())[:2] == (trained.files.valid, None)
    assert find_validation_file(trained.run, DataConfig())[:2] == (trained.files.valid, None)
    (trained.files.valid).rename(tmp_path / "away")
    try:
        assert "is not, or no longer, the validation file" in validation_file_error(trained.run)
    finally:
        (tmp_path / "away").rename(trained.files.valid)


def test_only_a_file_with_the_recorded_checksum_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of another person may name any file of the user."""
    run, private = copy_run_folder(digits_run().run, tmp_path / "run"), tmp_path / "private.tsv"
    other = f"{run}: {str(private)!r} is not, or no longer, the validation file of this run: it is missing, or its "
    other += "SHA-256 is not the one in the log; give a FILE"
    content = digits_run().files.valid.read_bytes()
    private.write_bytes(content.swapcase())
    for key in ("sha256", "size"):
        change_validation_record(run, {"path": str(private), key: None})
        assert validation_file_error(run) == (
            f"{run}: its log has no SHA-256 of the validation file {str(private)!r}, which is therefore not opened; "
            "give a FILE"
        )
        change_validation_record(run, {"path": str(private), key: {"sha256": "0" * 64, "size": len(content) - 1}[key]})
        assert validation_file_error(run) == other
    digest = digest_file(digits_run().files.valid)
    assert digest is not None
    change_validation_record(run, {"path": str(private), **digest._asdict()})
    assert validation_file_error(run) == other
    private.write_bytes(content)
    assert find_validation_file(run, DataConfig())[:2] == (private, None)
    private.write_bytes(content + b"\n")
    assert validation_file_error(run) == other
    change_validation_record(run, {"size": len(content) + 1})
    assert validation_file_error(run) == other
    monkeypatch.setattr(inputs, "MAX_FILE_SIZE", len(content))
    assert validation_file_error(run).startswith(f"{run}: the validation file {str(private)!r} has more than ")


@pytest.mark.skipif(os.name == "nt", reason="named pipes and links")
def test_special_and_large_files_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 3 * 2**30)  # a sparse file
    (tmp_path / "link").symlink_to(tmp_path / "link")
    monkeypatch.setattr("pellucid.files._digest", lambda file: pytest.fail(f"{file.name} is read"))
    for name in ("pipe", "large", "link", "none", "", "run"):
        change_validation_record(run, {"path": str(tmp_path / name)})
        assert "is not, or no longer, the validation file" in validation_file_error(run)
    change_validation_record(run, {"path": "/proc/self/maps", "size": 0})
    assert "is not, or no longer, the validation file" in validation_file_error(run)


def validation_file_error(run: Path) -> str:
    """Return the message about a run without a validation file that may be opened."""
    with pytest.raises(ValidationFileError) as caught:
        find_validation_file(run, DataConfig())
    return str(caught.value)


def change_validation_record(run: Path, changes: Mapping[str, object]) -> None:
    """Change keys of the log record of the validation file; the value None removes a key."""
    records = read_log(run)
    index = [number for number, record in enumerate(records) if record["event"] == "read"][1]
    records[index] = {key: value for key, value in {**records[index], **changes}.items() if value is not None}
    (run / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")


def test_parallel_validation_files_are_found(tmp_path: Path) -> None:
    pairs = digits_run().files.valid.read_text("utf-8").splitlines()
    for name, lines in (("train", pairs), ("dev", pairs[:10])):
        for side in range(2):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line.split(chr(9))[side]}\n" for line in lines))
    files = DataFiles(tmp_path / "train.0", tmp_path / "dev.0", tmp_path / "train.1", tmp_path / "dev.1")
    settings = {"size": "tiny", "training": {"epochs": 1}, "data": {"input_format": "text"}}
    (tmp_path / "dev.0").write_text("six six\n" + (tmp_path / "dev.0").read_text())
    (tmp_path / "dev.1").write_text("66\n" + (tmp_path / "dev.1").read_text())
    train_to_end(files, tmp_path / "run", build_config(settings, origin="test"))
    model = open_run(tmp_path / "run", "run", "cpu", None)
    assert find_validation_file(model.folder, DataConfig())[:2] == (files.valid, files.valid_target)
    assert files.valid_target is not None
    content = files.valid_target.read_bytes()
    files.valid_target.write_bytes(b"")
    assert repr(str(files.valid_target)) in validation_file_error(model.folder)
    files.valid_target.write_bytes(content)
    assert read_example_file(files.valid, model.loaded_predictor.config.data, files.valid_target).has_targets
    (tmp_path / "dev.1").unlink()
    assert repr(str(files.valid_target)) in validation_file_error(model.folder)


def test_spelled_digits_have_a_gold_alignment() -> None:
    contents = digits_page_data().contents
    for item in contents.examples:
        assert item.gold_alignment is not None and len(item.gold_alignment) == len(item.traces[0].target)
        for edit in item.edits:
            if edit.step is not None and edit.expected is not None:
                first, stop = item.gold_alignment[edit.step]
                assert "".join(item.traces[0].source[first:stop]) == spell_digits(edit.expected)
    assert contents.corpus is not None
    assert "alignment error" in {each.name for each in contents.corpus.alignment}


def test_uncomputed_statistics_of_long_sources_have_a_reason() -> None:
    corpus = long_page_data().contents.corpus
    assert corpus is not None
    (statistic,) = (each for each in corpus.alignment if each.name == "permutation effect")
    assert statistic.value is None
    assert statistic.definition == "Not computed: sources of more than 200 symbols."


def test_compared_run_is_scored_on_the_whole_file() -> None:
    contents = digits_page_data().contents
    assert contents.corpus is not None
    (compared_run,) = contents.compared_runs
    percentage = contents.corpus.scores[0].value
    assert percentage is not None
    num_correct = round(percentage / 100 * 40)
    assert (
        compared_run.outcomes == (num_correct, 0, 0, 40 - num_correct) and compared_run.num_differing == 0
    )  # both runs are the same run
    assert [each.correct for each in compared_run.positions] == [each.correct for each in contents.corpus.positions]
    assert [each.value for each in compared_run.scores] == [each.value for each in contents.corpus.scores]
    assert compared_run.log == read_log(digits_run().run) and paired_outcomes(
        [True, True, False], [True, False, True]
    ) == (
        1,
        1,
        1,
        0,
    )


def test_examples_on_which_the_runs_differ_are_preferred(tmp_path: Path) -> None:
    trained = digits_run()
    folders = {"run": trained.run, "interrupted": make_interrupted_run(tmp_path / "interrupted")}
    models = [open_run(folder, name, "cpu", None) for name, folder in folders.items()]
    shown = assemble_page(models, [read_example_file(trained.files.valid, trained.config.data)], 12, True).contents
    (compared,) = shown.compared_runs
    assert compared.outcomes is not None
    differ = sum(one.exact != other.exact for one, other in zip(shown.examples, compared.examples, strict=True))
    # One fifth is reserved for examples on which the runs agree.
    assert differ == min(10, compared.outcomes[1] + compared.outcomes[2]) > 0
    assert f"only one run is correct on {sum(compared.outcomes[1:3])} (shown: " in shown.selection_note
    assert compared.num_differing is not None and compared.num_differing >= sum(compared.outcomes[1:3])


def test_exported_page_has_nearest_states() -> None:
    shown = digits_page_data(served=False)
    space, item = shown.contents.state_space, shown.contents.examples[3]
    states = item.traces[0].states
    assert space is not None and states is not None and states.encoder_neighbors is not None
    neighbors, own = decode_array(states.encoder_neighbors), decode_array(states.encoder)
    assert neighbors.shape == (len(own), 40)
    assert shown.projections is not None
    for position, row in enumerate(neighbors):
        points = [space.encoder.points[int(index)] for index in row[:20]]
        assert all((point.example, point.position) != (3, position) for point in points)
        vectors = shown.projections.encoder.vectors[row[:20].astype(int)]
        unit_vector = own[position] / np.linalg.norm(own[position])
        np.testing.assert_allclose(vectors @ unit_vector, row[20:], atol=1e-5)
        assert (np.diff(row[20:]) <= 1e-6).all()
    served = digits_page_data().contents.examples[3].traces[0].states
    assert served is not None and served.encoder_neighbors is None


def test_unfinished_training_is_shown_from_its_log(tmp_path: Path) -> None:
    folder = make_interrupted_run(tmp_path / "run")
    contents = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True).contents
    assert contents.training is not None and not contents.training.finished and len(contents.training.frames) == 2
    assert not contents.training.running
    with lock_run_folder(folder):
        contents = assemble_page([open_run(folder, "run", "cpu", None)], [], 30, True).contents
        assert contents.training is not None and contents.training.running
    (folder / "model.safetensors").unlink()
    model = open_run(folder, "run", "cpu", None)
    contents = assemble_page([model], [], 30, True).contents
    assert contents.examples == [] and contents.card is not None and contents.card.has_attention
    with pytest.raises(RunError, match=r"model\.safetensors is missing: run the training command again"):
        model.loaded_predictor  # noqa: B018 (the property raises)


def test_model_card_describes_the_model() -> None:
    model = open_run(copy_task_run().run, "copies", "cpu", 4)
    shown = assemble_page([model], [], 30, True).contents.card
    assert shown is not None and shown.has_attention and "[encoder]" in shown.config
    facts = dict(shown.facts)
    assert facts["training set"] == "40 examples" and facts["search"] == "beam search, beam size 4"


def test_mean_training_losses_are_of_all_updates_since_the_previous_validation() -> None:
    """Validations at 70 and 130 updates, of which the windows of 50 end at 50, 100 and (unfinished) 70 and 130."""
    losses = np.arange(1.0, 131.0)
    log: list[dict[str, Any]] = [
        {"event": "stepped", "update": 50, "loss": losses[:50].mean()},
        {"event": "validated", "update": 70, "training_loss": losses[50:70].mean()},
        {"event": "stepped", "update": 100, "loss": losses[50:100].mean()},
        {"event": "validated", "update": 130, "training_loss": losses[100:130].mean()},
    ]
    means = mean_training_losses(log)
    assert means[70] == pytest.approx(losses[:70].mean())
    # Of the window from 51 to 100, only its mean is known: it counts with its 30 updates after the first validation.
    assert means[130] == pytest.approx((30 * losses[50:100].mean() + 30 * losses[100:130].mean()) / 60)
    assert mean_training_losses([{"event": "validated", "update": 0}]) == {}
