"""Scoring of traces: which symbols are compared with which references."""

import msgspec
import numpy as np
from trained_runs import digits_run

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.decoding.trace import END, Trace
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import evaluate_examples
from pellucid.run_folder.predictor_loader import load

CHARACTERS = build_tokenizers(DataConfig())
WORDS = build_tokenizers(DataConfig(target_symbols="words"))


def make_trace(source: str, target: tuple[str, ...], features: int = 0, finished: bool = True) -> Trace:
    steps = len(target)
    return Trace(
        text=source,
        source=(*["tag"] * features, *source),
        num_features=features,
        unknown=(),
        target=target,
        output="".join(target[:-1] if finished else target),
        finished=finished,
        log_probabilities=np.zeros(steps, dtype=np.float32),
        attention=np.zeros((steps, features + len(source)), dtype=np.float32),
        top_symbols=(("a",),) * steps,
        top_log_probabilities=np.zeros((steps, 1), dtype=np.float32),
    )


def test_end_symbol_is_not_part_of_the_output() -> None:
    (scored,) = score_traces([make_trace("ab", ("x", "y", END))], [("xy",)], CHARACTERS)
    assert scored.output == ("x", "y") and scored.exact and scored.source_length == 2


def test_unfinished_output_keeps_its_last_symbol() -> None:
    (scored,) = score_traces([make_trace("ab", ("x", "y"), finished=False)], [("x",)], CHARACTERS)
    assert scored.output == ("x", "y") and scored.errors == 1


def test_an_empty_output_is_empty() -> None:
    finished, unfinished = score_traces([make_trace("ab", (END,)), make_trace("", ())], [("x",), ("x",)], CHARACTERS)
    assert finished.output == unfinished.output == () and unfinished.source_length == 0


def test_references_are_split_by_the_target_tokenizer() -> None:
    (scored,) = score_traces([make_trace("ab", ("HH", "AH", END))], [("HH  AH", "HH")], WORDS)
    assert scored.references == (("HH", "AH"), ("HH",)) and scored.exact


def test_features_do_not_count_in_the_source_length() -> None:
    (scored,) = score_traces([make_trace("abc", (END,), features=2)], [("x",)], CHARACTERS)
    assert scored.source_length == 3


def test_references_get_the_target_normalization() -> None:
    nfd = build_tokenizers(msgspec.structs.replace(DataConfig(), target_normalization="nfd"))
    (scored,) = score_traces([make_trace("e", ("e", "\u0301", END))], [("\u00e9",)], nfd)
    assert scored.exact


def test_decoded_traces_score_like_their_texts() -> None:
    transducer = load(digits_run().run)
    examples = [Example("nine one", "91"), Example("two", "2"), Example("three", "33")]
    traces = transducer.predict_examples(examples)
    scored = score_traces(traces, [(example.target,) for example in examples], transducer.tokenizers)
    assert [s.exact for s in scored] == [t.output == e.target for t, e in zip(traces, examples, strict=True)]
    assert evaluate_examples(scored).examples == 3
