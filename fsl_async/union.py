"""Private set union: a round that finds which rows anybody selected, and the smaller task that the next one works on.

A union round is an aggregation like any other, over Z_2^64 with one weight per row: every client adds a fresh random
number, never 0, to each of its rows. The sum is nonzero exactly on the union (except with probability 2^-64 per row)
and uniformly random there, so it does not show how many clients selected a row. Afterwards rows are renamed by their
rank in the union, or moved plainly, without trees, where the union is small.

**The union itself becomes known to both servers and to every client.** A task opts into that with `alignment="union"`.
Rows that are moved plainly are all of them, shared between the two servers like a dense block. The rows of a union are
public, so trees hide nothing in moving all of them: a client downloads them whole, and splits its updates, zeros where
it has none, into two shares. Which way a block takes stands in the round's configuration, so what a client sends says
nothing about its rows; how servers choose is in `fsl_async.bin_count`.

Source: paper §"Optimisations" (PSU); design §7.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async.digests import Buffer, Domain, digest
from fsl_async.errors import PeerViolationError
from fsl_async.geometry import RowNumbers
from fsl_async.ring import Ring
from fsl_async.task import Binned, Block, Plain, ProtocolName, Sparse, Task

BITMAP, GAPS = b"\x00", b"\x01"


class UnionBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The union of one sparse block: how many rows, and the digest of its packed form."""

    name: str
    size: int
    digest: bytes


@lru_cache(maxsize=64)
def union_task(task: Task) -> Task:
    """The task of a union round: the same sparse blocks, with one 64-bit number per row."""
    blocks = tuple(msgspec.structs.replace(block, width=1) for _, block in task.sparse_blocks())
    return msgspec.structs.replace(
        task.carrying(*blocks), ring=Ring(64), alignment="all", largest=None, bound=None, bound_proof="exact"
    )


@lru_cache(maxsize=64)
def shape_of_round(task: Task, protocol: ProtocolName, union: tuple[UnionBlock, ...], bins: tuple[int, ...]) -> Task:
    """The task as a round works on it: its sparse blocks know their bins, or are aligned on a union, or move plainly.

    Args:
        task: what is learnt.
        protocol: what the round runs; one that finds a union sums one 64-bit number per row.
        union: the union of each sparse block that the round is aligned on; empty where it is not aligned.
        bins: of each sparse block; 0 where it moves plainly.
    """
    numbers = iter(bins)
    blocks = tuple(
        _in_round(task, block, union, next(numbers)) if isinstance(block, Sparse) else block for block in task.blocks
    )
    shape = msgspec.structs.replace(task, blocks=blocks, alignment="all" if union else task.alignment)
    return union_task(shape) if protocol == "psu" else shape


def planted(task: Task, block: Sparse, union: tuple[UnionBlock, ...]) -> Sparse:
    """A block as trees stand over it in a round that is aligned on that union, if on any: over the union's rows alone.

    Where the selection is fixed, trees stay as they were planted, over all rows, and only their conversion is aligned.
    """
    if not union or task.selection == "fixed":
        return block
    rows = rows_of(union, block)
    return msgspec.structs.replace(block, rows=rows, select=min(block.select, rows))


def rows_of(union: tuple[UnionBlock, ...], block: Sparse) -> int:
    """How many rows the union of a block has in a round that is aligned on it: an empty one counts as one."""
    return max(1, next(entry.size for entry in union if entry.name == block.name))


def _in_round(task: Task, block: Sparse, union: tuple[UnionBlock, ...], bins: int) -> Block:
    return Binned.of(planted(task, block, union), bins) if bins else Plain.of(block, rows_of(union, block))


def union_rows(sums: npt.NDArray[np.int64]) -> RowNumbers:
    """The rows whose revealed sum is not zero, ascending."""
    return np.flatnonzero(sums.reshape(len(sums), -1).any(axis=1)).astype(np.uint32)


def describe_union(name: str, rows: RowNumbers, domain: int) -> UnionBlock:
    """What a round's configuration and outcome say of one union among `domain` rows."""
    return UnionBlock(name, len(rows), digest(Domain.UNION, name.encode(), pack_union(rows, domain)))


def pack_union(rows: RowNumbers, domain: int) -> bytes:
    """Ascending rows in the smaller of two forms: a bitmap, or the gaps between them as base-128 numbers."""
    before = np.concatenate([[-1], rows[:-1].astype(np.int64)]) if len(rows) else np.zeros(0, dtype=np.int64)
    gaps = _pack_gaps(rows.astype(np.int64) - before - 1)
    if len(gaps) < -(-domain // 8):
        return GAPS + gaps
    bitmap = np.zeros(domain, dtype=bool)
    bitmap[rows] = True
    return BITMAP + np.packbits(bitmap, bitorder="little").tobytes()


def unpack_union(data: Buffer, domain: int, sender: str) -> RowNumbers:
    """Read what `pack_union` wrote.

    Raises:
        PeerViolationError: it is not that.
    """
    form, body = bytes(data[:1]), np.frombuffer(data[1:], dtype=np.uint8)
    if form == BITMAP and len(body) == -(-domain // 8):
        rows = np.flatnonzero(np.unpackbits(body, count=domain, bitorder="little"))
    elif form == GAPS and (not len(body) or body[-1] < 128):
        rows = np.cumsum(_unpack_gaps(body, sender) + 1) - 1
    else:
        raise PeerViolationError(sender, "sent a union that is neither a bitmap nor a list of gaps")
    if (len(rows) and rows[-1] >= domain) or pack_union(rows.astype(np.uint32), domain) != bytes(data):
        raise PeerViolationError(sender, f"sent a union that is not a set of rows below {domain} in its canonical form")
    return rows.astype(np.uint32)


def _pack_gaps(gaps: npt.NDArray[np.int64]) -> bytes:
    """Base 128, lowest digit first, the top bit set on all digits but a number's last."""
    digits = np.stack([(gaps >> shift) & 127 for shift in range(0, 35, 7)], axis=1).astype(np.uint8)
    used = np.maximum(1, np.ceil(np.log2(gaps + 1) / 7).astype(np.int64)) if len(gaps) else np.zeros(0, dtype=np.int64)
    used += gaps >> (7 * used) > 0  # where the logarithm was rounded down
    place = np.arange(5)
    digits[place < (used - 1)[:, None]] |= 128
    return digits[place < used[:, None]].tobytes()


def _unpack_gaps(body: npt.NDArray[np.uint8], sender: str) -> npt.NDArray[np.int64]:
    last = body < 128
    number: npt.NDArray[np.intp] = np.cumsum(last) - last  # which number each digit belongs to
    starts = np.flatnonzero(np.concatenate([[True], last[:-1]])) if len(body) else np.zeros(0, dtype=np.intp)
    place = np.arange(len(body)) - starts[number] if len(body) else np.zeros(0, dtype=np.intp)
    if len(body) and place.max() >= 5:
        raise PeerViolationError(sender, "sent a union with a gap of more than 35 bits")
    gaps = np.zeros(len(starts), dtype=np.int64)
    np.add.at(gaps, number, (body & 127).astype(np.int64) << (7 * place))
    return gaps
