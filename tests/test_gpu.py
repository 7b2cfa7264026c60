"""Where and in which precision training computes: what is refused, what moves, and what a GPU must give again."""

import contextlib
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from command_line import pellucid
from hypothesis import given
from small import SEEDS, batches, config_of, configs, few, near, network_of, padded
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trained_runs import (
    assert_same_outcome,
    copies,
    copies_run,
    copy_files,
    copy_of,
    flags,
    records,
    small_config,
    tensors,
    train_to_end,
)

from pellucid.config.settings import Cell, Config, Device
from pellucid.config.toml import load_config
from pellucid.data.batches import Batch, collate, encode_examples
from pellucid.errors import ConfigError, RunError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model import cells
from pellucid.model import device as device_module
from pellucid.model.device import autocast, find_device, rng_devices, use_determinism
from pellucid.model.network import EncoderDecoder
from pellucid.training.events import UpdateCompleted
from pellucid.training.gradients import GradientComputer, LossAndGradients
from pellucid.training.loop import TrainingState
from pellucid.training.optimizer import Adam
from pellucid.training.run_folder import load
from pellucid.training.session import train_run

GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
needs_no_gpu = pytest.mark.skipif(GPU, reason="needs a machine without a GPU")


def with_device(config: Config, device: Device, **changes: object) -> Config:
    return msgspec.structs.replace(config, device=device, **changes)


def odd_batch() -> Batch:
    source, target = torch.tensor([9, 2, 5]), torch.tensor([4, 1, 2])
    return Batch(padded(source.tolist(), 1), source, padded(target.tolist(), 2), target)


# What is refused, and what is found.


@needs_no_gpu
def test_a_gpu_that_is_not_there_is_told_and_auto_does_without() -> None:
    with pytest.raises(ConfigError, match=r"^device: expected cpu \(or auto\) on this machine, got 'cuda': "):
        find_device("cuda")
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    assert rng_devices(torch.device("cpu")) == []


@needs_no_gpu
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--device", "cuda"], "device: expected cpu (or auto) on this machine, got 'cuda': "),
        (["--device", "cuda", "--precision", "bf16"], "device: expected cpu (or auto) on this machine, got 'cuda': "),
        (["--precision", "bf16"], "precision = 'bf16' needs a GPU, but device is 'cpu'"),
        (["--device", "auto", "--precision", "bf16"], "precision = 'bf16' needs a GPU, but device is 'cpu'"),
        (["--device", "auto", "--cuda-graphs"], "cuda_graphs = true needs a GPU, but device is 'cpu'"),
    ],
)
def test_training_on_what_is_not_there_ends_with_code_2(tmp_path: Path, changes: list[str], message: str) -> None:
    files = copy_files(tmp_path)
    given = ["train", str(files.train), "--valid", str(files.valid), "--run", "run", *flags(small_config()), *changes]
    done = pellucid(*given, folder=tmp_path)
    assert (done.code, done.out) == (2, "") and done.err.startswith(f"pellucid: {message}"), done.err
    assert not (tmp_path / "run").exists()


@needs_no_gpu
@pytest.mark.parametrize("verb", ["predict", "evaluate", "look"])
def test_decoding_on_what_is_not_there_ends_with_code_2(tmp_path: Path, verb: str) -> None:
    done = pellucid(verb, str(copies_run().run), str(copies_run().files.valid), "--device", "cuda", folder=tmp_path)
    assert done.code == 2 and done.err.startswith("pellucid: device: expected cpu"), done.err


@needs_no_gpu
def test_auto_trains_as_the_processor_does_and_the_run_tells_which(tmp_path: Path) -> None:
    files, straight, config = copies_run()
    changed = with_device(config, "auto", deterministic=False)
    train_to_end(files, tmp_path / "run", changed)
    assert load_config(tmp_path / "run" / "config.toml").device == "cpu"
    assert_same_outcome(straight, tmp_path / "run")


def trained_elsewhere(folder: Path) -> Path:
    """A run whose settings say that a GPU trained it, in bf16: its tensors are as any others."""
    run = copy_of(copies_run().run, folder / "run")
    text = (run / "config.toml").read_text("utf-8")
    for old, new in (
        ('device = "cpu"', 'device = "cuda"'),
        ('"float32"', '"bf16"'),
        ("cuda_graphs = false", "cuda_graphs = true"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (run / "config.toml").write_text(text, "utf-8")
    return run


def test_a_run_of_a_gpu_loads_where_there_is_none(tmp_path: Path) -> None:
    sources = [example.source for example in copies(10, seed=3)]
    here, elsewhere = load(copies_run().run), load(trained_elsewhere(tmp_path))
    for trace, again in zip(here.predict(sources), elsewhere.predict(sources), strict=True):
        assert trace.log_probabilities.tobytes() == again.log_probabilities.tobytes()


def test_a_run_of_a_gpu_goes_on_only_on_one(tmp_path: Path) -> None:
    """What it would end in would not be what the GPU ends in."""
    run = trained_elsewhere(tmp_path)
    with pytest.raises(RunError, match=r"device: 'cuda' in the run, 'cpu' now"):
        train_to_end(copies_run().files, run, with_device(copies_run().config, "auto" if not GPU else "cpu"))


def test_determinism_is_switched_on_for_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    config = copies_run().config
    for device, deterministic in (("cpu", True), ("cuda", False)):
        use_determinism(msgspec.structs.replace(config, device=device, deterministic=deterministic))
    assert asked == [] and "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    use_determinism(with_device(config, "cuda", deterministic=True))
    assert asked == [True] and torch.backends.cudnn.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_memory_that_a_gpu_has_not_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    from pellucid import cli

    def run(given: list[str]) -> int:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_run_subcommand", run)
        assert cli.main(["train"]) == 2
    assert capsys.readouterr().err.startswith("pellucid: out of memory; reduce training.batch_size")


# The same computation where nothing has content: no GPU is needed to see where tensors are made and who looks at them.


class OnlyOn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, every tensor that an operation takes or gives is on one device; numbers may be anywhere."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        given = function(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, given))
        found = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()}
        assert found <= {self.device}, f"{function} of tensors on {found}"
        self.operations += 1
        return given


@pytest.mark.parametrize("score", ["additive", "location", "dot", "scaled-dot", "general", "none"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("start", "merge"), [("zero", "concatenate"), ("final", "sum"), ("mean", "product")])
def test_an_update_stays_on_its_device_and_looks_at_no_number(
    monkeypatch: pytest.MonkeyPatch, cell: Cell, score: str, start: str, merge: str
) -> None:
    """A tensor of the device "meta" has a shape and no content: who asks for content is refused."""
    encoder = {"cell": cell, "num_layers": 2, "dropout": 0.3, "merge": merge, "hidden_size": 8}
    memory = 16 if merge == "concatenate" else 8
    decoder = {"cell": cell, "init_hidden": start, "hidden_size": memory}
    config = config_of({"encoder": encoder, "decoder": decoder, "attention": {"type": score}})
    network = network_of(config, 0, torch.float32).train().to("meta")
    batch = odd_batch().to(torch.device("meta"))
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: contextlib.nullcontext())
    with disable_kernels(), OnlyOn("meta") as watch:
        loss, gradients = GradientComputer(network, config).compute(batch)
    assert loss.device.type == "meta" and watch.operations > 100
    assert all(gradient is not None for gradient in gradients)


def test_a_tensor_made_on_the_processor_is_found() -> None:
    with pytest.raises(AssertionError, match="of tensors on"), OnlyOn("meta"):
        torch.zeros(3, device="meta") + torch.arange(3)


# bf16, by the processor's autocast: the same operations round as on a GPU, but for those of cuDNN.


def losses(network: EncoderDecoder, config: Config, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    with disable_kernels():
        return named(network, GradientComputer(network, config).compute(batch))


def named(network: EncoderDecoder, found: LossAndGradients) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss, and each gradient that there is by its parameter's name."""
    names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    pairs = zip(names, found.gradients, strict=True)
    return found.loss, {name: gradient for name, gradient in pairs if gradient is not None}


@few
@given(configs(), SEEDS, batches())
def test_bf16_rounds_products_and_nothing_that_lasts(config: Config, seed: int, batch: Batch) -> None:
    network = network_of(config, seed, torch.float32)
    low = with_device(config, "cuda", precision="bf16")
    kept: list[torch.dtype] = []
    with disable_kernels(), autocast(torch.device("cpu"), "bf16"):
        memory = network.encoder(batch.source, batch.source_lengths)
        start = network.decoder.init_state(memory)
        unrolled = network.decoder.unroll(batch.target, start, network.decoder.prepare(memory))
        for state in (memory.final, start, unrolled.state):
            kept += [part.dtype for part in (state.hidden, state.cell) if part is not None]
    assert {memory.states.dtype, *kept} == {torch.float32} and unrolled.logits.dtype == torch.bfloat16
    (rounded, low_gradients), (exact, gradients) = losses(network, low, batch), losses(network, config, batch)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    assert low_gradients.keys() == gradients.keys()
    assert {gradient.dtype for gradient in low_gradients.values()} == {torch.float32}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_laying_parameters_side_by_side_changes_none(cell: Cell) -> None:
    torch.manual_seed(0)
    layer = cells.RecurrentCell(cell, 3, 4)
    before, state = {n: p.clone() for n, p in layer.named_parameters()}, torch.get_rng_state()
    pointers = [parameter.data_ptr() for parameter in layer.parameters()]
    layer.flatten_parameters()
    assert [parameter.data_ptr() for parameter in layer.parameters()] == pointers
    assert dict(layer.named_parameters()).keys() == before.keys()
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in layer.named_parameters():
        near(parameter, before[name], 0)


# What needs a GPU.


@needs_gpu
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_gpu_has_the_gradients_of_the_processor(cell: Cell) -> None:
    config = config_of({"encoder": {"cell": cell, "num_layers": 2}, "decoder": {"cell": cell}})
    network = network_of(config, 1, torch.float32)
    batch = odd_batch()
    exact, expected = losses(network, config, batch)
    device_module.move_to_device(network, find_device("cuda"))
    loss, gradients = named(network, GradientComputer(network, config).compute(batch))
    torch.testing.assert_close(loss.cpu(), exact, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient.cpu(), expected[name], rtol=1e-3, atol=1e-5, msg=name)


@needs_gpu
def test_an_update_on_a_gpu_waits_for_nothing_on_its_way_back() -> None:
    config = config_of({})
    network = network_of(config, 1, torch.float32).train()
    device_module.move_to_device(network, find_device("cuda"))
    batch = odd_batch()
    computer, there = GradientComputer(network, config), batch.to(find_device("cuda"))
    computer.compute(there)
    torch.cuda.set_sync_debug_mode("error")
    try:
        computer.compute(there)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_training_on_a_gpu_is_as_good(tmp_path: Path, precision: str, graphs: bool) -> None:
    config = small_config({"epochs": 3, "eval_interval": 0.5})
    train_to_end(copies_run().files, tmp_path / "cpu", config)
    train_to_end(
        copies_run().files, tmp_path / "gpu", with_device(config, "auto", precision=precision, cuda_graphs=graphs)
    )
    assert load_config(tmp_path / "gpu" / "config.toml").device == "cuda"
    ends = [[r["loss"] for r in records(tmp_path / name) if r["event"] == "validated"][-1] for name in ("cpu", "gpu")]
    assert math.isclose(*ends, rel_tol=0.02)


@needs_gpu
@pytest.mark.parametrize("graphs", [False, True])
def test_a_deterministic_training_on_a_gpu_goes_on_to_the_same_bits(tmp_path: Path, graphs: bool) -> None:
    config = small_config({"epochs": 3, "eval_interval": 0.5}, dropout=0.3)
    config = with_device(config, "cuda", deterministic=True, cuda_graphs=graphs)
    train_to_end(copies_run().files, tmp_path / "straight", config)
    for update in (1, 4, 9):
        events = train_run(copies_run().files, tmp_path / "broken", config)
        for event in events:
            if isinstance(event, UpdateCompleted) and event.progress.update == update:
                events.close()
                break
    train_to_end(copies_run().files, tmp_path / "broken", config)
    assert_same_outcome(tmp_path / "straight", tmp_path / "broken")


@needs_gpu
def test_models_pass_between_the_devices(tmp_path: Path) -> None:
    sources = [example.source for example in copies(10, seed=3)]
    train_to_end(copies_run().files, tmp_path / "gpu", with_device(copies_run().config, "cuda"))
    for run in (copies_run().run, tmp_path / "gpu"):
        assert next(load(run, "cuda").network.parameters()).is_cuda
        for width in (1, 4):
            here, there = (load(run, device).with_beam(width).predict(sources) for device in ("cpu", "cuda"))
            assert [trace.output for trace in here] == [trace.output for trace in there]
    assert json.loads(tensors(tmp_path / "gpu" / "training.safetensors")[1]["progress"])["update"] > 0


def test_a_session_draws_on_the_device_of_its_network() -> None:
    transducer = load(copies_run().run)
    encoded = encode_examples(copies(4, seed=1), transducer.tokenizers, transducer.vocabularies)
    optimizer = Adam(transducer.network)
    session = TrainingState(replace(transducer), optimizer, encoded, copies(2, seed=2))
    assert session.gradient_computer.device == torch.device("cpu")
    assert math.isfinite(float(session.gradient_computer.compute(collate(encoded, np.arange(4))).loss))
