"""export/onnx_export.py, onnx_settings.py and readme.py: the files of an export."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from small_networks import make_config
from trained_runs import copy_task_run, digits_run

from pellucid.config.settings import Config
from pellucid.export.onnx_export import export_files, graph_size, pair_ngram_weight, write_export
from pellucid.export.onnx_settings import exported_settings
from pellucid.export.readme import export_readme
from pellucid.runtime.run_reader import RunArrays, read_run

FILES = ["encoder.onnx", "decoder_step.onnx", "pellucid.json", "beam_search.py", "README.md"]


def copy_run() -> RunArrays:
    """Return the parameters of a small trained run."""
    return read_run(copy_task_run().run)


def test_files_of_an_export(tmp_path: Path) -> None:
    files = export_files(copy_run(), 17, "float32", 0.0)
    assert list(files) == FILES
    write_export(tmp_path / "new" / "folder", files)
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(FILES)
    assert (tmp_path / "new" / "folder" / "encoder.onnx").read_bytes() == files["encoder.onnx"]
    assert graph_size(files) == len(files["encoder.onnx"]) + len(files["decoder_step.onnx"])
    assert export_files(copy_run(), 17, "float32", 0.0) == files


def test_settings_are_in_the_file_and_in_both_graphs() -> None:
    run = copy_run()
    files = export_files(run, 21, "int8", 0.0)
    settings = json.loads(files["pellucid.json"])
    assert (settings["format"], settings["version"], settings["opset"]) == ("pellucid-onnx", 1, 21)
    assert settings["weights"] == "int8" and settings["copies"] is False
    assert settings["target"]["symbols"] == list(run.vocabularies.target.symbols)
    assert settings["source"]["normalization"] == run.config.data.source_normalization
    for name in ("encoder.onnx", "decoder_step.onnx"):
        model = onnx.load_from_string(files[name])
        (entry,) = model.metadata_props
        assert entry.key == "pellucid" and json.loads(entry.value) == settings
        assert model.opset_import[0].version == 21


def test_the_maximum_length_is_that_of_the_run() -> None:
    run = copy_run()
    search = exported_settings(run, 17, "float32", 0.0).search
    assert search.max_length == -(-3 * run.vocabularies.longest_target // 2) + 10
    config: Config = make_config({"search": {"max_length": 7, "beam_size": 3}})
    limited = exported_settings(replace(run, config=config), 17, "float32", 0.0)
    assert (limited.search.max_length, limited.search.beam_size) == (7, 3)


def test_8_bit_weights_are_smaller_in_a_larger_network() -> None:
    run = read_run(digits_run().run)
    sizes = [graph_size(export_files(run, 17, weights, 0.0)) for weights in ("float32", "int8")]
    stored = [
        onnx.load_from_string(export_files(run, 17, weights, 0.0)["encoder.onnx"]) for weights in ("float32", "int8")
    ]
    bytes_of_weights = [sum(len(tensor.raw_data) for tensor in model.graph.initializer) for model in stored]
    assert bytes_of_weights[1] < bytes_of_weights[0] and min(sizes) > 0


def test_the_readme_says_which_part_is_not_exported() -> None:
    run = copy_run()
    texts = [export_readme(exported_settings(run, 17, "float32", weight)) for weight in (0.0, 0.3)]
    assert "Not exported" not in texts[0]
    assert "a pair n-gram model, whose weight is 0.3" in texts[1] and "--no-pair-ngram" in texts[1]
    assert all(
        f"at most {exported_settings(run, 17, 'float32', 0.0).search.max_length} symbols" in text for text in texts
    )


def test_a_run_without_a_pair_ngram_model_has_the_weight_0() -> None:
    assert pair_ngram_weight(copy_run()) == 0
