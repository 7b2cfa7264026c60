"""A custom attention, the class of the page on attention scores, in a package that is installed for some processes.

The package is a module and the metadata that an installation writes; Pellucid itself is not changed.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch
from command_line import CommandResult, build_command, build_environment
from guide_examples import ROOT, python_blocks
from hypothesis import given
from small_networks import (
    SEEDS,
    assert_tensors_close,
    batches,
    few_examples,
    make_config,
    make_network,
    make_vocabularies,
)
from torch import Tensor
from trained_runs import (
    TrainedRun,
    assert_training_resumes,
    make_small_config,
    train_to_end,
    write_copy_files,
    write_digit_files,
)

import pellucid
from pellucid.config.attention_types import ATTENTION_TYPES, BUILT_IN_TYPES
from pellucid.config.settings import AttentionConfig, Config
from pellucid.config.toml import build_config, override_settings, to_toml
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.errors import ArgumentError, ConfigError
from pellucid.inspection.score_decomposition import decompose_scores
from pellucid.kernels.dispatch import NUMBA, TORCH, choose_backend, disable_kernels
from pellucid.model.attention import Attention, DotProductAttention
from pellucid.model.memory import AttentionOutput, DecoderCache, Memory
from pellucid.model.network import require_encoder_decoder
from pellucid.tasks.registry import build_network
from pellucid.tuning.space import load_space

PAGE = ROOT / "docs" / "extend" / "attention.md"
ENTRY_POINT = re.compile(r"<!-- entry point -->\n```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)```", re.DOTALL)


@cache
def load_module() -> Any:  # noqa: ANN401 (a module)
    """Return the module of the page."""
    spec = importlib.util.spec_from_loader("my_attention", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(python_blocks(PAGE)[0], vars(module))
    return module


def install_package(folder: Path) -> Path:
    """Write the package of the page as an installation does, and return the folder to search for modules."""
    ((group, entries),) = ENTRY_POINT.findall(PAGE.read_text("utf-8"))
    metadata = folder / "my_attention-1.dist-info"
    metadata.mkdir(parents=True)
    (folder / "my_attention.py").write_text(python_blocks(PAGE)[0], "utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-attention\nVersion: 1\n", "utf-8")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n" + entries.replace('"', ""), "utf-8")
    return folder


def run_command(*arguments: object, package: Path | None = None) -> CommandResult:
    """Run a subcommand in a new process in which a package is installed."""
    folders = [*sys.path, *([str(package)] if package is not None else [])]
    environment = build_environment({"PYTHONPATH": os.pathsep.join(folders)})
    process = subprocess.run(build_command(*arguments), capture_output=True, text=True, env=environment, check=False)
    return CommandResult(process.returncode, process.stdout, process.stderr)


@pytest.fixture(scope="module", autouse=True)
def registered_attention() -> Iterator[None]:
    """Register the attention for the tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ATTENTION_TYPES, "registered", {})
        pellucid.register_attention("cosine", load_module().CosineAttention)
        yield


def make_cosine_config(**sections: dict[str, Any]) -> Config:
    """Return a small configuration with the custom attention."""
    return override_settings(make_small_config({"epochs": 3}), {"attention": {"type": "cosine"}, **sections})


@pytest.fixture(scope="module")
def trained(registered_attention: None, tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """Train a run with the custom attention to copy its source."""
    folder = tmp_path_factory.mktemp("cosine")
    files, training = write_digit_files(folder), {"epochs": 30, "learning_rate": 0.02, "eval_interval": 30}
    run = TrainedRun(files, folder / "run", make_cosine_config(training=training))
    train_to_end(run.files, run.run, run.config)
    return run


def test_greedy_search_equals_a_beam_of_one_and_a_loaded_run_predicts_the_same(trained: TrainedRun) -> None:
    model = pellucid.load(trained.run)
    assert isinstance(model, pellucid.Transducer) and model.config.attention.type == "cosine"
    sources = ["12", "7", "40", "3"]
    greedy, beam = model.with_beam(1).predict(sources), model.with_beam(4).predict(sources)
    with disable_kernels():
        plain = model.with_beam(1).predict(sources)
    assert [trace.output for trace in plain] == [trace.output for trace in greedy]
    assert [trace.score for trace in plain] == pytest.approx([trace.score for trace in greedy], abs=1e-4)
    best = [traces[0] for traces in model.with_beam(4).nbest(sources, 4)]
    assert [trace.output for trace in best] == [trace.output for trace in beam]
    for trace, other in zip(greedy, beam, strict=True):
        assert trace.score <= other.score + 1e-5
        assert abs(trace.attention.sum(axis=1) - 1).max() < 1e-5
    ensemble = pellucid.load([trained.run, trained.run]).with_beam(1).predict(sources)
    assert [trace.output for trace in ensemble] == [trace.output for trace in greedy]
    scored = model.score_examples(
        [Example(source, trace.output) for source, trace in zip(sources, greedy, strict=True)]
    )
    assert [trace.score for trace in scored] == pytest.approx([trace.score for trace in greedy], abs=1e-4)
    assert sum(decompose_scores(model, greedy)) == pytest.approx(1)


def test_the_card_names_the_class_and_its_settings(trained: TrainedRun) -> None:
    card = (trained.run / "card.md").read_text("utf-8")
    assert (
        "Needs the class of the attention type 'cosine', registered with pellucid.register_attention(name, cl" in card
    )
    attention = trained.config.attention
    assert f"* Attention: cosine of another package, which may read: size {attention.size}, filters" in card


def test_training_resumes_bit_for_bit(tmp_path: Path) -> None:
    files, config = write_copy_files(tmp_path), make_cosine_config(decoder={"dropout": 0.3})
    assert_training_resumes(files, config, tmp_path, update=7)


@pytest.mark.slow
@few_examples
@given(batches(), SEEDS)
def test_batches_and_padding_change_nothing_and_every_parameter_has_a_gradient(batch: Batch, seed: int) -> None:
    config = make_config(
        {"encoder": {"hidden_size": 2}, "decoder": {"hidden_size": 3}, "attention": {"type": "cosine"}}
    )
    network = make_network(config, seed)
    output = network(batch)
    for row, (length, target_length) in enumerate(
        zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
    ):
        alone = network(
            Batch(
                batch.source[row : row + 1, :length],
                batch.source_lengths[row : row + 1],
                batch.target[row : row + 1, :target_length],
                batch.target_lengths[row : row + 1],
            )
        )
        assert_tensors_close(output.logits[row, :target_length], alone.logits[0])
        assert_tensors_close(output.weights[row, :target_length, :length], alone.weights[0])
        assert not output.weights[row, :, length:].any()
    output.logits.pow(2).sum().backward()
    gain = network.decoder.attention.get_parameter("gain")
    assert gain.grad is not None and bool(gain.grad.isfinite())


class QueryKeyAttention(DotProductAttention):
    """Dot product of query and projected states, whose kind says that the kernel of dot products computes it."""

    kind: ClassVar[str] = "dot"

    def __init__(self, *, query_size: int, memory_size: int, config: AttentionConfig) -> None:
        super().__init__()
        self.projection = torch.nn.Linear(memory_size, query_size, bias=False)

    def keys(self, memory: Memory) -> Tensor:
        """Return the projected states."""
        keys: Tensor = self.projection(memory.states)
        return keys


def test_kernels_compute_a_class_only_if_it_declares_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTENTION_TYPES.registered, "query-key", QueryKeyAttention)
    source = torch.tensor([[4, 5, 6], [7, 8, 0]])
    lengths = torch.tensor([3, 2])
    batch = Batch(source, lengths, torch.tensor([[4, 5, 2], [7, 2, 0]]), torch.tensor([3, 2]))
    for name, backend in (("cosine", TORCH), ("query-key", NUMBA)):
        network = make_network(make_config({"attention": {"type": name}}), 1, torch.float32)
        cache = network.decoder.build_cache(network.encoder(source, lengths))
        assert choose_backend(network.decoder.request("unroll", cache)) is backend
        parameters, results = list(network.parameters()), list[list[Tensor]]()
        for plain in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PELLUCID_PLAIN", str(int(plain)))
                output = network(batch)
                loss = output.logits.square().sum() + output.weights.square().sum()
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                results.append([output.logits, *(each for each in gradients if each is not None)])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one / other.abs().max(), other / other.abs().max(), rtol=0, atol=1e-4)


class WeightlessAttention(Attention):
    """Context of the last real state, without weights; it reads the number of heads."""

    has_weights: ClassVar[bool] = False
    uses_softmax: ClassVar[bool] = False

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.num_heads = config.num_heads

    def keys(self, memory: Memory) -> Tensor:
        """Return keys of size 0."""
        return memory.states[:, :, :0]

    def forward(
        self, query: Tensor, cache: DecoderCache, attention_state: Tensor | None, forced_weights: Tensor | None = None
    ) -> AttentionOutput:
        """Return the last state of each source."""
        states, lengths = cache.memory.states, cache.memory.lengths
        last = states[torch.arange(len(states)), lengths - 1].repeat_interleave(len(query) // len(states), dim=0)
        return AttentionOutput(last, states.new_zeros(len(query), states.shape[1]))


def test_other_settings_depend_on_the_properties_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTENTION_TYPES.registered, "weightless", WeightlessAttention)
    config = build_config({"attention": {"type": "weightless", "size": 6, "num_heads": 3, "filters": 4}}, "a test")
    attention = require_encoder_decoder(build_network(config, make_vocabularies())).decoder.attention
    assert isinstance(attention, WeightlessAttention) and attention.num_heads == 3
    for settings in ({"training": {"coverage_loss": 0.2}}, {"decoder": {"pointer_generator": True}}):
        build_config({"attention": {"type": "cosine"}, **settings}, "a test")
        with pytest.raises(ConfigError, match="needs attention weights"):
            build_config({"attention": {"type": "weightless"}, **settings}, "a test")
    build_config({"attention": {"type": "cosine"}, "task": "point"}, "a test")
    message = "task = 'point' needs an attention whose weights are a softmax, got 'weightless'"
    with pytest.raises(ConfigError, match=message):
        build_config({"attention": {"type": "weightless"}, "task": "point"}, "a test")


def test_unknown_names_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    known = f"{', '.join(BUILT_IN_TYPES)} or cosine"
    message = f"attention.type: expected {known}, got 'cosin'; did you mean 'cosine'"
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_config({"attention": {"type": "cosin"}}, "a test")
    with pytest.raises(ConfigError, match="expected additive, location"):
        build_config({"attention": {"type": 1}}, "a test")
    with pytest.raises(ConfigError, match="got 'stay-or-move'; the attention type of another package is known once"):
        build_config({"attention": {"type": "stay-or-move"}}, "a test")
    space = tmp_path / "space.toml"
    for choice in ("cosine", "cosin"):
        space.write_text(f'[attention.type]\nchoices = ["additive", "{choice}"]\n', "utf-8")
        if choice == "cosine":
            (dimension,) = load_space(space, make_config({})).searched
            assert dimension.key == "attention.type"
        else:
            with pytest.raises(ConfigError, match=re.escape(message)):
                load_space(space, make_config({}))


def test_a_run_whose_attention_is_not_registered_is_refused(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTENTION_TYPES, "registered", {})
    with pytest.raises(ConfigError) as refusal:
        pellucid.load(trained.run)
    assert str(refusal.value) == (
        f"{trained.run / 'config.toml'}: attention.type = 'cosine' is neither built in nor installed: install the "
        "package that declares it in the entry points 'pellucid.attentions', or call "
        "pellucid.register_attention(name, class) first; known are additive, location, monotonic, dot, general, "
        "scaled-dot and none"
    )
    with pytest.raises(ConfigError, match="unknown attention type 'cosine': expected additive"):
        build_network(trained.config, make_vocabularies())


@pytest.mark.slow
def test_an_installed_package_is_found_by_every_process(tmp_path: Path) -> None:
    """Commands train an ensemble in worker processes and use it; without the package they refuse it."""
    package, files, run = install_package(tmp_path / "package"), write_copy_files(tmp_path), tmp_path / "run"
    (tmp_path / "my.toml").write_text(to_toml(make_small_config({"epochs": 1})), "utf-8")
    train = ("train", files.train, "--valid", files.valid, "--run", run, "--config", tmp_path / "my.toml")
    ensemble = ("--attention", "cosine", "--ensemble", 2, "--jobs", 2)
    predict, score = ("predict", run, files.valid), ("score", run, files.valid)
    evaluate, look = (
        ("evaluate", run, files.valid, "--json"),
        ("look", run, files.valid, "--export", tmp_path / "x.html"),
    )
    results = [run_command(*each, package=package) for each in ((*train, *ensemble), predict, score, evaluate, look)]
    assert [result.code for result in results] == [0] * 5, [result.err for result in results]
    assert len(results[1].out.splitlines()) == 10 and "sequence_error_rate" in json.loads(results[3].out)
    assert json.loads((run / "seed-1" / "log.jsonl").read_text("utf-8").splitlines()[2])["versions"] == (
        f"pellucid {pellucid.__version__}, my-attention 1"
    )
    metadata = package / "my_attention-1.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text("utf-8").replace("Version: 1", "Version: 2"), "utf-8")
    updated = run_command(*predict, package=package)
    assert updated.out == results[1].out and updated.err.count("my-attention") == 2
    assert "my-attention 1', and is used with" in updated.err and "my-attention 2' (1 further member" in updated.err
    shared = run_command("share", run / "seed-1", "--to", tmp_path / "shared", package=package)
    assert "users of the model need `my-attention` 2, which provides the attention type 'cosine'" in shared.err
    card = (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert "It also needs `my-attention` 2, which provides the attention type 'cosine'. PyTorch is needed" in card
    assert "the runtime without PyTorch does not support `attention.type` of this model" in card
    module, gain = package / "my_attention.py", "        self.gain = nn.Parameter("
    module.write_text(
        module.read_text("utf-8").replace(gain, f"{gain}torch.ones(1))\n        self.factor = nn.Parameter(")
    )
    misfit = " ".join(run_command("predict", run / "seed-1", files.valid, package=package).err.split())
    assert misfit.startswith(
        f"pellucid: {run / 'seed-1'} was trained with 'my-attention 1', and 'my-attention 2' is installed: install the "
        f"version that trained it, or train the model again; {run / 'seed-1' / 'model.safetensors'} does not fit"
    ), misfit
    refused = run_command(*predict)
    assert refused.code != 0 and refused.out == ""
    assert refused.err.count("attention.type = 'cosine' is neither built in nor installed") == 1
    unknown = run_command(*train[:-2], "--attention", "cosin", package=package)
    assert unknown.code != 0 and "or cosine, got 'cosin'; did you mean 'cosine'?" in " ".join(unknown.err.split())
    page = run_command("train", "--help-all", package=package)
    assert "cosine" in page.out


def test_scores_that_depend_on_padding_are_refused(registered_attention: None, tmp_path: Path) -> None:
    """The number of positions of the keys is that of the longest source of the batch."""

    class RelativePosition(load_module().CosineAttention):  # type: ignore[misc]  # a class of the page
        """Scores with the position relative to the length of the keys."""

        def scores(self, query: Tensor, keys: Tensor) -> Tensor:
            """Return the cosines and the relative positions."""
            return cast(Tensor, super().scores(query, keys)) + torch.linspace(0, 1, keys.shape[1])

    class AbsolutePosition(load_module().CosineAttention):  # type: ignore[misc]
        """Scores with the position, which padding does not change."""

        def scores(self, query: Tensor, keys: Tensor) -> Tensor:
            """Return the cosines and the positions."""
            return cast(Tensor, super().scores(query, keys)) + torch.arange(keys.shape[1]) / 10

    files = write_digit_files(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ATTENTION_TYPES, "registered", {})
        pellucid.register_attention("relative", RelativePosition)
        pellucid.register_attention("absolute", AbsolutePosition)
        for name in ("relative", "absolute"):
            config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": name}})
            refusal = pytest.raises(ConfigError, match="RelativePosition: the context of a source of 3 positions")
            with refusal if name == "relative" else nullcontext():
                train_to_end(files, tmp_path / name, config)


@pytest.mark.parametrize("axes", [("B", "S"), ("B", "S", "K")])
def test_scores_of_a_wrong_shape_are_refused(registered_attention: None, tmp_path: Path, axes: tuple[str, ...]) -> None:
    """The message names the class and the expected shape, where PyTorch would fail later or not at all."""

    class FlatAttention(load_module().CosineAttention):  # type: ignore[misc]  # a class of the page
        """Scores with other axes than (B, K, S)."""

        def scores(self, query: Tensor, keys: Tensor) -> Tensor:
            """Return zeros."""
            sizes = {"B": len(keys), "S": keys.shape[1], "K": query.shape[1]}
            return keys.new_zeros([sizes[axis] for axis in axes])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ATTENTION_TYPES, "registered", {})
        pellucid.register_attention("flat", FlatAttention)
        config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": "flat"}})
        files = write_digit_files(tmp_path)
        with pytest.raises(
            ArgumentError, match=r"FlatAttention\.scores returned the shape .*; expected \(B, K, S\) = "
        ):
            train_to_end(files, tmp_path / "run", config)
