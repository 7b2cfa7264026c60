"""Options that kernels compute, the loading and compiling of kernels, and the fallback to PyTorch."""

import os
import signal
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies
from kernel_cases import CELLS, SEEDS, assert_named_tensors_close, run_with_and_without_kernels
from small_networks import batches, make_config, make_network
from small_searches import beam_outputs
from test_kernels_unroll import build_memory, build_small_decoder
from torch import Tensor

from pellucid.alignment import lattice
from pellucid.alignment.pair_aligner import align_symbols
from pellucid.config.settings import DataConfig
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.decoding.outputs import LengthLimits
from pellucid.kernels import compilation, dispatch, kernel_loader
from pellucid.kernels.backend import ComputationRequest
from pellucid.kernels.dispatch import bfloat16_products, disable_kernels
from pellucid.kernels.microkernel import HAS_BFLOAT16
from pellucid.model.cells import LayerState
from pellucid.model.decoder import Decoder
from pellucid.model.network import EncoderDecoder, Network
from pellucid.model.recurrence import DropoutMasks
from pellucid.pair_ngram import numba_search
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor
from pellucid.run_folder.pair_ngram_file import SavedPairNgram, load_pair_ngram, save_pair_ngram

SUPPORTED_SETTINGS: dict[str, Any] = {
    "dropout_mask": "sequence",
    "embedding_dropout": 0.3,
    "recurrent_dropout": 0.3,
    "layer_normalization": "outputs",
    "residual": True,
}
"""Settings of encoder and decoder that the training kernels support."""


@pytest.fixture
def pytorch_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the steps that PyTorch computes; there are none if kernels compute everything."""
    steps: list[str] = []
    step_layers = Decoder.step_layers

    def record_step(self: Decoder, gates: Tensor, layers: list[LayerState], masks: DropoutMasks | None) -> object:
        steps.append("step_layers")
        return step_layers(self, gates, layers, masks)

    monkeypatch.setattr(Decoder, "step_layers", record_step)
    return steps


def build_network(cell: str, side_settings: dict[str, Any], seed: int, layers: int = 1) -> Network:
    network_settings = {
        "encoder": {"cell": cell, "num_layers": 2, **side_settings},
        "decoder": {"cell": cell, "num_layers": layers, "tie_embeddings": True, **side_settings},
    }
    return make_network(make_config(network_settings), seed, torch.float32)


@given(batches(), CELLS, SEEDS, strategies.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_training_update_equals_pytorch(batch: Batch, cell: str, seed: int, layers: int) -> None:
    network = build_network(cell, {"dropout": 0.4, **SUPPORTED_SETTINGS}, seed, layers).train()

    def outputs() -> list[torch.Tensor]:
        unrolled = network(batch)
        return [unrolled.logits, unrolled.weights, unrolled.state.hidden]

    # Layer normalization divides by the deviation of a state's units and so enlarges rounding errors.
    assert_named_tensors_close(*run_with_and_without_kernels(network, outputs, {}, seed), tolerance=1e-3)


def compute_update(network: Network, batch: Batch, context: AbstractContextManager[None]) -> list[Tensor]:
    """Return the logits of a batch, and the gradients of a loss."""
    with context:
        logits = network(batch).logits
    return [logits.detach(), *torch.autograd.grad(logits.square().sum(), list(network.parameters()))]


@pytest.mark.skipif(not HAS_BFLOAT16, reason="needs avx512_bf16")
@given(batches(), CELLS, SEEDS, strategies.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_updates_in_bfloat16_are_repeated_to_the_bit(batch: Batch, cell: str, seed: int, layers: int) -> None:
    """The backward pass computes as its forward pass did, outside the context too."""
    network = build_network(cell, {"num_layers": layers}, seed, layers).train()
    exact, rounded, again = (
        compute_update(network, batch, context) for context in (nullcontext(), bfloat16_products(), bfloat16_products())
    )
    assert all(torch.equal(one, other) for one, other in zip(rounded, again, strict=True))
    assert all(tensor.dtype == torch.float32 for tensor in rounded)
    assert any(not torch.equal(one, other) for one, other in zip(rounded, exact, strict=True))


@pytest.mark.skipif(not HAS_BFLOAT16, reason="needs avx512_bf16")
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_updates_in_bfloat16_are_near_those_in_float32(cell: str, layers: int) -> None:
    """The median over networks, because gradients whose summands nearly cancel have large relative errors."""
    errors = list[float]()
    for seed in range(25):
        network = build_network(cell, {"num_layers": layers}, seed, layers).train()
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.tensor([5, 5, 5])
        source, target = (torch.randint(4, 6, (3, 5), generator=generator) for _ in range(2))
        batch = Batch(source, lengths, target, lengths)
        exact, rounded = (
            torch.cat([tensor.flatten() for tensor in compute_update(network, batch, context)])
            for context in (nullcontext(), bfloat16_products())
        )
        errors.append(float((rounded - exact).norm() / exact.norm()))
    assert 0 < statistics.median(errors) < 0.1, errors


@pytest.mark.skipif(not HAS_BFLOAT16, reason="needs avx512_bf16")
def test_without_gradients_products_stay_in_float32() -> None:
    network = build_network("lstm", {}, 3).eval()
    batch = Batch(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[4, 2]]), torch.tensor([2]))
    with torch.no_grad():
        exact = decode_by_kernels(network, batch)
        with bfloat16_products():
            assert all(map(torch.equal, decode_by_kernels(network, batch), exact))


def decode_by_kernels(network: Network, batch: Batch) -> list[Tensor]:
    """Return the states of the encoder, the keys and the logits of a first step."""
    assert isinstance(network, EncoderDecoder)
    memory = network.encoder(batch.source, batch.source_lengths)
    cache = network.decoder.build_cache(memory)
    step = network.decoder.step(torch.tensor([1]), network.decoder.init_state(memory), cache)
    return [memory.states, cache.keys, step.logits]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_an_update_takes_no_step_in_pytorch(
    cell: str, layers: int, pytorch_steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("PyTorch computed the recurrence")

    network = build_network(cell, {"dropout": 0.4, **SUPPORTED_SETTINGS}, 1, layers).train()
    monkeypatch.setattr("pellucid.model.recurrence.run_rnn_torch", refuse)
    network(Batch(torch.tensor([[4, 5]]), torch.tensor([2]), torch.tensor([[4, 2]]), torch.tensor([2])))
    assert pytorch_steps == []


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_tied_embeddings_are_decoded_by_kernels(cell: str, layers: int, pytorch_steps: list[str]) -> None:
    normalization = "outputs" if layers > 1 else "none"
    side_settings = {"recurrent_dropout": 0.3, "embedding_dropout": 0.3, "layer_normalization": normalization}
    network = build_network(cell, side_settings, 1, layers)
    source, lengths = torch.tensor([[4, 5, 6], [7, 4, 0]]), torch.tensor([3, 2])
    actual = beam_outputs(network, source, lengths, LengthLimits(0, 5), 3, 3)
    assert pytorch_steps == []
    with disable_kernels():
        expected = beam_outputs(network, source, lengths, LengthLimits(0, 5), 3, 3)
    assert [[each.ids.tolist() for each in row] for row in actual] == [
        [each.ids.tolist() for each in row] for row in expected
    ]


@pytest.mark.parametrize("kind", ["outputs", "cells"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_unsupported_layer_normalization_decodes_in_pytorch(kind: str, cell: str, pytorch_steps: list[str]) -> None:
    """That of the outputs is decoded in PyTorch in a decoder of one layer only."""
    network = build_network(cell, {"layer_normalization": kind}, 1)
    source, lengths = torch.tensor([[4, 5, 6], [7, 4, 0]]), torch.tensor([3, 2])
    actual = beam_outputs(network, source, lengths, LengthLimits(0, 4), 2, 1)
    assert pytorch_steps and len(actual) == 2
    network.double()
    for row, exact in zip(actual, beam_outputs(network, source, lengths, LengthLimits(0, 4), 2, 1), strict=True):
        assert row[0].ids.tolist() == exact[0].ids.tolist()


def test_two_processes_compile_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The second process waits for the first, and then finds all kernels."""
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    compiled = list[bool]()

    def compile_kernels() -> None:
        compiled.append(not compilation.is_cache_complete())
        sleep(0.3)

    monkeypatch.setattr(kernel_loader, "_compile_in_child", compile_kernels)
    monkeypatch.setattr(kernel_loader, "_call_all_kernels", lambda: None)
    threads = [Thread(target=kernel_loader._load_or_compile) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiled == [True]


def test_waiting_for_another_process_counts_as_compilation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Regression test: of two trainings with --time on a new machine, the second had spent its time on waiting."""
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)

    @contextmanager
    def wait_for_other_process() -> Iterator[None]:
        sleep(0.05)
        compilation.mark_cache_complete()
        yield

    monkeypatch.setattr(kernel_loader, "compile_lock", wait_for_other_process)
    monkeypatch.setattr(kernel_loader, "_compilation_times", [])
    monkeypatch.setattr(kernel_loader, "_call_all_kernels", lambda: None)
    monkeypatch.setattr(kernel_loader, "_compile_in_child", lambda: pytest.fail("compiled twice"))
    kernel_loader._load_or_compile()
    assert 0.05 <= kernel_loader.compilation_seconds(0.0) < 5


def test_all_kernels_outside_the_package_of_kernels_are_loaded_with_it() -> None:
    """Regression test: those of the pair n-gram model were compiled in the time of the training, and never checked."""
    root = Path(compilation.__file__).parents[1]
    modules = [path.relative_to(root) for path in root.glob("*/*.py") if "\n@njit" in path.read_text("utf-8")]
    compiled = {".".join(path.with_suffix("").parts) for path in modules if path.parts[0] not in ("bench", "kernels")}
    source = Path(kernel_loader.__file__).read_text("utf-8")
    assert compiled and all(f'import_module("pellucid.{name}")' in source for name in compiled)


def test_a_pair_ngram_model_needs_no_further_compilation(tmp_path: Path) -> None:
    """A call with other types than those of `warm_up` compiles a kernel in the time of the training."""
    for module in (lattice, numba_search):
        module.warm_up()
    kernels = [
        kernel
        for module in (lattice, numba_search)
        for kernel in vars(module).values()
        if hasattr(kernel, "signatures")
    ]
    before = [len(kernel.signatures) for kernel in kernels]
    examples = [Example("abc", "xyz"), Example("ab", "xy"), Example("c", "z")]
    tokenizers = build_tokenizers(DataConfig())
    fitted = fit_pair_ngram_predictor(examples, tokenizers, learn_vocabularies(examples, tokenizers, 1))
    assert fitted is not None
    save_pair_ngram(tmp_path / "model", SavedPairNgram(fitted.model, 0.5))
    loaded = load_pair_ngram(tmp_path / "model", fitted.vocabularies).model
    for model in (fitted.model, loaded):
        assert model.search([4, 5], 2) and model.align([4, 5], [4, 5])
    align_symbols([(("a", "b"), ("x", "y"))])
    assert kernels and [len(kernel.signatures) for kernel in kernels] == before


def test_a_changed_kernel_is_compiled_again_with_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    kernel = tmp_path / "a.nbc"
    monkeypatch.setattr(kernel_loader, "_compile_in_child", lambda: kernel.write_bytes(b"right"))
    monkeypatch.setattr(kernel_loader, "_call_all_kernels", lambda: None)
    assert kernel_loader.load_kernels.__wrapped__()
    kernel.write_bytes(b"wrong")
    with pytest.warns(UserWarning, match="were damaged; they are compiled again"):
        assert kernel_loader.load_kernels.__wrapped__()
    assert kernel.read_bytes() == b"right" and not compilation.is_cache_damaged()


def test_damaged_kernels_are_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    (tmp_path / "damaged.nbi").write_bytes(b"")
    compilation.mark_cache_complete()

    def warm_up() -> None:
        if (tmp_path / "damaged.nbi").exists():
            raise EOFError("Ran out of input")

    monkeypatch.setattr(kernel_loader, "_call_all_kernels", warm_up)
    monkeypatch.setattr(kernel_loader, "_compile_in_child", lambda: None)
    with pytest.warns(UserWarning, match="were damaged; they are compiled again"):
        assert kernel_loader.load_kernels.__wrapped__()
    assert compilation.is_cache_complete()


def test_a_process_loads_kernels_that_a_child_process_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LSTM kernels compiled in this process round differently from loaded ones, so a resumed run would differ."""
    steps = list[str]()
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel_loader, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel_loader, "_compile_in_child", lambda: steps.append("compiled by another process"))
    monkeypatch.setattr(kernel_loader, "_call_all_kernels", lambda: steps.append("loaded"))
    assert kernel_loader.load_kernels.__wrapped__() and kernel_loader.load_kernels.__wrapped__()
    assert steps == ["compiled by another process", "loaded", "loaded"]


def test_a_failure_of_the_child_process_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_loader, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(kernel_loader, "is_cache_complete", lambda: False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.warns(UserWarning, match="everything runs without compiled kernels, slower: exit code 1"):
        assert not kernel_loader.load_kernels.__wrapped__()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no signals that end a process at once")
def test_the_compiling_process_ends_with_its_killed_parent(tmp_path: Path) -> None:
    """Regression test: the compiler of a killed training or service went on for minutes."""
    program = f"""
from pellucid.kernels import kernel_loader
beginning = kernel_loader.PROGRAM.partition("sys.path[:]")[0]
path = {str(tmp_path / "child")!r}
rest = f"import time; open({{path!r}}, 'w').write(str(os.getpid()) + '.'); time.sleep(600)"
kernel_loader.PROGRAM = beginning + rest
kernel_loader._compile_in_child()
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        pid = int(_wait_for(lambda: _read_pid(tmp_path / "child")))
        assert _is_running(pid)
    finally:
        parent.kill()
        parent.wait()
    assert _wait_for(lambda: "ended" if not _is_running(pid) else "")


def _wait_for(read: Callable[[], str]) -> str:
    """Return the text of a function, as soon as there is one."""
    for _ in range(1200):
        if text := read():
            return text
        sleep(0.1)
    raise AssertionError("nothing happened in two minutes")


def _read_pid(path: Path) -> str:
    """Return the process identifier in a file that is written to its end."""
    text = path.read_text() if path.exists() else ""
    return text.removesuffix(".") if text.endswith(".") else ""


def _is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended may not be collected yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_disabled_kernels_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "is_cache_complete", lambda: False)
    kernel_loader.load_kernels.cache_clear()
    monkeypatch.delenv("PELLUCID_PLAIN", raising=False)
    assert dispatch.will_compile()
    with dispatch.disable_kernels():
        assert not dispatch.will_compile()
    monkeypatch.setenv("PELLUCID_PLAIN", "1")
    assert not dispatch.will_compile()


@pytest.mark.parametrize("error", [MemoryError(), OSError("cannot allocate memory")])
def test_other_errors_than_damage_keep_the_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)
    kernel = tmp_path / "a.nbc"
    kernel.write_bytes(b"machine code")
    compilation.mark_cache_complete()

    def fail_to_load() -> None:
        raise error

    monkeypatch.setattr(kernel_loader, "_call_all_kernels", fail_to_load)
    monkeypatch.setattr(kernel_loader, "_compile_in_child", lambda: None)
    with pytest.warns(UserWarning, match="everything runs without compiled kernels"):
        assert not kernel_loader.load_kernels.__wrapped__()
    assert kernel.exists() and compilation.is_cache_complete()


def test_without_a_compiler_pytorch_runs_with_one_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = compilation.cache_folder()
    assert folder is not None
    compiled = set(folder.rglob("*.nbc"))  # by other tests, because failing kernels are removed
    monkeypatch.setattr(compilation, "cache_folder", lambda: tmp_path)

    def fail() -> None:
        raise RuntimeError("no such processor\nand more")

    monkeypatch.setattr("pellucid.kernels.unroll.warm_up", fail)
    kernel_loader.load_kernels.cache_clear()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            uses_kernels = ComputationRequest("adam", "cpu", "float32", False)
            assert not dispatch.use_kernel(uses_kernels) and not dispatch.use_kernel(uses_kernels)
        assert len(caught) == 1 and "no such processor" in str(caught[0].message)
        supported, memory = (
            build_small_decoder("additive", "gru", 3, 3),
            build_memory(torch.randn(1, 2, 3), torch.tensor([2])),
        )
        symbols = torch.ones(1, 2, dtype=torch.int64)
        logits = supported.unroll(symbols, supported.init_state(memory), supported.build_cache(memory)).logits
        torch.autograd.grad(logits.sum(), list(supported.parameters()))
    finally:
        kernel_loader.load_kernels.cache_clear()
    monkeypatch.undo()
    assert compiled <= set(folder.rglob("*.nbc"))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_kernels_load_in_any_gradient_mode(context: Callable[[], AbstractContextManager[None]]) -> None:
    kernel_loader.load_kernels.cache_clear()
    decoder, symbols = build_small_decoder("additive", "gru", 3, 3), torch.ones(1, 2, dtype=torch.int64)
    with context():
        assert kernel_loader.load_kernels()
        memory = build_memory(torch.randn(1, 2, 3), torch.tensor([2]))
        decoder.unroll(symbols, decoder.init_state(memory), decoder.build_cache(memory))


@pytest.mark.slow
def test_without_numba_pytorch_runs_with_one_warning() -> None:
    program = """
import sys, warnings
sys.modules["numba"] = None
import torch
from pellucid.kernels.backend import ComputationRequest
from pellucid.kernels.dispatch import use_kernel
request = ComputationRequest("adam", "cpu", "float32", False)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert not use_kernel(request) and not use_kernel(request)
assert len(caught) == 1, caught
"""
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.slow
def test_decoding_does_not_import_numba() -> None:
    program = "import sys, pellucid.cli, pellucid.decoding.transducer; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_inference_loads_kernels_only_for_many_hypotheses(monkeypatch: pytest.MonkeyPatch) -> None:
    def uses_kernels(loaded: int, filled: bool, hypotheses: int, device: str = "cpu") -> bool:
        monkeypatch.setattr(kernel_loader.load_kernels, "cache_info", lambda: SimpleNamespace(currsize=loaded))
        monkeypatch.setattr(dispatch, "is_cache_complete", lambda: filled)
        with dispatch.disable_kernels_unless_worth_loading(hypotheses, device):
            return not dispatch.are_kernels_disabled()

    assert uses_kernels(1, False, 1) and uses_kernels(1, True, 1)
    assert uses_kernels(0, True, dispatch.MIN_HYPOTHESES_TO_LOAD) and not uses_kernels(
        0, True, dispatch.MIN_HYPOTHESES_TO_LOAD - 1
    )
    assert not uses_kernels(0, False, 10**6) and uses_kernels(0, False, 1, "cuda")
    for enabled in (True, False):  # the choice of another process decides, except on a GPU
        with dispatch.set_kernels_enabled(enabled):
            assert uses_kernels(0, False, 1) == uses_kernels(1, True, 10**6) == enabled
            assert uses_kernels(0, False, 1, "cuda")
    assert uses_kernels(1, False, 1)
