"""export/beam_search.py: the stand-alone beam search gives the outputs of the package's own search."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_networks import make_float_network, network_arrays
from small_networks import make_config, make_vocabularies
from trained_runs import copy_task_run

from pellucid.config.settings import Config
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.export import beam_search
from pellucid.export.beam_search import OnnxModel, OnnxOutput
from pellucid.export.onnx_export import export_files, write_export
from pellucid.runtime.run_reader import read_run

VOCABULARIES = make_vocabularies(features=("F", "G"))
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4},
    "short": {"beam_size": 3, "max_length": 3},
    "long": {"beam_size": 3, "min_length": 4, "max_length": 7},
    "ratios": {"max_length_ratio": 1.5, "max_length_offset": -1, "min_length_ratio": 0.25},
    "average": {"length_normalization": "average", "max_length": 8},
    "gnmt": {"length_normalization": "gnmt", "length_penalty_alpha": 1.3, "max_length": 8},
    "coverage": {"coverage_penalty": 0.4, "length_normalization": "average", "max_length": 8},
}
DECODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "copying": {"pointer_generator": True},
    "input feeding": {"order": "step-then-attend", "input_feeding": True, "cell": "lstm"},
}
SOURCES = ["a", "abcde", "edcba", "aabbccdd", "xyz", "", "axbxc"]


def small_config(**settings: dict[str, Any]) -> Config:
    """Return a small configuration with features in the third column."""
    sizes = {"encoder": {"hidden_size": 6}, "attention": {"size": 8}, "decoder": {"hidden_size": 12}}
    tables = {name: {**sizes.get(name, {}), **settings.get(name, {})} for name in (*sizes, "search", "data")}
    return make_config({**tables, "data": {"features_column": "3", **tables["data"]}})


def export_model(folder: Path, config: Config, seed: int) -> tuple[Transducer, OnnxModel]:
    """Return the predictor of a random network, and the same network exported to a folder."""
    network = make_float_network(config, seed, VOCABULARIES)
    arrays = network_arrays(network, config, VOCABULARIES)
    run = replace(read_run(copy_task_run().run), config=config, vocabularies=VOCABULARIES, network=arrays)
    write_export(folder, export_files(run, 17, "float32", 0.0))
    return Transducer(config, VOCABULARIES, network), OnnxModel(folder)


def assert_equal_outputs(output: OnnxOutput, trace: Trace) -> None:
    """Assert that an output and a trace have equal symbols, log-probabilities and attention weights."""
    assert (output.text, output.symbols) == (trace.output, list(trace.symbols))
    assert output.log_probability == pytest.approx(trace.score, abs=2e-5)
    if trace.source:
        np.testing.assert_allclose(output.attention, trace.attention, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
def test_outputs_are_those_of_the_package(search: dict[str, Any], decoder: dict[str, Any], tmp_path: Path) -> None:
    predictor, model = export_model(tmp_path, small_config(search=search, decoder=decoder), 3)
    for trace, source in zip(predictor.predict(SOURCES), SOURCES, strict=True):
        assert_equal_outputs(model.decode(source)[0], trace)


@pytest.mark.parametrize("search", [SEARCHES["beam"], SEARCHES["gnmt"]])
def test_nbest_lists_are_those_of_the_package(search: dict[str, Any], tmp_path: Path) -> None:
    predictor, model = export_model(tmp_path, small_config(search=search), 4)
    for traces, source in zip(predictor.nbest(SOURCES[:4], 6), SOURCES, strict=False):
        outputs = model.decode(source, nbest=6)
        assert len(outputs) == len(traces)
        for output, trace in zip(outputs, traces, strict=True):
            assert_equal_outputs(output, trace)


def test_features_precede_the_source(tmp_path: Path) -> None:
    predictor, model = export_model(tmp_path, small_config(decoder={"pointer_generator": True}), 5)
    features = ["F;G", "", "G", "H"]
    for trace, source, tags in zip(predictor.predict(SOURCES[1:5], features), SOURCES[1:5], features, strict=True):
        assert_equal_outputs(model.decode(source, tags)[0], trace)


def test_beam_size_of_the_call_replaces_that_of_the_run(tmp_path: Path) -> None:
    predictor, model = export_model(tmp_path, small_config(search={"beam_size": 1}), 6)
    assert model.decode("abcde", beam_size=5)[0].log_probability >= model.decode("abcde")[0].log_probability
    assert model.decode("abcde")[0].text == predictor.predict(["abcde"])[0].output


@pytest.mark.parametrize(
    ("kind", "text", "symbols"),
    [
        ("characters", "e\u0301a", ["\u00e9", "a"]),
        ("ipa", "t͡ʃˈao\u0303ː", ["t͡ʃ", "ˈ", "a", "õː"]),
        ("ipa", "", []),
        ("words", " a  b ", ["a", "b"]),
        ("whole", "a b", ["a b"]),
        ("+", "a+b++", ["a", "b", "", ""]),
        ("+", "", []),
    ],
)
def test_texts_are_divided_as_in_training(kind: str, text: str, symbols: list[str]) -> None:
    assert beam_search._split(text, {"kind": kind, "normalization": "nfc"}) == symbols


def test_sources_that_the_network_cannot_read_are_refused(tmp_path: Path) -> None:
    _, model = export_model(tmp_path, small_config(data={"max_sequence_length": 6}), 1)
    with pytest.raises(ValueError, match="more than 6 symbols"):
        model.decode("aaaaaaa")
    model.settings["features"]["symbols"] = []
    with pytest.raises(ValueError, match="without features"):
        model.decode("a", "F")
    (tmp_path / "pellucid.json").write_text('{"format": "pellucid-onnx", "version": 2}')
    with pytest.raises(ValueError, match="of version 1"):
        OnnxModel(tmp_path)


def test_the_copied_file_runs_without_the_package(tmp_path: Path) -> None:
    predictor, _ = export_model(tmp_path, small_config(), 7)
    sources = [source for source in SOURCES if source]
    (tmp_path / "words.txt").write_text("".join(f"{source}\n" for source in sources), "utf-8")
    command = [sys.executable, "beam_search.py", ".", "words.txt", "--nbest", "2"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    expected = ["\t".join(trace.output for trace in traces) for traces in predictor.nbest(sources, 2)]
    assert result.stdout.splitlines() == expected


def test_the_file_is_short_and_imports_nothing_of_the_package() -> None:
    text = Path(beam_search.__file__).read_text("utf-8")
    assert len(text.splitlines()) < 320 and "from pellucid" not in text and "import pellucid" not in text
