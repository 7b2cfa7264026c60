"""pellucid export --html: the stored parameters, the data of the page, messages, and the committed models."""

import base64
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest
from command_line import run_pellucid
from page_data import digits_page_data
from task_cases import task_run
from trained_runs import digits_run
from web_model_references import FILE, model_references

from pellucid.decoding.trace_schema import EncodedArray, decode_array
from pellucid.decoding.transducer import require_transducer
from pellucid.errors import ConfigError
from pellucid.export.stored_parameters import Precision, StoredParameters, store_parameters
from pellucid.export.web_page import (
    MODEL_ELEMENT,
    MODEL_FORMAT,
    SETTINGS,
    ModelPage,
    build_model_page,
    built_model_page,
    render_model_page,
)
from pellucid.viewer.inputs import ViewedRun

ROOT = Path(__file__).parent.parent
SITE_MODEL = ROOT / "docs" / "model.json"
MAX_SITE_PAGE = 500_000


def digits_viewed_run() -> ViewedRun:
    """Return the digits run."""
    return digits_page_data().runs[0]


def read_parameters(stored: StoredParameters) -> dict[str, np.ndarray]:
    """Return parameters as web/src/model/modelFile.ts reads them."""
    content, start, arrays = zlib.decompress(base64.b64decode(stored.data), -zlib.MAX_WBITS), 0, {}

    def take(count: int, dtype: str) -> np.ndarray:
        nonlocal start
        size = np.dtype(dtype).itemsize
        planes = np.frombuffer(content, np.uint8, count * size, start).reshape(size, count)
        start += count * size
        return np.ascontiguousarray(planes.T).view(dtype).ravel().astype(np.float32)

    for array in stored.arrays:
        count, rows = int(np.prod(array.shape)), array.shape[0] if array.shape else 1
        if array.kind == "int8":
            scales = take(rows, ">f4")
            values = (take(count, "i1").reshape(rows, -1) * scales[:, None]).ravel()
        else:
            values = take(count, ">f4" if array.kind == "float32" else ">f2")
        arrays[array.name] = values.reshape(array.shape)
    assert start == len(content)
    return arrays


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 0.0), ("float16", 1e-3), ("int8", 5e-3)])
def test_stored_parameters_are_those_of_the_network(precision: Precision, tolerance: float) -> None:
    generator = np.random.default_rng(1)
    arrays = {
        "matrix": generator.uniform(-1, 1, (5, 7)).astype(np.float32),
        "zeros": np.zeros((2, 3), np.float32),
        "filters": generator.uniform(-1, 1, (2, 3, 4)).astype(np.float32),
        "bias": generator.normal(size=6).astype(np.float32),
        "gain": np.array(0.1, np.float32),
    }
    read = read_parameters(store_parameters(arrays, precision))
    assert read.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_allclose(read[name], values, rtol=0, atol=tolerance if values.ndim > 1 else 0)


def test_the_page_declares_the_settings_that_it_gets() -> None:
    text = (Path(__file__).parents[1] / "web/src/model/modelFile.ts").read_text("utf-8")
    declaration = re.search(r"interface ModelSettings {\n(.*?)\n}\n", text, re.DOTALL)
    assert declaration is not None
    sections = re.findall(r"^  readonly (\w+): {(.*?)};$", declaration[1], re.DOTALL | re.MULTILINE)
    declared = {name: sorted(re.findall(r"readonly (\w+):", fields)) for name, fields in sections}
    assert declared == {name: sorted(keys) for name, keys in SETTINGS.items()}


def test_numbers_too_large_for_float16_are_refused() -> None:
    with pytest.raises(ConfigError, match="'m' has a number that is too large for float16: use --weights float32"):
        store_parameters({"m": np.full((1, 1), 1e5, np.float32)}, "float16")


@pytest.mark.parametrize("precision", get_args(Precision))
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_model_with_numbers_that_are_not_finite_is_refused(precision: Precision, number: float) -> None:
    for shape in ((2, 3), (2,)):
        with pytest.raises(ConfigError, match=r"^'m' has a number that is infinite or NaN"):
            store_parameters({"m": np.full(shape, number, np.float32)}, precision)


def test_text_cannot_close_the_element_of_the_data() -> None:
    run = replace(digits_viewed_run(), name="</script><script>alert(1)</script>")
    page = render_model_page(build_model_page([run], "float32", "one <!-- two"))
    before, after = built_model_page().split(MODEL_ELEMENT)
    assert page.startswith(before) and page.endswith(after)
    data = page[len(before) : len(page) - len(after)]
    assert data.count("<") == 2 and msgspec.json.decode(data[data.index(">") + 1 : data.rindex("<")])["models"]


def test_security_policy_forbids_requests_and_other_scripts() -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', built_model_page())
    directives = dict(directive.split(" ", 1) for directive in policy.split("; "))
    assert directives["default-src"] == "'none'" and directives["connect-src"] == "'none'"
    sources = directives["script-src"].split()
    assert sources.pop() == "'wasm-unsafe-eval'" and all(source.startswith("'sha256-") for source in sources)


def test_export_writes_one_run_or_two(tmp_path: Path) -> None:
    run, file = digits_run().run, tmp_path / "model.html"
    result = run_pellucid("export", run, run, "--html", file, "--weights", "float16", "--source", "one two")
    assert result.code == 0 and result.err == ""
    assert re.fullmatch(rf"{re.escape(str(file))}: 0\.\d\d MB, parameters in float16\n", result.out)
    page = file.read_text("utf-8")
    data = page[page.index('id="model">') + len('id="model">') :].partition("</script>")[0]
    stored = msgspec.json.decode(data, type=ModelPage)
    assert stored.text == "one two" and [model.name for model in stored.models] == stored.title.split(" and ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "export needs one format: --onnx DIR or --html FILE"),
        (("--onnx", "x", "--html", "x.html"), "export needs one format"),
        (("--onnx", "x", "--source", "one"), "a second run, --source and --weights need --html FILE"),
        (
            ("--html", "x.html", "--int8"),
            "--opset, --int8, --check, --max-drop and the columns of a file need --onnx DIR",
        ),
        (("--html", "missing/x.html"), "missing"),
    ],
)
def test_wrong_flags_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = run_pellucid("export", digits_run().run, *arguments)
    assert result.code == 2 and message in result.err and "Traceback" not in result.err


def test_runs_that_the_page_does_not_support_are_refused(tmp_path: Path) -> None:
    result = run_pellucid("export", task_run("tag").run, "--html", tmp_path / "x.html")
    assert result.code == 2
    assert "the web page does not support task: only 'transduce' is supported, and this is 'tag'" in result.err
    predictor = require_transducer(digits_viewed_run().loaded_predictor, "run")
    data = msgspec.structs.replace(predictor.config.data, source_symbols="subwords")
    subwords = replace(predictor, config=msgspec.structs.replace(predictor.config, data=data))
    with pytest.raises(ConfigError, match=r"does not support data.source_symbols: 'subwords' need"):
        build_model_page([replace(digits_viewed_run(), predictor=subwords)], "float32", "one")


def assert_same(actual: object, expected: object, place: str = "") -> None:
    """Assert that two JSON values are equal, except for the rounding of numbers."""
    if isinstance(expected, dict) and {*expected} == {"shape", "data"}:
        assert isinstance(actual, dict)
        values, expected_values = (decode_array(msgspec.convert(value, EncodedArray)) for value in (actual, expected))
        np.testing.assert_allclose(values, expected_values, atol=1e-3, err_msg=place)
    elif isinstance(expected, dict):
        assert isinstance(actual, dict) and actual.keys() == expected.keys(), place
        for key in expected.keys() - {"parameters", "alignment"}:
            assert_same(actual[key], expected[key], f"{place}.{key}")
    elif isinstance(expected, list):
        assert isinstance(actual, list) and len(actual) == len(expected), place
        for index, pair in enumerate(zip(actual, expected, strict=True)):
            assert_same(*pair, f"{place}[{index}]")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-3), place
    else:
        assert actual == expected, place


@pytest.mark.slow
def test_references_of_the_web_tests_are_current() -> None:
    stored = msgspec.json.decode(FILE.read_bytes())
    current = msgspec.json.decode(msgspec.json.encode(model_references()))
    assert_same(current, stored)


def test_model_of_the_site_is_current_and_small() -> None:
    model = msgspec.json.decode(SITE_MODEL.read_bytes(), type=ModelPage)
    assert model.format == MODEL_FORMAT
    assert len(render_model_page(model).encode()) < MAX_SITE_PAGE
    (stored,) = model.models
    arrays = read_parameters(StoredParameters(arrays=stored.arrays, data=stored.parameters))
    assert all(np.isfinite(values).all() for values in arrays.values())
