"""Matrix products in AVX-512: float32, and bfloat16 with sums in float32.

C += A B, of n rows, K columns of the left and N columns of the right; operands are l × L (left) and r × R (right), one
of which may be transposed. As in other libraries of linear algebra, the right operand is packed panel by panel: K rows
of `PANEL_COLUMNS` columns, contiguous. A microkernel then computes a tile of C, up to 8 rows by `PANEL_COLUMNS`, and
keeps its sums in registers over all of K. The left operand is packed where its numbers are not contiguous along K, or
not yet in bfloat16. K and n are cut into blocks whose packed operands stay in the nearest caches.

PyTorch's MKL and NumPy's OpenBLAS compute with vectors of 256 bits on processors of AMD, half as wide as AVX-512; MKL's
product of bfloat16 converts to float32 there. The products here reach the rate of the processor on all that have the
instructions.

bfloat16 has the 8 bits of the exponent of float32, and 8 significant bits in place of 24. Two of them, consecutive
along K, form one number of 32 bits: the low half is the first. The instruction VCVTNE2PS2BF16 rounds to the nearest,
ties to even; VDPBF16PS multiplies the pairs and adds both products to a float32. Both count subnormal numbers as zero.
On a processor without them the functions on bfloat16 compute nothing, and are not called.

References:
    Van Zee & van de Geijn 2015, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from pellucid.kernels.compilation import njit_no_refcount
from pellucid.shapes import Float, UInt32

VECTOR = 16
"""Numbers of 32 bits in a vector."""
PANEL_COLUMNS = 2 * VECTOR
TILE_ROWS = 8, 4, 2, 1
"""Rows of the tiles. In the largest, 16 vectors of sums, 2 of the right operand and 1 of the left fill most of the 32
registers."""
BLOCK_STEPS = 256
"""Columns of the left operand that are multiplied at once: a packed panel then takes at most 32 KiB."""
BLOCK_ROWS = 128
"""Rows of a packed left operand."""
BLOCK_PAIRS = BLOCK_STEPS // 2
PACKED_ROWS = VECTOR
"""Columns of a transposed left operand that are packed together."""


class InstructionSets(NamedTuple):
    """Which products of this module pay on this processor."""

    float32: bool
    """AVX-512 on a processor of AMD, where MKL and OpenBLAS use half of its width."""
    bfloat16: bool
    """AVX-512 with VDPBF16PS and VCVTNE2PS2BF16 (avx512_bf16): AMD from Zen 4, Intel from Cooper Lake."""


def find_instruction_sets() -> InstructionSets:
    """Return what this processor has; nothing if Numba compiles for another one, or without AVX.

    NUMBA_CPU_NAME and NUMBA_CPU_FEATURES set another processor; NUMBA_ENABLE_AVX=0 removes AVX, as Numba does for some
    processors. LLVM ends the process at an instruction that its target lacks. Before LLVM 16 (Numba before 0.62), the
    type of bfloat16 in both instructions is another.
    """
    if config.CPU_NAME is not None or config.CPU_FEATURES is not None or not config.ENABLE_AVX:
        return InstructionSets(float32=False, bfloat16=False)
    features = binding.get_host_cpu_features()
    name = binding.get_host_cpu_name()
    has_avx512 = features.get("avx512f", False)
    return InstructionSets(
        float32=has_avx512 and name.startswith("znver"),
        bfloat16=has_avx512 and features.get("avx512bf16", False) and binding.llvm_version_info >= (16, 0, 0),
    )


INSTRUCTIONS = find_instruction_sets()
HAS_FLOAT32, HAS_BFLOAT16 = INSTRUCTIONS

UInt32Array = UInt32[np.ndarray, " N"]


class _BFloat16(ir.types.Type):  # type: ignore[misc]
    """LLVM's type `bfloat`, which llvmlite does not name."""

    def _to_string(self) -> str:
        """Return the name of the type."""
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        """Return whether another type is the same."""
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        """Return one hash for all instances, which are equal."""
        return hash(_BFloat16)


INT32, INT64 = ir.IntType(32), ir.IntType(64)
FLOATS, INTEGERS = ir.VectorType(ir.FloatType(), VECTOR), ir.VectorType(INT32, VECTOR)
PAIRS = ir.VectorType(_BFloat16(), 2 * VECTOR)


class _VectorBuilder:
    """Generator of LLVM instructions on vectors of 16 numbers of 32 bits, whose addresses are integers."""

    def __init__(self, builder: Any) -> None:  # noqa: ANN401
        """Prepare the generation.

        Args:
            builder: LLVM's instruction builder.
        """
        self.builder = builder

    def mask(self, count: Any) -> Any:  # noqa: ANN401
        """Return the mask of the first lanes.

        Args:
            count: Number of lanes, a 64-bit integer; all if it is greater than 15, none if it is less than 1.
        """
        lanes = ir.Constant(INTEGERS, list(range(VECTOR)))
        return self.builder.icmp_signed("<", lanes, self.splat(self.builder.trunc(count, INT32), INTEGERS))

    def load(self, address: Any, mask: Any, kind: Any) -> Any:  # noqa: ANN401
        """Return the vector at an address; zero in the lanes that the mask excludes, whose memory is not read.

        Args:
            address: Address of the vector.
            mask: The mask.
            kind: `FLOATS` or `INTEGERS`.
        """
        name = "llvm.masked.load.v16f32.p0" if kind is FLOATS else "llvm.masked.load.v16i32.p0"
        zero = ir.Constant(kind, [0.0 if kind is FLOATS else 0] * VECTOR)
        return self.call(name, kind, self.pointer(address, kind), INT32(4), mask, zero)

    def store(self, vector: Any, address: Any) -> None:  # noqa: ANN401
        """Store an entire vector at an aligned address.

        Args:
            vector: The vector.
            address: Address, a multiple of 64.
        """
        self.builder.store(vector, self.pointer(address, vector.type), align=64)

    def pointer(self, address: Any, kind: Any) -> Any:  # noqa: ANN401
        """Return an address as a pointer.

        Args:
            address: The address.
            kind: Type that the pointer points to.
        """
        return self.builder.inttoptr(address, kind.as_pointer())

    def splat(self, number: Any, kind: Any) -> Any:  # noqa: ANN401
        """Return a vector whose numbers are all the same.

        Args:
            number: The number.
            kind: Type of the vector.
        """
        undefined = ir.Constant(kind, ir.Undefined)
        vector = self.builder.insert_element(undefined, number, INT32(0))
        return self.builder.shuffle_vector(vector, undefined, ir.Constant(INTEGERS, [0] * VECTOR))

    def pairs(self, first: Any, second: Any) -> Any:  # noqa: ANN401
        """Return the pairs of two vectors of float32 in bfloat16, as integers.

        Args:
            first: Numbers of the low halves.
            second: Numbers of the high halves.
        """
        order = [lane // 2 + VECTOR * (lane % 2) for lane in range(2 * VECTOR)]
        interleaved = self.builder.shuffle_vector(
            self._round(first, second),
            ir.Constant(PAIRS, ir.Undefined),
            ir.Constant(ir.VectorType(INT32, 2 * VECTOR), order),
        )
        return self.builder.bitcast(interleaved, INTEGERS)

    def transpose(self, rows: list[Any]) -> list[Any]:
        """Return the columns of a matrix of 16 rows, exchanging blocks of 1, 2, 4 and 8 numbers (Eklundh).

        Args:
            rows: 16 vectors.
        """
        lanes = range(VECTOR)
        for size in (1, 2, 4, 8):
            first = ir.Constant(INTEGERS, [lane if not lane & size else VECTOR + lane - size for lane in lanes])
            second = ir.Constant(INTEGERS, [lane + size if not lane & size else VECTOR + lane for lane in lanes])
            exchanged = list(rows)
            for row in (row for row in lanes if not row & size):
                pair = rows[row], rows[row + size]
                exchanged[row] = self.builder.shuffle_vector(*pair, first)
                exchanged[row + size] = self.builder.shuffle_vector(*pair, second)
            rows = exchanged
        return rows

    def round_row(self, address: Any, count: Any) -> Any:  # noqa: ANN401
        """Return up to 32 consecutive numbers as 16 pairs of bfloat16; the others are zero.

        Args:
            address: Address of the numbers.
            count: How many there are, a 64-bit integer.
        """
        builder = self.builder
        halves = [
            self.load(
                builder.add(address, INT64(4 * VECTOR * j)),
                self.mask(builder.sub(count, INT64(VECTOR * j))),
                FLOATS,
            )
            for j in range(2)
        ]
        return builder.bitcast(self._round(*halves), INTEGERS)

    def _round(self, first: Any, second: Any) -> Any:  # noqa: ANN401
        """Return the numbers of two vectors of float32, one after the other, in bfloat16."""
        return self.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", PAIRS, second, first)

    def call(self, name: str, kind: Any, *arguments: Any) -> Any:  # noqa: ANN401
        """Call an instruction of LLVM.

        Args:
            name: Its name.
            kind: Type of the result.
            *arguments: Its arguments.
        """
        function = ir.FunctionType(kind, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, function, name), arguments)


class _TileBuilder(_VectorBuilder):
    """Generator of the instructions of one microkernel."""

    def __init__(self, builder: Any, rows: int, bfloat16: bool, arguments: Any) -> None:  # noqa: ANN401
        """Prepare the generation.

        Args:
            builder: LLVM's instruction builder.
            rows: Rows of the tile.
            bfloat16: Multiply pairs of bfloat16; otherwise float32.
            arguments: The three arguments of the microkernel (see `_tile_intrinsic`).
        """
        super().__init__(builder)
        self.rows, self.bfloat16 = rows, bfloat16
        self.left, self.left_row, self.left_step = cgutils.unpack_tuple(builder, arguments[0])
        self.right, self.steps = cgutils.unpack_tuple(builder, arguments[1])
        self.result, self.result_row, columns = cgutils.unpack_tuple(builder, arguments[2])
        self.masks = [self.mask(builder.sub(columns, INT64(VECTOR * j))) for j in range(2)]

    def build(self) -> None:
        """Generate: load the tile, add the products of all steps, store the tile."""
        builder = self.builder
        tile = self._tile()
        sums = [self.load(address, mask, FLOATS) for address, mask in tile]
        entry = builder.basic_block
        loop, end = builder.append_basic_block("tile.step"), builder.append_basic_block("tile.end")
        builder.cbranch(builder.icmp_signed(">", self.steps, INT64(0)), loop, end)
        builder.position_at_end(loop)
        counters = [builder.phi(INT64) for _ in range(3)]
        loop_sums = [builder.phi(FLOATS) for _ in sums]
        new_sums = self._step(counters[1], counters[2], loop_sums)
        increments = INT64(1), self.left_step, INT64(4 * PANEL_COLUMNS)
        next_counters = [builder.add(*pair) for pair in zip(counters, increments, strict=True)]
        builder.cbranch(builder.icmp_signed("<", next_counters[0], self.steps), loop, end)
        first_counters = INT64(0), self.left, self.right
        for phi, first, following in (
            *zip(counters, first_counters, next_counters, strict=True),
            *zip(loop_sums, sums, new_sums, strict=True),
        ):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        builder.position_at_end(end)
        totals = [builder.phi(FLOATS) for _ in sums]
        for phi, first, following in zip(totals, sums, new_sums, strict=True):
            phi.add_incoming(first, entry)
            phi.add_incoming(following, loop)
        for total, (address, mask) in zip(totals, tile, strict=True):
            arguments = total, self.pointer(address, FLOATS), INT32(4), mask
            self.call("llvm.masked.store.v16f32.p0", ir.VoidType(), *arguments)

    def _step(self, left: Any, right: Any, sums: list[Any]) -> list[Any]:  # noqa: ANN401
        """Return the sums with the products of one step, whose operands begin at these addresses, added."""
        builder = self.builder
        kind = INTEGERS if self.bfloat16 else FLOATS
        right_vectors = [
            builder.load(self.pointer(builder.add(right, INT64(4 * VECTOR * j)), kind), align=64) for j in range(2)
        ]
        new_sums = []
        for row in range(self.rows):
            address = builder.add(left, builder.mul(self.left_row, INT64(row)))
            number = builder.load(self.pointer(address, INT32 if self.bfloat16 else ir.FloatType()), align=4)
            left_vector = self.splat(number, kind)
            for j in range(2):
                new_sums.append(self._add_product(left_vector, right_vectors[j], sums[2 * row + j]))
        return new_sums

    def _add_product(self, left: Any, right: Any, total: Any) -> Any:  # noqa: ANN401
        """Return the sum with the product of two vectors added."""
        if not self.bfloat16:
            return self.call("llvm.fma.v16f32", FLOATS, left, right, total)
        pairs = [self.builder.bitcast(vector, PAIRS) for vector in (left, right)]
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, total, *pairs)

    def _tile(self) -> list[tuple[Any, Any]]:
        """Return the address and the mask of each vector of the tile, row by row."""
        builder = self.builder
        rows = [builder.add(self.result, builder.mul(self.result_row, INT64(row))) for row in range(self.rows)]
        return [(builder.add(start, INT64(4 * VECTOR * j)), self.masks[j]) for start in rows for j in range(2)]


def _tile_intrinsic(rows: int, bfloat16: bool) -> Callable[..., None]:
    """Return the microkernel of a number of rows: result += left right, of at most `PANEL_COLUMNS` columns.

    Its arguments are tuples of integers: address of the left operand, bytes between its rows, bytes between its steps;
    address of the packed right operand, number of steps (for bfloat16, pairs of steps); address of the result, bytes
    between its rows, and its columns. On a processor without the instructions it computes nothing, and is not called.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def add_tile(typing: Any, left: Any, right: Any, result: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
        """Generate the microkernel."""

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
            """Generate the instructions.

            Args:
                context: Numba's target context.
                builder: LLVM's instruction builder.
                _: Signature of the call.
                arguments: Values of the arguments.
            """
            if HAS_BFLOAT16 if bfloat16 else HAS_FLOAT32:
                _TileBuilder(builder, rows, bfloat16, arguments).build()
            return context.get_dummy_value()

        return types.void(*(types.UniTuple(types.int64, length) for length in (3, 2, 3))), generate

    return add_tile  # type: ignore[no-any-return]


_tile_8, _tile_4, _tile_2, _tile_1 = (_tile_intrinsic(rows, False) for rows in TILE_ROWS)
_bfloat16_tile_8, _bfloat16_tile_4, _bfloat16_tile_2, _bfloat16_tile_1 = (
    _tile_intrinsic(rows, True) for rows in TILE_ROWS
)


@intrinsic  # type: ignore[untyped-decorator]
def _copy_vector(typing: Any, source: Any, count: Any, target: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
    """Copy up to 16 numbers of 32 bits, and zeros beyond them, to an aligned address; all arguments are integers."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
        """Generate the instructions.

        Args:
            context: Numba's target context.
            builder: LLVM's instruction builder.
            _: Signature of the call.
            arguments: Addresses and number.
        """
        vectors = _VectorBuilder(builder)
        source_address, number, target_address = arguments
        vectors.store(vectors.load(source_address, vectors.mask(number), INTEGERS), target_address)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _round_vectors(
    typing: Any,  # noqa: ANN401
    first: Any,  # noqa: ANN401
    second: Any,  # noqa: ANN401
    counts: Any,  # noqa: ANN401
    target: Any,  # noqa: ANN401
) -> tuple[Any, Callable[..., Any]]:
    """Write the pairs of up to 16 numbers at one address with those at another, in bfloat16, to an aligned address.

    `counts` are how many numbers there are at each address; the others are zero.
    """

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
        """Generate the instructions.

        Args:
            context: Numba's target context.
            builder: LLVM's instruction builder.
            _: Signature of the call.
            arguments: Addresses and numbers.
        """
        vectors = _VectorBuilder(builder)
        first_address, second_address, numbers, target_address = arguments
        masks = [vectors.mask(builder.extract_value(numbers, index)) for index in range(2)]
        halves = vectors.load(first_address, masks[0], FLOATS), vectors.load(second_address, masks[1], FLOATS)
        if HAS_BFLOAT16:
            vectors.store(vectors.pairs(*halves), target_address)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.UniTuple(types.int64, 2), types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _round_row(typing: Any, source: Any, count: Any, target: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
    """Write up to 32 consecutive numbers as 16 pairs of bfloat16, the others zero, to an aligned address."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
        """Generate the instructions.

        Args:
            context: Numba's target context.
            builder: LLVM's instruction builder.
            _: Signature of the call.
            arguments: Addresses and number.
        """
        vectors = _VectorBuilder(builder)
        source_address, number, target_address = arguments
        if HAS_BFLOAT16:
            vectors.store(vectors.round_row(source_address, number), target_address)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _transpose_intrinsic(bfloat16: bool) -> Callable[..., None]:
    """Return a function that writes up to 16 rows as columns of a panel: 16 numbers of each row, or 32 as 16 pairs.

    Its arguments are integers: address of the rows, bytes between them, number of rows, numbers of a row, and the
    address of the first column's first number in the panel. Other numbers of the columns become zero.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def transpose(
        typing: Any,  # noqa: ANN401
        source: Any,  # noqa: ANN401
        row_bytes: Any,  # noqa: ANN401
        rows: Any,  # noqa: ANN401
        count: Any,  # noqa: ANN401
        target: Any,  # noqa: ANN401
    ) -> tuple[Any, Callable[..., Any]]:
        """Generate the transposition."""

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:  # noqa: ANN401
            """Generate the instructions.

            Args:
                context: Numba's target context.
                builder: LLVM's instruction builder.
                _: Signature of the call.
                arguments: Values of the arguments.
            """
            if bfloat16 and not HAS_BFLOAT16:
                return context.get_dummy_value()
            vectors = _VectorBuilder(builder)
            address, distance, num_rows, numbers, target_address = arguments
            loaded = []
            for row in range(VECTOR):
                exists = builder.icmp_signed("<", INT64(row), num_rows)
                row_numbers = builder.select(exists, numbers, INT64(0))
                row_address = builder.add(address, builder.mul(distance, INT64(row)))
                loaded.append(
                    vectors.round_row(row_address, row_numbers)
                    if bfloat16
                    else vectors.load(row_address, vectors.mask(row_numbers), INTEGERS)
                )
            for step, column in enumerate(vectors.transpose(loaded)):
                vectors.store(column, builder.add(target_address, INT64(4 * PANEL_COLUMNS * step)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), generate

    return transpose  # type: ignore[no-any-return]


_transpose_block, _transpose_pairs = _transpose_intrinsic(False), _transpose_intrinsic(True)


def _scratch_intrinsic(words: int) -> Callable[[], UInt32Array]:
    """Return a function that returns an uninitialized array on the stack of its caller, aligned to a cache line."""

    @intrinsic  # type: ignore[untyped-decorator]
    def scratch(typing: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401
        """Generate the allocation."""
        array_type = types.Array(types.uint32, 1, "C")

        def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:  # noqa: ANN401
            """Generate the instructions.

            Args:
                context: Numba's target context.
                builder: LLVM's instruction builder.
                _: Signature of the call.
                __: No arguments.
            """
            with builder.goto_entry_block():  # cgutils.alloca_once would fill the array with zeros at every call
                slot = builder.alloca(ir.ArrayType(INTEGERS, words // VECTOR))
            slot.align = 64
            array = arrayobj.make_array(array_type)(context, builder)
            size, width = (context.get_constant(types.intp, number) for number in (words, 4))
            arrayobj.populate_array(
                array,
                data=builder.bitcast(slot, INT32.as_pointer()),
                shape=cgutils.pack_array(builder, [size]),
                strides=cgutils.pack_array(builder, [width]),
                itemsize=width,
                meminfo=None,
            )
            return array._getvalue()

        return array_type(), generate

    return scratch  # type: ignore[no-any-return]


_panel_scratch = _scratch_intrinsic(BLOCK_STEPS * PANEL_COLUMNS)
_left_scratch = _scratch_intrinsic(BLOCK_STEPS * BLOCK_ROWS)
_bfloat16_panel_scratch = _scratch_intrinsic(BLOCK_PAIRS * PANEL_COLUMNS)
_bfloat16_left_scratch = _scratch_intrinsic(BLOCK_PAIRS * BLOCK_ROWS)


@njit_no_refcount
def add_product_float32(
    left: Float[np.ndarray, "l L"],
    right: Float[np.ndarray, "r R"],
    transposed: tuple[bool, bool],
    result: Float[np.ndarray, "n N"],
) -> None:
    """Compute result += the product of the operands in float32; only if `HAS_FLOAT32`.

    In each operand the numbers of a row are contiguous; rows may be apart.

    Args:
        left: Left operand.
        right: Right operand.
        transposed: Whether the left and the right operand are transposed in the product.
        result: n rows and N columns, changed in place; overlaps no operand.
    """
    n, columns = result.shape
    steps = left.shape[0] if transposed[0] else left.shape[1]
    panel, packed = _panel_scratch().view(np.float32), _left_scratch().view(np.float32)
    block_rows = BLOCK_ROWS if transposed[0] else max(n, 1)
    for first_step in range(0, steps, BLOCK_STEPS):
        count = min(BLOCK_STEPS, steps - first_step)
        for first_row in range(0, n, block_rows):
            rows = min(block_rows, n - first_row)
            address = left.ctypes.data + first_row * left.strides[0] + 4 * first_step
            row_bytes = left.strides[0]
            group_bytes = PACKED_ROWS * row_bytes
            step_bytes = 4
            if transposed[0]:
                _pack_rows_t(left[first_step : first_step + count, first_row : first_row + rows], packed)
                address = packed.ctypes.data
                row_bytes = 4
                group_bytes, step_bytes = 4 * PACKED_ROWS * BLOCK_STEPS, 4 * PACKED_ROWS
            for column in range(0, columns, PANEL_COLUMNS):
                width = min(PANEL_COLUMNS, columns - column)
                if transposed[1]:
                    _pack_panel_t(right[column : column + width, first_step : first_step + count], panel)
                else:
                    _pack_panel(right[first_step : first_step + count, column : column + width], panel)
                result_address = result.ctypes.data + first_row * result.strides[0] + 4 * column
                row = 0
                while row < rows:
                    left_address = address + row // PACKED_ROWS * group_bytes + row % PACKED_ROWS * row_bytes
                    tile = result_address + row * result.strides[0], result.strides[0], width
                    tile_left = left_address, row_bytes, step_bytes
                    row += _add_tile(tile_left, (panel.ctypes.data, count), tile, rows - row)


@njit_no_refcount
def _add_tile(left: tuple[int, int, int], right: tuple[int, int], result: tuple[int, int, int], rows: int) -> int:
    """Add the product to the largest tile of at most these rows; return its number of rows."""
    if rows >= 8:
        _tile_8(left, right, result)
        return 8
    if rows >= 4:
        _tile_4(left, right, result)
        return 4
    if rows >= 2:
        _tile_2(left, right, result)
        return 2
    _tile_1(left, right, result)
    return 1


@njit_no_refcount
def _pack_panel(right: Float[np.ndarray, "k w"], panel: Float[np.ndarray, " N"]) -> None:
    """Copy every row of the right operand to its place in the panel."""
    source, target = right.ctypes.data, panel.ctypes.data
    for _ in range(right.shape[0]):
        for first in range(0, PANEL_COLUMNS, VECTOR):
            _copy_vector(source + 4 * first, right.shape[1] - first, target + 4 * first)
        source += right.strides[0]
        target += 4 * PANEL_COLUMNS


@njit_no_refcount
def _pack_panel_t(right: Float[np.ndarray, "w k"], panel: Float[np.ndarray, " N"]) -> None:
    """Copy every row of the transposed right operand to its column of the panel."""
    width, steps = right.shape
    for first in range(0, width, VECTOR):
        source = right.ctypes.data + first * right.strides[0]
        for step in range(0, steps, VECTOR):
            target = panel.ctypes.data + 4 * (step * PANEL_COLUMNS + first)
            _transpose_block(source + 4 * step, right.strides[0], width - first, steps - step, target)
    if width <= VECTOR:
        _clear_second_vectors(panel.ctypes.data, steps)


@njit_no_refcount
def _clear_second_vectors(panel: int, steps: int) -> None:
    """Write zeros to the second vector of each step of a panel at an address: the microkernel reads both vectors."""
    for step in range(steps):
        target = panel + 4 * (step * PANEL_COLUMNS + VECTOR)
        _copy_vector(target, 0, target)


@njit_no_refcount
def _pack_rows_t(left: Float[np.ndarray, "k m"], packed: Float[np.ndarray, " N"]) -> None:
    """Copy the transposed left operand: of each `PACKED_ROWS` of its columns, the numbers of a step are contiguous."""
    for first in range(0, left.shape[1], PACKED_ROWS):
        source, target = left.ctypes.data + 4 * first, packed.ctypes.data + 4 * first * BLOCK_STEPS
        for _ in range(left.shape[0]):
            _copy_vector(source, left.shape[1] - first, target)
            source += left.strides[0]
            target += 4 * PACKED_ROWS


@njit_no_refcount
def add_product_bfloat16(
    left: Float[np.ndarray, "l L"],
    right: Float[np.ndarray, "r R"],
    transposed: tuple[bool, bool],
    result: Float[np.ndarray, "n N"],
) -> None:
    """Compute result += the product of the operands, rounded to bfloat16, in float32; only if `HAS_BFLOAT16`.

    In each operand the numbers of a row are contiguous; rows may be apart.

    Args:
        left: Left operand.
        right: Right operand.
        transposed: Whether the left and the right operand are transposed in the product.
        result: n rows and N columns, changed in place; overlaps no operand.
    """
    n, columns = result.shape
    steps = left.shape[0] if transposed[0] else left.shape[1]
    panel = _bfloat16_panel_scratch()
    packed = _bfloat16_left_scratch()
    row_bytes, step_bytes = (4, 4 * PACKED_ROWS) if transposed[0] else (4 * BLOCK_PAIRS, 4)
    for first_step in range(0, steps, BLOCK_STEPS):
        count = min(BLOCK_STEPS, steps - first_step)
        for first_row in range(0, n, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, n - first_row)
            if transposed[0]:
                _round_rows_t(left[first_step : first_step + count, first_row : first_row + rows], packed)
            else:
                _round_rows(left[first_row : first_row + rows, first_step : first_step + count], packed)
            for column in range(0, columns, PANEL_COLUMNS):
                width = min(PANEL_COLUMNS, columns - column)
                if transposed[1]:
                    _round_panel_t(right[column : column + width, first_step : first_step + count], panel)
                else:
                    _round_panel(right[first_step : first_step + count, column : column + width], panel)
                result_address = result.ctypes.data + first_row * result.strides[0] + 4 * column
                row = 0
                while row < rows:
                    group = row // PACKED_ROWS * 4 * PACKED_ROWS * BLOCK_PAIRS
                    left_address = packed.ctypes.data + group + row % PACKED_ROWS * row_bytes
                    tile = result_address + row * result.strides[0], result.strides[0], width
                    tile_left = left_address, row_bytes, step_bytes
                    row += _add_bfloat16_tile(tile_left, (panel.ctypes.data, (count + 1) // 2), tile, rows - row)


@njit_no_refcount
def _add_bfloat16_tile(
    left: tuple[int, int, int], right: tuple[int, int], result: tuple[int, int, int], rows: int
) -> int:
    """Add the product of pairs to the largest tile of at most these rows; return its number of rows."""
    if rows >= 8:
        _bfloat16_tile_8(left, right, result)
        return 8
    if rows >= 4:
        _bfloat16_tile_4(left, right, result)
        return 4
    if rows >= 2:
        _bfloat16_tile_2(left, right, result)
        return 2
    _bfloat16_tile_1(left, right, result)
    return 1


@njit_no_refcount
def _round_panel(right: Float[np.ndarray, "k w"], panel: UInt32Array) -> None:
    """Write the pairs of each two rows of the right operand; the last row of an odd number is paired with zeros."""
    source, target = right.ctypes.data, panel.ctypes.data
    for step in range(0, right.shape[0], 2):
        for first in range(0, PANEL_COLUMNS, VECTOR):
            width, address = right.shape[1] - first, source + 4 * first
            counts = width, width if step + 1 < right.shape[0] else 0
            _round_vectors(address, address + right.strides[0], counts, target + 4 * first)
        source += 2 * right.strides[0]
        target += 4 * PANEL_COLUMNS


@njit_no_refcount
def _round_rows(left: Float[np.ndarray, "m k"], packed: UInt32Array) -> None:
    """Write the pairs of each row of the left operand."""
    for row in range(left.shape[0]):
        source = left.ctypes.data + row * left.strides[0]
        target = packed.ctypes.data + 4 * row * BLOCK_PAIRS
        for first in range(0, left.shape[1], 2 * VECTOR):
            _round_row(source + 4 * first, left.shape[1] - first, target + 2 * first)


@njit_no_refcount
def _round_rows_t(left: Float[np.ndarray, "k m"], packed: UInt32Array) -> None:
    """Write the pairs of the transposed left operand: of each `PACKED_ROWS` columns, those of a step are contiguous."""
    for first in range(0, left.shape[1], PACKED_ROWS):
        source, target = left.ctypes.data + 4 * first, packed.ctypes.data + 4 * first * BLOCK_PAIRS
        width = left.shape[1] - first
        for step in range(0, left.shape[0], 2):
            counts = width, width if step + 1 < left.shape[0] else 0
            _round_vectors(source, source + left.strides[0], counts, target)
            source += 2 * left.strides[0]
            target += 4 * PACKED_ROWS


@njit_no_refcount
def _round_panel_t(right: Float[np.ndarray, "w k"], panel: UInt32Array) -> None:
    """Write the pairs of each row of the transposed right operand to its column of the panel."""
    width, steps = right.shape
    for first in range(0, width, VECTOR):
        source = right.ctypes.data + first * right.strides[0]
        for step in range(0, steps, 2 * VECTOR):
            target = panel.ctypes.data + 4 * (step // 2 * PANEL_COLUMNS + first)
            _transpose_pairs(source + 4 * step, right.strides[0], width - first, steps - step, target)
    if width <= VECTOR:
        _clear_second_vectors(panel.ctypes.data, (steps + 1) // 2)
