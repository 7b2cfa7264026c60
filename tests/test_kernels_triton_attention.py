"""The Triton kernel of additive attention compared with PyTorch, on a GPU or in Triton's interpreter."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import SEEDS, SIZES, assert_named_tensors_close, compute_gradients, draw_lengths

from pellucid.kernels.dispatch import MAX_TRITON_POSITIONS, disable_kernels, use_kernel
from pellucid.kernels.kernel_loader import load_triton_kernel
from pellucid.model import attention
from pellucid.model.attention import AdditiveAttention
from pellucid.model.memory import AttentionOutput, DecoderCache, DecoderState, Memory

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")


@contextmanager
def force_kernel() -> Iterator[None]:
    """Use the kernel on every device: by default it is not used on the CPU, on which the tests interpret it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "use_kernel", lambda request: request.computation == "attention")
        yield


def build_cache(states: torch.Tensor, keys: torch.Tensor, lengths: torch.Tensor) -> DecoderCache:
    return DecoderCache(Memory(states, lengths, DecoderState(states[:, :1])), keys)


@needs_triton
@given(st.data(), SIZES, SIZES, SEEDS)
@settings(max_examples=60, deadline=None)
def test_attention_and_gradients_equal_pytorch(data: st.DataObject, units: int, memory: int, seed: int) -> None:
    """Context, weights and all gradients agree; memory and keys are not contiguous."""
    rows, positions, queries = (data.draw(st.integers(1, maximum)) for maximum in (4, 70, 9))
    torch.manual_seed(seed)
    attend = AdditiveAttention(queries, memory, units).to(DEVICE)
    lengths = draw_lengths(data, rows, positions).to(DEVICE)
    inputs = {
        "query": torch.randn(rows, queries, device=DEVICE),
        "states": torch.randn(positions, rows, memory, device=DEVICE),
        "keys": torch.randn(units, rows, positions, device=DEVICE) * data.draw(st.sampled_from([1.0, 30.0])),
    }
    output_indices = data.draw(st.sampled_from([(0,), (1,), (0, 1)]))

    def outputs() -> list[torch.Tensor]:
        cache = build_cache(inputs["states"].transpose(0, 1), inputs["keys"].permute(1, 2, 0), lengths)
        output: AttentionOutput = attend(inputs["query"], cache, None)
        return [output[:2][index] for index in output_indices]

    for tensor in inputs.values():
        tensor.requires_grad_()
    all_inputs = {**inputs, **{name: p for name, p in attend.named_parameters() if "key" not in name}}
    expected = compute_gradients(outputs, all_inputs, seed)
    with force_kernel():
        actual = compute_gradients(outputs, all_inputs, seed)
    # If only the weights are used, the states are not read: PyTorch then returns no gradient instead of zeros.
    expected.setdefault("states", torch.zeros_like(inputs["states"]))
    assert_named_tensors_close(actual, expected)


@needs_triton
def test_padding_is_never_read() -> None:
    torch.manual_seed(0)
    attend, lengths = AdditiveAttention(3, 4, 5).to(DEVICE), torch.tensor([2, 6, 1], device=DEVICE)
    query = torch.randn(3, 3, device=DEVICE)
    states, keys = torch.randn(3, 6, 4, device=DEVICE), torch.randn(3, 6, 5, device=DEVICE)
    padding = (torch.arange(6, device=DEVICE) >= lengths[:, None])[:, :, None]
    results = []
    for filling in (0.0, torch.nan):
        inputs = {"states": states.masked_fill(padding, filling), "keys": keys.masked_fill(padding, filling)}
        cache = build_cache(inputs["states"].requires_grad_(), inputs["keys"].requires_grad_(), lengths)
        with force_kernel():
            results.append(compute_gradients(lambda cache=cache: list(attend(query, cache, None)[:2]), inputs, 0))  # type: ignore[misc]
    assert_named_tensors_close(results[1], results[0], tolerance=0)
    for name in ("states", "keys"):
        assert (results[0][name][padding.expand_as(results[0][name])] == 0).all()
    assert (results[0]["output 1"][padding[:, :, 0]] == 0).all()


@needs_triton
def test_sums_are_in_float32_for_all_input_types() -> None:
    """Under bf16 autocast only the query and the keys are rounded."""
    torch.manual_seed(0)
    from pellucid.kernels.triton_attention import attend_additive

    query, energy, keys, states = (torch.randn(*shape, device=DEVICE) for shape in ((2, 6), (6,), (2, 9, 6), (2, 9, 4)))
    lengths = torch.tensor([9, 5], device=DEVICE)
    rounded = [query.bfloat16(), energy, keys.bfloat16(), states]
    results = []
    for tensors in (rounded, [tensor.float() for tensor in rounded]):
        query, energy, keys, states = (tensor.requires_grad_() for tensor in tensors)
        inputs = {"query": query, "energy": energy, "keys": keys, "states": states}
        context, weights = attend_additive(query, energy, keys, states, lengths)
        results.append(compute_gradients(lambda outputs=(context, weights): outputs, inputs, 0))  # type: ignore[misc]
    dtypes = {name: tensor.dtype for name, tensor in results[0].items()}
    half, full = torch.bfloat16, torch.float32
    assert list(dtypes.values()) == [full, full, half, full, half, full]
    half_gradients = {name: tensor.float() for name, tensor in results[0].items() if tensor.dtype == half}
    # The interpreter truncates to bfloat16, a GPU rounds.
    assert_named_tensors_close(half_gradients, {name: results[1][name] for name in half_gradients}, tolerance=2**-7)
    full_gradients = {name: tensor for name, tensor in results[0].items() if tensor.dtype == full}
    assert_named_tensors_close(full_gradients, {name: results[1][name] for name in full_gradients}, tolerance=0)


@needs_triton
def test_a_long_source_fits_into_one_program() -> None:
    torch.manual_seed(0)
    attend, lengths = AdditiveAttention(2, 2, 3).to(DEVICE), torch.tensor([MAX_TRITON_POSITIONS, 17], device=DEVICE)
    states = torch.randn(2, MAX_TRITON_POSITIONS, 2, device=DEVICE)
    cache = build_cache(states, attend.key_projection(states).detach(), lengths)
    query = torch.randn(2, 2, device=DEVICE)
    with torch.no_grad(), force_kernel():
        actual = attend(query, cache, None)[:2]
    with torch.no_grad(), disable_kernels():
        torch.testing.assert_close(actual, attend(query, cache, None)[:2], rtol=1e-4, atol=1e-6)


@needs_triton
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernels_compile_for_an_absent_gpu(tmp_path: Path, capability: int) -> None:
    """Every stage of Triton runs except the launch."""
    program = f"""
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime.jit import JITFunction
import pellucid.kernels.triton_attention as gpu

class Absent(CudaDriver):
    def __init__(self): pass
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", {capability}, 32)

def compile_only(self, *given, grid, warmup, **options):
    print(run(self, *given, grid=grid, warmup=True, **options).name)

triton.runtime.driver.set_active(Absent())
run, JITFunction.run = JITFunction.run, compile_only
given = [torch.randn(2, 6), torch.randn(6), torch.randn(2, 9, 6), torch.randn(2, 9, 4)]
outputs = gpu.attend_additive(*(tensor.requires_grad_() for tensor in given), torch.tensor([9, 5]))
for output in outputs:
    torch.autograd.grad(output.sum(), given, retain_graph=True)
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.stdout.split() == ["_attention_forward", "_attention_backward", "_attention_backward"], result.stderr


@needs_triton
@given(st.data(), SIZES, SEEDS)
@settings(max_examples=30, deadline=None)
def test_several_queries_attend_to_one_source(data: st.DataObject, units: int, seed: int) -> None:
    """Beam search has several queries per source; gradients need exactly one query per source."""
    sources, num_queries, positions, memory = (data.draw(st.integers(1, maximum)) for maximum in (3, 5, 20, 9))
    torch.manual_seed(seed)
    attend, lengths = AdditiveAttention(3, memory, units).to(DEVICE), draw_lengths(data, sources, positions)
    states = torch.randn(sources, positions, memory, device=DEVICE)
    cache = build_cache(states, attend.key_projection(states).detach(), lengths.to(DEVICE))
    query = torch.randn(sources * num_queries, 3, device=DEVICE)
    with torch.no_grad(), disable_kernels():
        reference = attend(query, cache, None)
        expected = {"context": reference.context, "weights": reference.weights}
    with torch.no_grad(), force_kernel():
        actual = attend(query, cache, None)
    assert_named_tensors_close({"context": actual.context, "weights": actual.weights}, expected)
    if num_queries > 1:
        with force_kernel(), pytest.raises(NotImplementedError, match="one query a source"):
            attend(query, cache, None).context.sum().backward()


def is_kernel_used(queries: int, device: str, dtype: torch.dtype = torch.float32) -> bool:
    attend = AdditiveAttention(4, 2, 3).to(device)
    states, keys = torch.zeros(1, 2, 2, device=device), torch.zeros(1, 2, 3, device=device, dtype=dtype)
    cache = build_cache(states, keys, torch.tensor([2], device=device))
    return use_kernel(attend.request(torch.zeros(queries, 4, device=device), cache, None))


def test_the_kernel_is_not_used_on_a_cpu() -> None:
    assert not is_kernel_used(1, "cpu")


def test_without_triton_pytorch_runs_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "pellucid.kernels.triton_attention", raising=False)
    load_triton_kernel.cache_clear()
    try:
        with pytest.warns(
            UserWarning, match=r"^attention runs without its kernel for GPUs, slower: .*triton"
        ) as recorded:
            assert not load_triton_kernel() and not load_triton_kernel()
        assert len(recorded) == 1
    finally:
        load_triton_kernel.cache_clear()


@needs_triton
def test_disabled_kernels_are_not_used() -> None:
    import_module("pellucid.kernels.triton_attention")
    if DEVICE == "cpu":
        pytest.skip("needs a GPU")
    assert is_kernel_used(1, DEVICE) and not is_kernel_used(1, DEVICE, torch.float64)
    assert not is_kernel_used(2, DEVICE)
    with torch.no_grad():
        assert is_kernel_used(2, DEVICE)
    with disable_kernels():
        assert not is_kernel_used(1, DEVICE)
