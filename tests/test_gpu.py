"""Devices and precision of training: refused settings, placement of tensors, and agreement of GPU and CPU."""

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
from command_line import run_pellucid
from hypothesis import given
from small_networks import (
    SEEDS,
    assert_tensors_close,
    batches,
    configs,
    few_examples,
    make_config,
    make_network,
    make_padded_ids,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trained_runs import (
    assert_runs_identical,
    comparable_log_records,
    copy_run_folder,
    copy_task_run,
    make_copy_examples,
    make_small_config,
    read_tensors,
    train_to_end,
    training_flags,
    write_copy_files,
)

from pellucid.config.settings import Cell, Config, Device
from pellucid.config.toml import load_config
from pellucid.data.batches import Batch, collate
from pellucid.data.encoding import encode_examples
from pellucid.errors import ConfigError, RunError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model import cells
from pellucid.model import device as device_module
from pellucid.model.device import find_device, rng_devices, use_determinism
from pellucid.model.network import EncoderDecoder
from pellucid.run_folder.predictor_loader import load
from pellucid.training.events import UpdateCompleted
from pellucid.training.gradients import GradientComputer, LossAndGradients
from pellucid.training.optimizer import Adam
from pellucid.training.session import train_run
from pellucid.training.training_state import TrainingState

GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
needs_no_gpu = pytest.mark.skipif(GPU, reason="needs a machine without a GPU")


def with_device(config: Config, device: Device, **changes: object) -> Config:
    return msgspec.structs.replace(config, device=device, **changes)


def make_batch() -> Batch:
    source, target = torch.tensor([9, 2, 5]), torch.tensor([4, 1, 2])
    return Batch(make_padded_ids(source.tolist(), 1), source, make_padded_ids(target.tolist(), 2), target)


# Refused settings and device selection.


@needs_no_gpu
def test_a_missing_gpu_is_refused_and_auto_selects_the_cpu() -> None:
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
        (["--cuda-graphs"], "cuda_graphs = true needs a GPU, but device is 'cpu'"),
        (["--device", "auto", "--cuda-graphs"], "cuda_graphs = true needs a GPU, but device is 'cpu'"),
    ],
)
def test_training_on_a_missing_gpu_exits_with_code_2(tmp_path: Path, changes: list[str], message: str) -> None:
    files = write_copy_files(tmp_path)
    arguments = [
        "train",
        str(files.train),
        "--valid",
        str(files.valid),
        "--run",
        "run",
        *training_flags(make_small_config()),
        *changes,
    ]
    result = run_pellucid(*arguments, folder=tmp_path)
    assert (result.code, result.out) == (2, "") and result.err.startswith(f"pellucid: {message}"), result.err
    assert not (tmp_path / "run").exists()


@needs_no_gpu
@pytest.mark.parametrize("subcommand", ["predict", "evaluate", "look"])
def test_decoding_on_a_missing_gpu_exits_with_code_2(tmp_path: Path, subcommand: str) -> None:
    result = run_pellucid(
        subcommand, str(copy_task_run().run), str(copy_task_run().files.valid), "--device", "cuda", folder=tmp_path
    )
    assert result.code == 2 and result.err.startswith("pellucid: device: expected cpu"), result.err


@needs_no_gpu
def test_auto_trains_on_the_cpu_and_records_it(tmp_path: Path) -> None:
    files, cpu_run, config = copy_task_run()
    changed = with_device(config, "auto", deterministic=False)
    train_to_end(files, tmp_path / "run", changed)
    assert load_config(tmp_path / "run" / "config.toml").device == "cpu"
    assert_runs_identical(cpu_run, tmp_path / "run")


def copy_as_gpu_run(folder: Path) -> Path:
    """Copy a run and change its settings to those of a GPU run in bf16; the tensors do not change."""
    run = copy_run_folder(copy_task_run().run, folder / "run")
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


def test_a_gpu_run_loads_without_a_gpu(tmp_path: Path) -> None:
    sources = [example.source for example in make_copy_examples(10, seed=3)]
    cpu_model, gpu_model = load(copy_task_run().run), load(copy_as_gpu_run(tmp_path))
    for trace, other in zip(cpu_model.predict(sources), gpu_model.predict(sources), strict=True):
        assert trace.log_probabilities.tobytes() == other.log_probabilities.tobytes()


def test_a_gpu_run_resumes_only_on_a_gpu(tmp_path: Path) -> None:
    """A training resumed on a CPU would not reproduce the result of the GPU."""
    run = copy_as_gpu_run(tmp_path)
    with pytest.raises(RunError, match=r"device: 'cuda' in the run, 'cpu' now"):
        train_to_end(copy_task_run().files, run, with_device(copy_task_run().config, "auto" if not GPU else "cpu"))


def test_determinism_is_switched_on_for_gpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", calls.append)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    config = copy_task_run().config
    for device, deterministic in (("cpu", True), ("cuda", False)):
        use_determinism(msgspec.structs.replace(config, device=device, deterministic=deterministic))
    assert calls == [] and "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    use_determinism(with_device(config, "cuda", deterministic=True))
    assert calls == [True] and torch.backends.cudnn.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_running_out_of_gpu_memory_is_reported_in_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    from pellucid import cli

    def raise_out_of_memory(arguments: list[str]) -> int:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "_run_subcommand", raise_out_of_memory)
        assert cli.main(["train"]) == 2
    assert capsys.readouterr().err.startswith("pellucid: out of memory; reduce training.batch_size")


# Placement of tensors without a GPU: tensors on the device "meta" have no content.


class SingleDeviceMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Assert that all inputs and outputs of every operation, except tensors without dimensions, are on one device."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.operations = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        result = function(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, result))
        devices = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()}
        assert devices <= {self.device}, f"{function} of tensors on {devices}"
        self.operations += 1
        return result


@pytest.mark.slow
@pytest.mark.parametrize("score", ["additive", "location", "dot", "scaled-dot", "general", "none"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("init_hidden", "merge"), [("zero", "concatenate"), ("final", "sum"), ("mean", "product")])
def test_an_update_stays_on_its_device_and_reads_no_value(
    monkeypatch: pytest.MonkeyPatch, cell: Cell, score: str, init_hidden: str, merge: str
) -> None:
    """A tensor on the device "meta" has a shape but no content: reading a value raises an error."""
    encoder = {"cell": cell, "num_layers": 2, "dropout": 0.3, "merge": merge, "hidden_size": 8}
    memory = 16 if merge == "concatenate" else 8
    decoder = {"cell": cell, "init_hidden": init_hidden, "hidden_size": memory}
    config = make_config({"encoder": encoder, "decoder": decoder, "attention": {"type": score}})
    network = make_network(config, 0, torch.float32).train().to("meta")
    batch = make_batch().to(torch.device("meta"))
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: contextlib.nullcontext())
    with disable_kernels(), SingleDeviceMode("meta") as mode:
        loss, gradients = GradientComputer(network, config).compute(batch)
    assert loss.device.type == "meta" and mode.operations > 100
    assert all(gradient is not None for gradient in gradients)


def test_a_tensor_created_on_the_cpu_is_detected() -> None:
    with pytest.raises(AssertionError, match="of tensors on"), SingleDeviceMode("meta"):
        torch.zeros(3, device="meta") + torch.arange(3)


# bf16 with the CPU's autocast: the same operations round as on a GPU, except those of cuDNN.


def compute_loss_and_gradients(
    network: EncoderDecoder, config: Config, batch: Batch
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    with disable_kernels():
        return name_gradients(network, GradientComputer(network, config).compute(batch))


def name_gradients(network: EncoderDecoder, result: LossAndGradients) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss, and the gradients that are not None by the names of their parameters."""
    names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
    pairs = zip(names, result.gradients, strict=True)
    return result.loss, {name: gradient for name, gradient in pairs if gradient is not None}


@few_examples
@given(configs(), SEEDS, batches())
def test_bf16_rounds_products_but_not_states_or_gradients(config: Config, seed: int, batch: Batch) -> None:
    network = make_network(config, seed, torch.float32)
    bf16_config = with_device(config, "cuda", precision="bf16")
    dtypes: list[torch.dtype] = []
    with disable_kernels(), torch.autocast("cpu", torch.bfloat16):  # as on a GPU
        memory = network.encoder(batch.source, batch.source_lengths)
        start = network.decoder.init_state(memory)
        unrolled = network.decoder.unroll(batch.target, start, network.decoder.build_cache(memory))
        for state in (memory.final, start, unrolled.state):
            dtypes += [part.dtype for part in (state.hidden, state.cell_state) if part is not None]
    assert {memory.states.dtype, *dtypes} == {torch.float32} and unrolled.logits.dtype == torch.bfloat16
    (rounded, bf16_gradients), (exact, gradients) = (
        compute_loss_and_gradients(network, bf16_config, batch),
        compute_loss_and_gradients(network, config, batch),
    )
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.05)
    assert bf16_gradients.keys() == gradients.keys()
    assert {gradient.dtype for gradient in bf16_gradients.values()} == {torch.float32}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_flattening_parameters_does_not_change_them(cell: Cell) -> None:
    torch.manual_seed(0)
    layer = cells.RecurrentCell(cell, 3, 4)
    before, state = {n: p.clone() for n, p in layer.named_parameters()}, torch.get_rng_state()
    pointers = [parameter.data_ptr() for parameter in layer.parameters()]
    layer.flatten_parameters()
    assert [parameter.data_ptr() for parameter in layer.parameters()] == pointers
    assert dict(layer.named_parameters()).keys() == before.keys()
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in layer.named_parameters():
        assert_tensors_close(parameter, before[name], 0)


# Tests that need a GPU.


@needs_gpu
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gradients_on_a_gpu_equal_those_on_the_cpu(cell: Cell) -> None:
    config = make_config({"encoder": {"cell": cell, "num_layers": 2}, "decoder": {"cell": cell}})
    network = make_network(config, 1, torch.float32)
    batch = make_batch()
    exact, expected = compute_loss_and_gradients(network, config, batch)
    device_module.move_to_device(network, find_device("cuda"))
    loss, gradients = name_gradients(network, GradientComputer(network, config).compute(batch))
    torch.testing.assert_close(loss.cpu(), exact, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient.cpu(), expected[name], rtol=1e-3, atol=1e-5, msg=name)


@needs_gpu
def test_an_update_on_a_gpu_does_not_synchronize() -> None:
    config = make_config({})
    network = make_network(config, 1, torch.float32).train()
    device_module.move_to_device(network, find_device("cuda"))
    batch = make_batch()
    computer, gpu_batch = GradientComputer(network, config), batch.to(find_device("cuda"))
    computer.compute(gpu_batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        computer.compute(gpu_batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_training_on_a_gpu_reaches_the_loss_of_the_cpu(tmp_path: Path, precision: str, graphs: bool) -> None:
    config = make_small_config({"epochs": 3, "eval_interval": 0.5})
    train_to_end(copy_task_run().files, tmp_path / "cpu", config)
    train_to_end(
        copy_task_run().files, tmp_path / "gpu", with_device(config, "auto", precision=precision, cuda_graphs=graphs)
    )
    assert load_config(tmp_path / "gpu" / "config.toml").device == "cuda"
    final_losses = [
        [r["loss"] for r in comparable_log_records(tmp_path / name) if r["event"] == "validated"][-1]
        for name in ("cpu", "gpu")
    ]
    assert math.isclose(*final_losses, rel_tol=0.02)


@needs_gpu
@pytest.mark.parametrize("graphs", [False, True])
def test_deterministic_training_on_a_gpu_resumes_bit_for_bit(tmp_path: Path, graphs: bool) -> None:
    config = make_small_config({"epochs": 3, "eval_interval": 0.5}, dropout=0.3)
    config = with_device(config, "cuda", deterministic=True, cuda_graphs=graphs)
    train_to_end(copy_task_run().files, tmp_path / "uninterrupted", config)
    for update in (1, 4, 9):
        events = train_run(copy_task_run().files, tmp_path / "interrupted", config)
        for event in events:
            if isinstance(event, UpdateCompleted) and event.progress.update == update:
                events.close()
                break
    train_to_end(copy_task_run().files, tmp_path / "interrupted", config)
    assert_runs_identical(tmp_path / "uninterrupted", tmp_path / "interrupted")


@needs_gpu
def test_models_load_on_either_device(tmp_path: Path) -> None:
    sources = [example.source for example in make_copy_examples(10, seed=3)]
    train_to_end(copy_task_run().files, tmp_path / "gpu", with_device(copy_task_run().config, "cuda"))
    for run in (copy_task_run().run, tmp_path / "gpu"):
        assert next(load(run, "cuda").network.parameters()).is_cuda
        for beam_size in (1, 4):
            cpu_traces, gpu_traces = (
                load(run, device).with_beam(beam_size).predict(sources) for device in ("cpu", "cuda")
            )
            assert [trace.output for trace in cpu_traces] == [trace.output for trace in gpu_traces]
    assert json.loads(read_tensors(tmp_path / "gpu" / "training.safetensors")[1]["progress"])["update"] > 0


def test_the_training_state_uses_the_device_of_its_network() -> None:
    transducer = load(copy_task_run().run)
    encoded = encode_examples(make_copy_examples(4, seed=1), transducer.tokenizers, transducer.vocabularies)
    optimizer = Adam(transducer.network)
    session = TrainingState(replace(transducer), optimizer, encoded, make_copy_examples(2, seed=2))
    assert session.gradient_computer.device == torch.device("cpu")
    assert math.isfinite(float(session.gradient_computer.compute(collate(encoded, np.arange(4))).loss))
