"""Tiles of matrix products in explicit vectors: what a compiler's own vectors do not do is keep a tile in registers.

Both tiles keep all their sums in registers over the whole sum. A machine with AVX-512 has vectors of 16 numbers and 32
registers, all others are taken to have 8 and 16. Addresses are in bytes; steps from row to row as well.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from common.cpu.compiled import WORD

LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
FLOAT = ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
INDEX = ir.IntType(32)
BYTES = 4  # of a number
Tile = Callable[..., None]


def _shuffle(builder: Any, vector: Any, lanes: Sequence[int]) -> Any:
    mask = ir.Constant(ir.VectorType(INDEX, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _broadcast(builder: Any, number: Any) -> Any:
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(INDEX, 0))
    return _shuffle(builder, first, [0] * LANES)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=BYTES)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=BYTES)


def _multiply_add(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """One instruction where the machine has it."""
    product = builder.fmul(left, right, flags=("contract",))
    return builder.fadd(product, total, flags=("contract",))


def _at(builder: Any, address: Any, offset: int) -> Any:
    return builder.add(address, ir.Constant(WORD, offset)) if offset else address


def _places(builder: Any, address: Any, step: Any, count: int) -> list[Any]:
    places = [address]
    for _ in range(count - 1):
        places.append(builder.add(places[-1], step))
    return places


def _summed(
    builder: Any, count: Any, moving: Sequence[tuple[Any, Any]], tiles: int, term: Callable[..., list[Any]]
) -> list[Any]:
    """A loop of `count` (1 or more) rounds over addresses that move by a step each: `tiles` sums, each a vector."""
    before = builder.basic_block
    loop, done = builder.append_basic_block("sum"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    round_ = builder.phi(WORD)
    round_.add_incoming(ir.Constant(WORD, 0), before)
    addresses = [builder.phi(WORD) for _ in moving]
    sums = [builder.phi(VECTOR) for _ in range(tiles)]
    for phi, (address, _) in zip(addresses, moving, strict=True):
        phi.add_incoming(address, before)
    for phi in sums:
        phi.add_incoming(ir.Constant(VECTOR, [0.0] * LANES), before)
    totals = term(addresses, sums)
    following = builder.add(round_, ir.Constant(WORD, 1))
    round_.add_incoming(following, loop)
    for phi, (_, step) in zip(addresses, moving, strict=True):
        phi.add_incoming(builder.add(phi, step), loop)
    for phi, total in zip(sums, totals, strict=True):
        phi.add_incoming(total, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    builder.position_at_end(done)
    return totals


def outer_tile(rows: int, vectors: int) -> Tile:
    """The function that adds alpha * a @ b to `rows` x `vectors` vectors of out, or sets them.

    Its arguments: a, its step by row and by term, b, its step by term, terms, out, its step by row, alpha, whether to
    add. A number of `a` meets vectors of `b`.
    """

    def tile(typing, a, a_row, a_term, b, b_term, terms, out, out_row, alpha, adds):  # noqa: ARG001
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            a, a_row, a_term, b, b_term, terms, out, out_row, alpha, adds = args

            def term(addresses: list[Any], sums: list[Any]) -> list[Any]:
                right = [_load(builder, _at(builder, addresses[1], BYTES * LANES * v), VECTOR) for v in range(vectors)]
                totals = []
                for row, place in enumerate(_places(builder, addresses[0], a_row, rows)):
                    left = _broadcast(builder, _load(builder, place, FLOAT))
                    own = sums[row * vectors : (row + 1) * vectors]
                    totals += [_multiply_add(builder, left, r, total) for r, total in zip(right, own, strict=True)]
                return totals

            totals = _summed(builder, terms, ((a, a_term), (b, b_term)), rows * vectors, term)
            factor, none = _broadcast(builder, alpha), ir.Constant(VECTOR, [0.0] * LANES)
            kept = builder.icmp_signed("!=", adds, ir.Constant(WORD, 0))
            for row, place in enumerate(_places(builder, out, out_row, rows)):
                for v in range(vectors):
                    at = _at(builder, place, BYTES * LANES * v)
                    before = builder.select(kept, _load(builder, at, VECTOR), none)
                    _store(builder, _multiply_add(builder, factor, totals[row * vectors + v], before), at)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8, types.float32, types.int64), emit

    made: Tile = intrinsic(tile)
    return made


def inner_tile(rows: int, columns: int) -> Tile:
    """The function that sets rows x columns numbers of out to a @ b.T, summed vector by vector.

    Its arguments: a, its step by row, b, its step by row, vectors to sum, out, its step by row.
    """

    def tile(typing, a, a_row, b, b_row, terms, out, out_row):  # noqa: ARG001
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
            a, a_row, b, b_row, terms, out, out_row = args
            step = ir.Constant(WORD, BYTES * LANES)

            def term(addresses: list[Any], sums: list[Any]) -> list[Any]:
                left = [_load(builder, place, VECTOR) for place in _places(builder, addresses[0], a_row, rows)]
                totals: list[Any] = [None] * (rows * columns)
                for column, place in enumerate(_places(builder, addresses[1], b_row, columns)):
                    right = _load(builder, place, VECTOR)
                    for row in range(rows):
                        at = row * columns + column
                        totals[at] = _multiply_add(builder, left[row], right, sums[at])
                return totals

            totals = _summed(builder, terms, ((a, step), (b, step)), rows * columns, term)
            for row, place in enumerate(_places(builder, out, out_row, rows)):
                for column in range(columns):
                    total = totals[row * columns + column]
                    width = LANES
                    while width > 1:
                        width //= 2
                        low, high = range(width), range(width, 2 * width)
                        total = builder.fadd(_shuffle(builder, total, low), _shuffle(builder, total, high))
                    number = builder.extract_element(total, ir.Constant(INDEX, 0))
                    _store(builder, number, _at(builder, place, BYTES * column))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), emit

    made: Tile = intrinsic(tile)
    return made
