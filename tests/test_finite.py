"""Finite parameters whose outputs overflow: the result is one error message and no output."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from command_line import run_pellucid, usage_error_message
from task_cases import CLASSIFICATION_TASKS, task_run
from trained_runs import TrainedRun, copy_run_folder, copy_task_run, digits_run

from pellucid.config.settings import TaskName
from pellucid.data.examples import Example
from pellucid.decoding.options import DecodingOptions
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.errors import NotFiniteError, RunError
from pellucid.inspection.attribution import attribute, input_x_gradient, occlusion
from pellucid.inspection.distributions import step_distributions
from pellucid.inspection.permutation import permute_attention
from pellucid.inspection.replay import build_replays
from pellucid.inspection.score_decomposition import decompose_scores
from pellucid.inspection.state_space import collect_states
from pellucid.inspection.states import trace_states
from pellucid.kernels.dispatch import disable_kernels
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.run_folder.model_file import parameter_file
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.run_files import ENSEMBLE
from pellucid.viewer.handlers import compare_what_if, decode_source
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import assemble_page
from pellucid.viewer.schema import DecodeRequest, ForcedAttentionRow, WhatIfRequest

PAIRS = [Example("ab", "ab"), Example("dcba", "dcb"), Example("c", "c")]


def scale_parameters(run: Path, to: Path, factor: float, names: Sequence[str] | None = None) -> Path:
    """Copy a run and multiply the named parameters (None: all of them) by a factor."""
    path = copy_run_folder(run, to) / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    path.write_bytes(parameter_file({n: v * factor if names is None or n in names else v for n, v in tensors.items()}))
    return to


def saturate_parameters(run: Path, to: Path) -> Path:
    """Copy a run, with every parameter replaced by its sign times the largest number of float32.

    Logits then overflow whatever the order in which a processor adds products. With smaller parameters, some
    processors compute finite logits.
    """
    path = copy_run_folder(run, to) / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    largest = float(np.finfo(np.float32).max)
    path.write_bytes(parameter_file({name: tensor.sign() * largest for name, tensor in tensors.items()}))
    return to


DECODING_METHODS: dict[str, Callable[[Predictor], list[list[Trace]]]] = {
    "greedy": lambda model: [model.predict_examples(PAIRS)],
    "beam": lambda model: [model.with_beam(3).predict_examples(PAIRS)],
    "list": lambda model: model.nbest_examples(PAIRS, 3),
    "search_tree": lambda model: model.with_options(DecodingOptions(search_tree=True)).nbest_examples(PAIRS, 3),
    "required": lambda model: [
        model.with_options(DecodingOptions(required=("a",))).with_beam(3).predict_examples(PAIRS)
    ],
    "samples": lambda model: model.sample_examples(PAIRS, SamplingConfig(samples=3)),
    "forced": lambda model: [model.score_examples(PAIRS)],
}


@pytest.mark.parametrize("compiled", [False, True], ids=["pytorch", "kernels"])
@pytest.mark.parametrize("method", DECODING_METHODS)
def test_every_decoding_method_names_the_run_in_its_error(tmp_path: Path, method: str, compiled: bool) -> None:
    run = saturate_parameters(copy_task_run().run, tmp_path / "run")
    if compiled:
        load_kernels()  # once the kernels are loaded, every search uses them
        with pytest.raises(RunError) as caught:
            DECODING_METHODS[method](load(run))
    else:
        with disable_kernels(), pytest.raises(RunError) as caught:
            DECODING_METHODS[method](load(run))
    assert str(caught.value).startswith(f"{run} gives numbers that are not finite")
    assert str(caught.value).endswith("; restore the model from a copy of the run, or train it again")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_outputs_are_finite_or_refused_with_and_without_kernels(tmp_path: Path, seed: int) -> None:
    """One to three parameters are multiplied by a factor of up to the maximum of float32."""
    random = np.random.default_rng(seed)
    names = sorted(safetensors.torch.load((copy_task_run().run / "model.safetensors").read_bytes()))
    scaled = random.choice(names, 1 + seed % 3, replace=False).tolist()
    model = load(scale_parameters(copy_task_run().run, tmp_path / "run", 10.0 ** random.integers(4, 39), scaled))
    load_kernels()
    for method, decode in DECODING_METHODS.items():
        for decoder in (decode, disable_kernels_in(decode)):
            try:
                traces = [trace for traces in decoder(model) for trace in traces]
            except RunError:
                continue
            for trace in traces:
                assert not np.isnan(trace.log_probabilities).any() and not np.isnan(trace.attention).any(), method
                assert not np.isnan(trace.top_log_probabilities).any() and not math.isnan(trace.score), method
                assert trace.target, method


def disable_kernels_in(decode: Callable[[Predictor], list[list[Trace]]]) -> Callable[[Predictor], list[list[Trace]]]:
    """Return the same decoding method with kernels disabled."""

    def decode_without_kernels(model: Predictor) -> list[list[Trace]]:
        with disable_kernels():
            return decode(model)

    return decode_without_kernels


@pytest.mark.parametrize("task", CLASSIFICATION_TASKS)
def test_every_task_names_the_run_in_its_error(tmp_path: Path, task: TaskName) -> None:
    run = saturate_parameters(task_run(task).run, tmp_path / "run")
    model = load(run)
    pairs = [Example("abc", {"tag": "VCC", "classify": "an a", "point": "1", "tag-and-classify": "NVCC"}[task])]
    for predict in (model.predict_examples, model.score_examples, model.distributions):  # type: ignore[attr-defined]
        with pytest.raises(RunError, match="run gives numbers that are not finite"):
            predict(pairs)


def test_an_ensemble_names_its_members_in_its_error(tmp_path: Path) -> None:
    copy_run_folder(copy_task_run().run, tmp_path / "one")
    saturate_parameters(copy_task_run().run, tmp_path / "other")
    (tmp_path / ENSEMBLE).write_text('{"members": ["one", "other"]}')
    for decode in DECODING_METHODS.values():
        with pytest.raises(RunError) as caught:
            decode(load(tmp_path))
        expected = f"{tmp_path / 'one'} with {tmp_path / 'other'} gives numbers that are not finite"
        assert str(caught.value).startswith(expected)


INSPECTIONS: dict[str, Callable[[Predictor, Trace], object]] = {
    "distributions": lambda model, trace: step_distributions(model, [trace]),
    "decomposition": lambda model, trace: decompose_scores(model, [trace]),
    "attribution": attribute,
    "occlusion": lambda model, trace: occlusion(model, next(build_replays(model, [trace]))),
    "gradient": lambda model, trace: input_x_gradient(model, next(build_replays(model, [trace]))),
    "permutation": lambda model, trace: permute_attention(model, trace, 3),
    "states": lambda model, trace: trace_states(model, [trace]),
    "gates": lambda model, trace: trace_states(model, [trace], gates=True),
    "corpus": lambda model, trace: collect_states(model, [trace]),
}


@pytest.mark.parametrize("damage", ["huge", "nan"])
@pytest.mark.parametrize("name", INSPECTIONS)
def test_every_inspection_names_the_run_in_its_error(tmp_path: Path, name: str, damage: str) -> None:
    """Regression test: inspections returned NaN for parameters with which predictions are refused."""
    run = copy_task_run().run
    (trace,) = load(run).predict(["dcba"])
    INSPECTIONS[name](load(run), trace)
    model = load(saturate_parameters(run, tmp_path / "run"))
    if damage == "nan":
        with torch.no_grad():
            for parameter in model.network.parameters():
                parameter.fill_(math.nan)
    with pytest.raises(NotFiniteError) as caught:
        INSPECTIONS[name](model, trace)
    assert str(caught.value).startswith(f"{tmp_path / 'run'} gives numbers that are not finite")


@pytest.mark.slow
def test_the_page_reports_numbers_that_are_not_finite() -> None:
    """The parameters become NaN after the page was opened; forced attention and what-if requests are refused."""
    trained = digits_run()
    opened_run = open_run(trained.run, "run", "cpu", None)
    page = assemble_page([opened_run], [read_example_file(trained.files.valid, trained.config.data)], 3, True)
    base_request = DecodeRequest(text="one", attribution=True, states=True)
    row = ForcedAttentionRow(step=0, weights=[1.0, 0.0, 0.0])
    forced_request = msgspec.structs.replace(base_request, forced_attention=[row])
    requests: list[Callable[[], Any]] = [
        lambda: decode_source(page, forced_request),
        lambda: compare_what_if(page, WhatIfRequest(before=base_request, after=forced_request)),
        lambda: compare_what_if(page, WhatIfRequest(before=forced_request, after=base_request)),
    ]
    for request in requests:
        request()
    with torch.no_grad():
        for parameter in opened_run.loaded_predictor.network.parameters():
            parameter.fill_(math.nan)
    for request in requests:
        with pytest.raises(NotFiniteError, match="gives numbers that are not finite"):
            request()


def test_a_finite_model_is_not_affected() -> None:
    """Probabilities of zero are valid, as of symbols that search suppresses."""
    model = load(digits_run().run)
    assert all(len(each) == 3 for each in model.nbest_examples([Example("one", ""), Example("two three", "")], 3))
    assert [np.isneginf(each).any() for each in step_distributions(model, model.predict(["one"]))] == [True]


def decoding_commands(trained: TrainedRun, run: Path, to: Path) -> list[list[object]]:
    """Return one command line for each way in which a subcommand decodes."""
    valid_file = trained.files.valid
    return [
        *(
            ["predict", run, valid_file, *flags]
            for flags in ([], ["--beam-size", 3], ["--sample", 2], ["--output-format", "jsonl"])
        ),
        *(["score", run, valid_file], ["evaluate", run, valid_file], ["evaluate", run, valid_file, "--json"]),
        *(["look", run, valid_file, "--terminal"], ["look", run, valid_file, "--export", to / "a.html"]),
        ["look", run, valid_file, "--export", to / "a.svg"],
    ]


def test_every_subcommand_names_the_run_and_prints_no_score(tmp_path: Path) -> None:
    run = saturate_parameters(copy_task_run().run, tmp_path / "run")
    for command in decoding_commands(copy_task_run(), run, tmp_path):
        result = run_pellucid(*command)
        last_message = result._replace(err=result.err[result.err.rindex("pellucid: ") :])
        assert usage_error_message(last_message).startswith(f"{run} gives numbers that are not finite"), command
        assert result.out == "" and "nan" not in result.err and not (tmp_path / "a.html").exists()
