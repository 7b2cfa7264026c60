"""Equations of networks: their parameters, their scores against the modules, and their agreement with the documents."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from small_networks import configs_with_options, few_examples, make_config, make_vocabularies, randomize_parameters
from task_cases import CLASSIFICATION_TASKS
from torch import Tensor
from untrained_models import MODEL_SETTINGS

from pellucid.config.attention_types import ATTENTION_TYPES, BUILT_IN_TYPES
from pellucid.config.settings import AttentionConfig, Config
from pellucid.data.vocabulary import Vocabularies
from pellucid.model.attention import ATTENTIONS, build_attention
from pellucid.model.cells import CELLS
from pellucid.model.equations import (
    ATTENTION_EQUATIONS,
    CELL_RESULTS,
    GATES,
    EquationGroup,
    VocabularySizes,
    attention_equations,
    transducer_equations,
)
from pellucid.model.memory import DecoderState, Memory
from pellucid.model.network import parameter_count
from pellucid.tasks.registry import build_network, get_task
from pellucid.viewer.mathml import to_mathml

DOCS = Path(__file__).parents[1] / "docs"
FURTHER_SETTINGS: dict[str, dict[str, Any]] = {
    **MODEL_SETTINGS,
    "convolutions": {"encoder": {"convolutions": [3, 4], "filters": 5}},
    "copying after attention": {
        "decoder": {"pointer_generator": True, "order": "step-then-attend", "output_layer_inputs": "context"}
    },
    "characters": {"data": {"source_symbols": "words"}, "encoder": {"characters": "convolution", "character_size": 5}},
    "characters and convolutions": {
        "data": {"source_symbols": "words"},
        "encoder": {"characters": "gru", "character_size": 5, "convolutions": [3], "filters": 2},
    },
    "mean": {"attention": {"type": "none"}, "decoder": {"init_hidden": "mean"}},
}


def network_equations(config: Config, vocabularies: Vocabularies) -> list[EquationGroup]:
    """Return the equations of the network of a configuration."""
    sizes = VocabularySizes(len(vocabularies.source), len(vocabularies.target))
    return get_task(config.task).equations(config, sizes)


def collect_equations(config: Config) -> list[str]:
    """Return the equations of a network in LaTeX."""
    return [equation for group in network_equations(config, make_vocabularies()) for equation in group.equations]


def assert_equations_have_all_parameters(config: Config) -> None:
    """Assert that the symbols hold as many parameters as the network, and that all formulas are MathML."""
    vocabularies = make_vocabularies()
    groups = network_equations(config, vocabularies)
    counted = sum(symbol.num_parameters for group in groups for symbol in group.symbols)
    assert counted == parameter_count(build_network(config, vocabularies))
    for group in groups:
        for latex in [*group.equations, *(symbol.latex for symbol in group.symbols)]:
            ElementTree.fromstring(to_mathml(latex))


def test_every_attention_and_every_cell_has_equations() -> None:
    assert set(ATTENTION_EQUATIONS) == set(ATTENTIONS) == set(BUILT_IN_TYPES)
    assert set(GATES) == set(CELL_RESULTS) == set(CELLS)
    assert {cell: len(gates) for cell, gates in GATES.items()} == {cell: len(CELLS[cell].gates) for cell in CELLS}


@few_examples
@given(configs_with_options())
def test_symbols_hold_all_parameters_of_any_network(config: Config) -> None:
    assert_equations_have_all_parameters(config)


@pytest.mark.parametrize("order", ["attend-then-step", "step-then-attend"])
@pytest.mark.parametrize("attention_type", ATTENTIONS)
def test_symbols_hold_all_parameters_of_each_attention_and_order(attention_type: str, order: str) -> None:
    config = make_config({"attention": {"type": attention_type}, "decoder": {"order": order}})
    assert_equations_have_all_parameters(config)
    query = "s_{t-1}" if order == "attend-then-step" else "s_t"
    score = next((each for each in collect_equations(config) if each.startswith("e_{ts} = ")), query)
    assert query in score


@pytest.mark.parametrize("kind", FURTHER_SETTINGS)
def test_symbols_hold_all_parameters_of_further_networks(kind: str) -> None:
    assert_equations_have_all_parameters(make_config(FURTHER_SETTINGS[kind]))


@pytest.mark.parametrize("settings", [{}, {"decoder": {"num_hops": 3, "order": "step-then-attend"}}])
@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_symbols_hold_all_parameters_of_other_tasks(task: str, settings: dict[str, Any]) -> None:
    config = make_config({"task": task, **settings})
    assert_equations_have_all_parameters(config)
    result = {"tag": "p_s = ", "classify": "p = ", "point": "p(s) = ", "tag-and-classify": "p_s = "}[task]
    assert any(equation.startswith(result) for equation in collect_equations(config))


def test_equations_of_the_class_are_those_of_the_documents() -> None:
    equations = collect_equations(make_config({}))
    teachers = (DOCS / "users" / "teachers.md").read_text(encoding="utf-8")
    table = teachers[teachers.index("| | the class (`--size tiny`)") :].partition("\n\n")[0].splitlines()[2:]
    cells = {row.split(" | ")[0].strip("| "): row.split(" | ")[1] for row in table}
    for part in ("initial state", "score", "weights", "context", "decoder state", "output"):
        assert re.findall(r"\$(.+?)\$", cells[part])[0] in equations, part
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    for equation in equations:
        if equation.startswith(("e_{ts} = ", r"\alpha_t = ", "c_t = ")):
            assert f"${equation}$" in glossary, equation


def test_orders_differ_in_query_input_and_output() -> None:
    step_first = collect_equations(make_config({"decoder": {"order": "step-then-attend", "input_feeding": True}}))
    assert {
        "a_0 = 0",
        r"s_t = \mathrm{GRU}([y_{t-1}; a_{t-1}], s_{t-1})",
        r"e_{ts} = v^\top \tanh(W s_t + U h_s + b)",
        r"a_t = \tanh(W_c [s_t; c_t])",
        r"p_t = \mathrm{softmax}(W_o a_t + b_o)",
    } < set(step_first)
    stacked = collect_equations(make_config({"decoder": {"num_layers": 2, "layer_normalization": "outputs"}}))
    assert {
        r"e_{ts} = v^\top \tanh(W s_{t-1}^{(2)} + U h_s + b)",
        r"s_t^{(l)} = \mathrm{GRU}(\tilde{s}_t^{(l-1)}, s_{t-1}^{(l)}) \quad (l > 1)",
        r"\tilde{s}_t^{(l)} = \mathrm{LN}(s_t^{(l)})",
        r"p_t = \mathrm{softmax}(W_o [\tilde{s}_t^{(2)}; c_t] + b_o)",
    } < set(stacked)


Score = Callable[[Any, Tensor, Tensor], Tensor]
SCORES: dict[str, Score] = {
    r"e_{ts} = v^\top \tanh(W q + U h_s + b)": lambda a, q, h: (
        a.energy @ torch.tanh(a.query_projection.weight @ q + a.key_projection.weight @ h + a.key_projection.bias)
    ),
    r"e_{ts} = q^\top h_s": lambda a, q, h: q @ h,
    r"e_{ts} = q^\top W h_s": lambda a, q, h: q @ a.key_projection.weight @ h,
    r"e_{ts} = \frac{q^\top h_s}{\sqrt{D}}": lambda a, q, h: q @ h / len(h) ** 0.5,
    r"e_{ts} = g \frac{v^\top}{\| v \|} \tanh(W q + U h_s + b) + r": lambda a, q, h: (
        a.gain
        * (a.energy / a.energy.norm())
        @ torch.tanh(a.query_projection.weight @ q + a.key_projection.weight @ h + a.key_projection.bias)
        + a.offset
    ),
    # L f_ts is zero at the first step, where the previous weights are zero.
    r"e_{ts} = v^\top \tanh(W q + U h_s + b + L f_{ts})": lambda a, q, h: (
        a.energy @ torch.tanh(a.query_projection.weight @ q + a.key_projection.weight @ h + a.key_projection.bias)
    ),
}
"""Each score in LaTeX, and the same score of one query q and one state h by the parameters of the module."""


@pytest.mark.parametrize("attention_type", [name for name in ATTENTIONS if name != "none"])
def test_scores_are_those_of_the_modules(attention_type: str) -> None:
    config = AttentionConfig(type=attention_type, size=4)
    attention = build_attention(config, 3, 3).double().eval()
    randomize_parameters(attention, 1)
    states = torch.randn(1, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    query, memory = states[:, 0] + 1, Memory(states, torch.tensor([5]), DecoderState(states[:, :1]))
    output = attention(query, attention.build_cache(memory), attention.initial_attention_state(memory))
    equations = attention_equations(config, "q", 3, 3).equations
    (latex,) = (equation for equation in equations if equation.startswith("e_{ts}"))
    scores = torch.stack([SCORES[latex](attention, query[0], state) for state in states[0]])
    if attention_type == "monotonic":
        opened = [position for position in range(5) if scores[position] > 0]
        expected = torch.eye(5, dtype=torch.float64)[opened[0]] if opened else torch.zeros(5, dtype=torch.float64)
    else:
        expected = torch.softmax(scores, dim=0)
    assert torch.allclose(output.weights[0], expected)
    assert torch.allclose(output.context[0], expected @ states[0])


def test_attention_of_another_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTENTION_TYPES.registered, "mine", object())
    group = attention_equations(AttentionConfig(type="mine", size=4), "s_t", 3, 3)
    assert group.equations == [r"c_t = \mathrm{attention}(s_t, h_1, \ldots, h_S)"] and "“mine”" in group.note


def test_sizes_are_read_as_text() -> None:
    symbols = {
        symbol.latex: symbol
        for group in transducer_equations(make_config({}), VocabularySizes(7, 9))
        for symbol in group.symbols
    }
    assert symbols["W"].size == "32 × 32" and symbols["W"].num_parameters == 1024
    assert symbols["W_r, W_z, W_n"].size == "3 of 32 × 48" and symbols["c_t"].num_parameters == 0
