"""Everything public about a round, as one canonical value with one digest.

Rules: both servers build the same bytes, clients take them from both and refuse if they differ; `round_id` is the
digest of the bytes and is in every message of the round; nothing here is secret.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async.digests import DIGEST_BYTES, Domain, derive_key, digest
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.geometry import RowNumbers, bin_limits
from fsl_async.options.taking_part import size_of
from fsl_async.task import Block, Plain, ProtocolName, Sparse, Task
from fsl_async.union import UnionBlock, planted, shape_of_round
from fsl_async.wire.codec import UNREADABLE

VERSION = 1
LAST_ROUND = 2**32
MOST_CARRIERS = 4_096
"""Clients of a round whose carrier is remembered, because it is asked for again and again while they submit."""

RECENT_ROUNDS = 8
"""Rounds of which that is remembered: of several tasks in one process, each has one or two."""

MODEL_DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


class ServerKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server's two public keys: X25519 for its channel, Ed25519 for its statements."""

    channel: bytes
    statement: bytes

    def __post_init__(self) -> None:
        _check_sizes("server key", self.channel, self.statement)


class BlockModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the servers hold for one block: its dtype and the digest of its bytes."""

    name: str
    dtype: str
    digest: bytes

    def __post_init__(self) -> None:
        if self.dtype not in MODEL_DTYPES:
            raise MisuseError(f"model block {self.name!r}: dtype {self.dtype!r} is not one of {MODEL_DTYPES}")
        _check_sizes(f"digest of model block {self.name!r}", self.digest)

    @property
    def weight_bytes(self) -> int:
        """Bytes of one weight."""
        return int(self.dtype[1:])


class Draw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes part in a round that is only for those that were drawn.

    Attributes:
        asked: how many clients asked both servers.
        size: how many of them were drawn; 0 where so few asked that the round is aborted at once.
        digest: names the sample without telling whose names are in it.
    """

    asked: int
    size: int
    digest: bytes


class RoundConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One round: the task, its number, the coin-tossed seed, the servers and their model.

    Attributes:
        task: what is learnt.
        number: counts up; it is also the epoch of the round's conversion keys, so an epoch never comes again.
        session: the number of the round whose seed this is; the round's own, unless the task's selection is fixed.
        hash_seed: lays out the rows and keys the trees; as old as `session`.
        toss: both servers' commitments to this round's halves of the toss.
        servers: S0's and S1's public keys.
        model: what both hold.
        bins: of each sparse block, how many bins each of its three segments has; 0 where it moves plainly.
        protocol: what it runs: "ssa", submissions, with retrievals; "psr", retrievals alone; or "psu", which finds a
            union.
        union: by sparse block, the union that the round is aligned on; empty where it is not aligned.
        plain: what both hold of the blocks that move plainly: of their union's rows alone.
        found: the id of the round that found the last union for clients to read; empty where there is none.
        state: the digest of what the task's optimizer, or its own rule, keeps beside the model; empty where that is
            nothing.
        sample: in a task that draws who takes part, who was drawn; otherwise none.
    """

    version: int = VERSION
    task: Task
    number: int
    session: int
    hash_seed: bytes
    toss: tuple[bytes, bytes]
    servers: tuple[ServerKeys, ServerKeys]
    model: tuple[BlockModel, ...]
    bins: tuple[int, ...]
    protocol: ProtocolName = "ssa"
    union: tuple[UnionBlock, ...] = ()
    plain: tuple[BlockModel, ...] = ()
    found: bytes = b""
    state: bytes = b""
    sample: Draw | None = None

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise MisuseError(f"round: version {VERSION} expected, got {self.version}")
        if not 1 <= self.session <= self.number <= LAST_ROUND:
            raise MisuseError(
                f"round: 1 ≤ session ≤ number ≤ {LAST_ROUND} expected, got session {self.session}, number {self.number}"
            )
        _check_sizes("hash seed or toss", self.hash_seed, *self.toss)
        if self.protocol not in self.task.round_protocols:
            raise MisuseError(
                f"round: a protocol of {list(self.task.round_protocols)} expected, as the task has it, got "
                f"{self.protocol!r}"
            )
        if self.found:
            _check_sizes("round that found a union", self.found)
        _check_sizes("digest of the state", *([self.state] if self.state else []))
        self._check_sample()
        _check_names("model", [block.name for block in self.task.model_blocks], [entry.name for entry in self.model])
        sparse = [block for _, block in self.task.sparse_blocks()]
        if self.union:
            self._check_union(sparse)
        self._check_bins(sparse)
        plain = [block.name for _, block in self.shape.plain_blocks()]
        _check_names("model of plain blocks", plain, [entry.name for entry in self.plain])
        for entry in self.plain:
            whole = self.block_model(entry.name).dtype
            if entry.dtype != whole:
                raise MisuseError(f"round: rows of {entry.name!r} in {whole} expected, as the block, got {entry.dtype}")

    def _check_sample(self) -> None:
        task, sample = self.task, self.sample
        if task.sample is None or sample is None:
            if (task.sample is None) != (sample is None):
                raise MisuseError("round: a sample is drawn if, and only if, the task has one")
            return
        _check_sizes("digest of a sample", sample.digest)
        expected = size_of(task.sample, sample.asked, task.max_clients)
        if sample.size != (expected if expected >= max(1, task.quorum) else 0):
            raise MisuseError(
                f"round: a sample={task.sample!r} of {sample.asked} clients expected, at least {task.quorum}, and got "
                f"{sample.size}"
            )

    def _check_union(self, blocks: list[Sparse]) -> None:
        if self.protocol == "psu":
            raise MisuseError("round: one that finds a union is aligned on none, and got a union")
        _check_names("union", [block.name for block in blocks], [entry.name for entry in self.union])
        _check_sizes("digest of a union", *(entry.digest for entry in self.union))
        for block, entry in zip(blocks, self.union, strict=True):
            if not 0 <= entry.size <= block.rows:
                raise MisuseError(
                    f"round: a union of 0 to {block.rows} rows of {block.name!r} expected, got {entry.size}"
                )

    def _check_bins(self, blocks: list[Sparse]) -> None:
        if len(self.bins) != len(blocks):
            raise MisuseError(
                f"round: bins of {len(blocks)} sparse blocks expected, each a number, got {len(self.bins)} numbers"
            )
        for block, bins in zip(blocks, self.bins, strict=True):
            stands = planted(self.task, block, self.union)
            least, most = bin_limits(stands)
            if not (least <= bins <= most or (bins == 0 and self.union)):
                raise MisuseError(
                    f"round: {least} to {most} bins expected in a segment of {block.name!r}, of which a client selects "
                    f"{stands.select} of {stands.rows} rows, got {bins}: with fewer, rows would find no place, and "
                    "with more, trees would be sent for nothing; ask the operators what their servers run"
                )

    @cached_property
    def shape(self) -> Task:
        """The task as this round works on it, with the bins of its blocks: see `shape_of_round`."""
        return shape_of_round(self.task, self.protocol, self.union, self.bins)

    def in_ranks(self, name: str) -> bool:
        """Whether this round has only a block's union, its rows named by their rank in it."""
        if not self.union:
            return False
        block = self.shape.block(name)
        return isinstance(block, Plain) or (isinstance(block, Sparse) and self.task.selection == "adaptive")

    @property
    def epoch(self) -> int:
        """The epoch of this round's conversion keys."""
        return self.number

    def canonical(self) -> bytes:
        """The bytes that travel and that are hashed."""
        return bytes(msgpack.packb(msgspec.to_builtins(self, builtin_types=(bytes,))))

    @staticmethod
    def parse(data: bytes, source: str) -> RoundConfig:
        """Read canonical bytes from the server called `source`.

        Raises:
            PeerViolationError: the bytes are not a round's configuration.
        """
        try:
            plain = msgpack.unpackb(data, max_array_len=64, max_map_len=32, max_str_len=256, max_ext_len=0)
            config = msgspec.convert(plain, RoundConfig, builtin_types=(bytes,))
        except UNREADABLE as error:
            raise PeerViolationError(source, f"sent a round configuration that cannot be read: {error}") from error
        if config.canonical() != data:
            raise PeerViolationError(source, "sent a round configuration that is not in canonical form")
        return config

    def round_id(self) -> bytes:
        """BLAKE2b-256 of the canonical bytes."""
        return self._round_id

    @cached_property
    def _round_id(self) -> bytes:
        """Every client's request names it."""
        return digest(Domain.ROUND, self.canonical())

    def block_model(self, name: str) -> BlockModel:
        """What the servers announced for one block."""
        return next(entry for entry in self.model if entry.name == name)

    def tree_key(self, domain: Domain) -> bytes:
        """A key that depends on the hash seed, and so lasts as long as the trees."""
        return derive_key(domain, self.task.digest(), self.hash_seed)

    def convert_key(self, block: int, salt: bytes) -> bytes:
        """The conversion key of one block in this epoch, for hints with this salt."""
        return derive_key(
            Domain.CONVERT,
            self.task.digest(),
            self.hash_seed,
            block.to_bytes(4, "little"),
            self.epoch.to_bytes(8, "little"),
            salt,
        )

    def placement_key(self, block: int) -> bytes:
        """The key of the permutations that lay out one block's rows."""
        return derive_key(Domain.PLACEMENT, self.task.digest(), self.hash_seed, block.to_bytes(4, "little"))

    def carrier(self, client: str) -> int:
        """Which server carries this client's public part; alternates over clients and rounds."""
        return _carriers(self.hash_seed, self.number)(client)


@lru_cache(maxsize=RECENT_ROUNDS)
def _carriers(hash_seed: bytes, number: int) -> Callable[[str], int]:
    """Tells the carriers of one round, and remembers them; they are forgotten with the round, not after thousands."""
    return lru_cache(maxsize=MOST_CARRIERS)(partial(_carrier, hash_seed, number))


def _carrier(hash_seed: bytes, number: int, client: str) -> int:
    return digest(Domain.CARRIER, hash_seed, number.to_bytes(8, "little"), client.encode())[0] & 1


def describe_plain(
    shape: Task, model: dict[str, npt.NDArray[Any]], union: dict[str, RowNumbers]
) -> tuple[BlockModel, ...]:
    """Digest the rows of the union of every block that a round moves plainly."""
    return tuple(
        _describe_block(block.name, _shapes(block), restricted(model[block.name], union[block.name]))
        for _, block in shape.plain_blocks()
    )


def restricted(array: npt.NDArray[Any], union: RowNumbers) -> npt.NDArray[Any]:
    """The rows of the union in order; one row of zeros where it is empty."""
    return array[union] if len(union) else np.zeros_like(array[:1])


def describe_model(task: Task, model: dict[str, npt.NDArray[Any]]) -> tuple[BlockModel, ...]:
    """Check a model against its task and digest each block.

    Args:
        task: the task.
        model: for each sparse block an array (rows, width), or (rows,) where width is 1; for each dense block (size,).

    Raises:
        MisuseError: a block is missing or unknown, or has another shape or an unsupported dtype.
    """
    names = {block.name for block in task.model_blocks}
    if names != set(model):
        raise MisuseError(f"model: blocks {sorted(names)} expected, got {sorted(model)}")
    return tuple(_describe_block(block.name, _shapes(block), model[block.name]) for block in task.model_blocks)


def _check_sizes(what: str, *values: bytes) -> None:
    for value in values:
        if len(value) != DIGEST_BYTES:
            raise MisuseError(f"{what}: {DIGEST_BYTES} bytes expected, got {len(value)}")


def _check_names(what: str, expected: list[str], announced: list[str]) -> None:
    if announced != expected:
        raise MisuseError(f"round: a {what} of blocks {expected} expected, got {announced}")


def _shapes(block: Block) -> tuple[tuple[int, ...], ...]:
    return (block.shape, block.shape[:1]) if block.shape[1:] == (1,) else (block.shape,)


def _describe_block(name: str, shapes: tuple[tuple[int, ...], ...], array: npt.NDArray[Any]) -> BlockModel:
    if array.shape not in shapes:
        raise MisuseError(f"model block {name!r}: shape {shapes[0]} expected, got {array.shape}")
    dtype = array.dtype.str[1:]
    if dtype not in MODEL_DTYPES or array.dtype.byteorder == ">":
        raise MisuseError(f"model block {name!r}: dtype {array.dtype} is not one of {MODEL_DTYPES}, little-endian")
    data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    return BlockModel(name, dtype, digest(Domain.MODEL, name.encode(), dtype.encode(), data.data))
