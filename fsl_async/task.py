"""The task: its blocks, ring and rules, on which all parties agree before the first message.

Rules: a task is immutable and checked when it is made, so no other module checks it again; its canonical bytes, and so
its digest, are a function of its fields alone; nothing in it depends on a client's data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property, partial
from math import ldexp
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgpack
import msgspec

from fsl_async.bin_count import SEGMENTS
from fsl_async.blocks import Block as Block
from fsl_async.blocks import Dense as Dense
from fsl_async.blocks import Plain as Plain
from fsl_async.blocks import Sparse as Sparse
from fsl_async.blocks import check_name, check_range
from fsl_async.contradictions import NO_UPDATES, check_alone, check_contributors
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.privacy.doses import Doses, doses
from fsl_async.privacy.fitting import check_privacy
from fsl_async.privacy.setting import Privacy
from fsl_async.privacy.tails import largest_noise
from fsl_async.privacy.utility import unlearnt
from fsl_async.ring import Ring, float_below
from fsl_async.server_rules import Adam, Momentum, Sgd, check_apply, is_own

LARGEST_CLIENTS = 1_000_000

LARGEST_NAMED = 10_000
"""Clients of a task that tells each of them the names of all: the answers together grow with their square."""
_BEYOND_FLOATS = 2**1000
LARGEST_BLOCKS = 32
LARGEST_COUNTED = 2**30 - 1
"""Rows whose contributors are counted: one message has a word of 32 bits for each."""
LARGEST_RETRIEVALS = 1_000
ORDINARY_QUORUM = 16

ProtocolName: TypeAlias = Literal["ssa", "psr", "psu"]
"""What a round runs: secure submodel aggregation, private submodel retrieval, private set union."""


if TYPE_CHECKING:
    Apply: TypeAlias = str | Callable[..., Any]
    Blocks: TypeAlias = Sequence[Block]
else:  # a task that was made holds a function's name, and a tuple
    Apply, Blocks = str, tuple[Block, ...]


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A federated learning task as all parties agree on it.

        task = Task(
            name="shop",
            blocks=[Sparse("items", rows=10_000, width=8, select=50), Dense("head", size=32)],
            ring=Ring(64, fraction_bits=24),
            min_clients=2,
            max_clients=100,
        )
        task.largest_value      # the largest absolute value of one update of one weight

    A task that only retrieves has rounds without submissions, and so without a minimum of clients; a task that only
    finds unions has no model. Neither has updates, and so no ring of its own:

        Task(name="lookup", protocol="psr", blocks=[Sparse("items", rows=10_000, width=8, select=50)], retrievals=20)
        Task(name="seen", protocol="psu", blocks=[Sparse("items", rows=10_000, select=50)], min_clients=5)

    Args:
        name: what the task is called.
        blocks: the model's blocks, in the order in which they travel; where only unions are found, sparse ones, whose
            width says nothing.
        ring: the ring of all updates; none in a task without updates.
        protocol: what its rounds run: "ssa", retrievals and submissions, which are summed; "psr", retrievals alone,
            until the round's time is over; or "psu", unions alone (which reveals them).
        selection: "adaptive", rows may change every round; or "fixed", one tree per session and a hint per round.
        updates: "retrieved", updated rows are among the retrieved ones and share their tree; or "any", a tree of their
            own.
        alignment: "all" rows; or "union", a private set union first (which reveals the union).
        security: "verified" against malicious clients; or "semi-honest".
        min_clients: a round with fewer is aborted before anything is revealed; 16 if it is not given. A task that only
            retrieves has none.
        min_contributors: a row is opened only if at least so many trees of the counted clients stand on it; of rows
            with fewer nothing is opened, and the sum is 0 there. None: every row is opened. A client counts once for
            each row that it selects, whether it updates it or not.
        lying_clients: how many clients that lie together `min_contributors` withstands. One of them counts up to 3 + σ
            times for a row, so `min_contributors` is at least lying_clients · (3 + σ) + 2: a row that only one honest
            client has then stays closed (docs/bounds.md). 0: every client is trusted to keep the protocol.
        max_clients: no more are admitted; bounds the largest value so that a sum cannot wrap.
        largest: the largest absolute value of one client's update of one weight; by default as large as the ring
            allows. A round whose sum exceeds what its clients can have contributed is refused, so the smaller this is,
            the less harm a wrong share does.
        retrievals: how often a client may retrieve in one round, 8 if it is not given; one more is refused until the
            next round opens. A server needs memory for the trees of all of them.
        participants: what clients learn of each other: "count", how many were counted; or "names", also who.
        apply: what servers add to the model: the "sum"; the "mean" over the counted clients; the "weighted-mean", which
            is the sum divided by the sum of `weights`; or a function of one's own, kept as "module:function" (see
            docs/server-rules.md).
        weights: the name of a Dense block of size 1, in which each client submits its weight (how many examples it has,
            say). Their sum divides; the model has no such block.
        largest_weight: the most that one client weighs, where clients are weighed in a task with a bound: both servers
            count only who has proved a weight from 0 to that, and the mean divides by no less than that. None where
            nothing is proved: there one client with a weight below 0 can move the mean as far as it likes.
        optimizer: `Sgd`, `Momentum` or `Adam`, the server's; None adds what `apply` says as it is.
        sample: how many take part in a round, drawn at random of the clients that ask: a whole number (all of them
            where fewer ask), or a fraction above 0 and at most 1 of them, rounded up. None: everybody.
        bound: the largest L2 norm of one client's whole update, in all blocks together, in the values' units; the
            servers count only clients that have proved theirs (docs/bounds.md). None: nothing is proved.
        bound_proof: how it is proved: "exact"; or "projected", of constant size, for any ring and larger bounds, but
            an update up to twice the bound may pass.
        privacy: `Privacy`, the noise that each server adds to its share of every sum, and the budget that all rounds
            have together; it needs a `bound`. A block of `weights` is a part of what is bounded, and gets noise, too.

    Raises:
        MisuseError: a field is out of its range, or the fields contradict each other.

    Warns:
        UserWarning: the noise is so much that nothing is learnt of a block's rows.
    """

    name: str
    blocks: Blocks
    ring: Ring = cast(Ring, None)
    protocol: ProtocolName = "ssa"
    selection: Literal["adaptive", "fixed"] = "adaptive"
    updates: Literal["retrieved", "any"] = "retrieved"
    alignment: Literal["all", "union"] = "all"
    security: Literal["verified", "semi-honest"] = "verified"
    min_clients: int | None = None
    max_clients: int = 1000
    largest: float | None = None
    retrievals: int = 8
    participants: Literal["count", "names"] = "count"
    apply: Apply = "sum"
    weights: str | None = None
    largest_weight: float | None = None
    optimizer: Sgd | Momentum | Adam | None = None
    sample: int | float | None = None
    bound: float | None = None
    bound_proof: Literal["exact", "projected"] = "exact"
    min_contributors: int | None = None
    lying_clients: int = 1
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        check_name("task", self.name)
        self._check_blocks()
        for field, allowed in _CHOICES.items():
            if getattr(self, field) not in allowed:
                raise MisuseError(f"task: {field} must be one of {allowed}, not {getattr(self, field)!r}")
        self._check_protocol()
        if not isinstance(self.ring, Ring):
            raise MisuseError(f"task: ring must be a Ring, not {self.ring!r}")
        if self.min_clients is None and self.protocol != "psr":
            msgspec.structs.force_setattr(self, "min_clients", ORDINARY_QUORUM)
        if self.min_clients is not None:
            check_range("task", "min_clients", self.min_clients, 2, LARGEST_CLIENTS)
        check_range("task", "max_clients", self.max_clients, max(1, self.quorum), LARGEST_CLIENTS)
        check_range("task", "retrievals", self.retrievals, 1, LARGEST_RETRIEVALS)
        if self.participants == "names" and self.max_clients > LARGEST_NAMED:
            raise MisuseError(
                f'task: with participants="names" every client is told all names, so max_clients is at most '
                f'{LARGEST_NAMED:,}, not {self.max_clients:,}; use participants="count", which tells how many there '
                "were and proves to each client that it is one of them"
            )
        self._check_sample()
        self._check_contributors()
        self._check_largest()
        self._check_rule()
        self._check_largest_weight()
        self._check_bound()
        if self.privacy is not None:
            check_privacy(self)
            if told := unlearnt(self):
                warnings.warn(f"task: {told}", stacklevel=2)

    def _check_sample(self) -> None:
        sample = self.sample
        if isinstance(sample, float):
            if not 0 < sample <= 1:
                raise MisuseError(f"task: a sample that is a fraction must be above 0 and at most 1, not {sample!r}")
        elif sample is not None:
            check_range("task", "sample", sample, max(1, self.quorum), self.max_clients)

    def _check_contributors(self) -> None:
        if self.min_contributors is None:
            if self.lying_clients != 1:
                raise MisuseError("task: lying_clients says what min_contributors withstands; add min_contributors = …")
            return
        check_range("task", "min_contributors", self.min_contributors, 2, self.max_clients)
        check_contributors(partial(getattr, self))
        if not any(isinstance(block, Sparse) for block in self.blocks):
            raise MisuseError(
                "task: min_contributors counts who contributes to rows, and every client contributes to all of a dense "
                "block; give the task a sparse block, or use min_clients"
            )
        rows = sum(block.rows for _, block in self.sparse_blocks())
        if rows > LARGEST_COUNTED:
            raise MisuseError(
                f"task: min_contributors counts who contributes to each of {rows:,} rows, and a share of the counts is "
                f"one message, with {LARGEST_COUNTED:,} rows at most; leave it out, or make several tasks of the blocks"
            )
        self._check_lying_clients()

    def _check_lying_clients(self) -> None:
        check_range("task", "lying_clients", self.lying_clients, 0, self.max_clients)
        times = SEGMENTS + max(block.stash for _, block in self.sparse_blocks())
        least = self.lying_clients * times + 2
        if cast(int, self.min_contributors) < least:
            clients = "one client that lies" if self.lying_clients == 1 else f"{self.lying_clients} clients that lie"
            raise MisuseError(
                f"task: min_contributors={self.min_contributors} does not withstand {clients}: each counts up to "
                f"{times} times for a row, and so opens a row that only one honest client has; use at least {least}, "
                "or lying_clients=0 if every client is trusted to keep the protocol"
            )

    def _check_protocol(self) -> None:
        if self.protocol != "ssa" and self.ring is None:
            msgspec.structs.force_setattr(self, "ring", NO_UPDATES)
        check_alone(self.protocol, partial(getattr, self))
        sparse = [isinstance(block, Sparse) for block in self.blocks]
        if self.protocol == "psr" and not any(sparse):
            raise MisuseError("task: protocol='psr' needs a sparse block: a dense one is read whole, and nothing hides")
        if self.protocol == "psu" and not all(sparse):
            raise MisuseError("task: protocol='psu' takes sparse blocks alone: every client touches all of a dense one")

    def _check_blocks(self) -> None:
        if not isinstance(self.blocks, list | tuple):
            raise MisuseError(f"task: a list of blocks expected, got {self.blocks!r}")
        msgspec.structs.force_setattr(self, "blocks", tuple(self.blocks))
        if not 1 <= len(self.blocks) <= LARGEST_BLOCKS:
            raise MisuseError(f"task: 1 to {LARGEST_BLOCKS} blocks expected, got {len(self.blocks)}")
        if not all(isinstance(block, Sparse | Dense) for block in self.blocks):
            raise MisuseError("task: every block must be a Sparse or a Dense")
        names = [block.name for block in self.blocks]
        if len(set(names)) != len(names):
            raise MisuseError(f"task: block names must differ, got {names}")

    def _check_largest(self) -> None:
        room = self._room_per_client()
        if room < 1:
            raise MisuseError(f"task: with {self.max_clients} clients even the smallest value could wrap")
        if self.largest is None:
            return
        if type(self.largest) not in (int, float) or not self.largest * 2**self.ring.fraction_bits >= 1:
            raise MisuseError(
                f"task: largest must be a number of at least {2.0**-self.ring.fraction_bits}, the ring's smallest "
                f"value, not {self.largest!r}"
            )
        unit = 2**self.ring.fraction_bits
        if self.largest * unit > room or float(self.largest) * unit > room:
            raise MisuseError(
                f"task: {self.max_clients} clients × largest value {self.largest} could wrap {self.ring.bits} bits "
                f"with {self.ring.fraction_bits} behind the point; the largest possible is "
                f"{ldexp(float_below(room), -self.ring.fraction_bits)}"
            )
        # One number, one encoding: 5 and 5.0 must not give two digests.
        msgspec.structs.force_setattr(self, "largest", float(self.largest))

    def _check_rule(self) -> None:
        msgspec.structs.force_setattr(self, "apply", check_apply(self.apply))
        if not isinstance(self.optimizer, Sgd | Momentum | Adam | None):
            raise MisuseError(f"task: optimizer must be an Sgd, a Momentum or an Adam, not {self.optimizer!r}")
        if self.rule == "own" and self.optimizer is not None:
            raise MisuseError(f"task: apply = {self.apply!r} decides about the model alone; leave the optimizer out")
        if self.rule not in ("sum", "own") or self.optimizer is not None:
            self._check_fractions("optimizer" if self.rule == "sum" else f'apply = "{self.rule}"')
        self._check_weights()

    def _check_fractions(self, what: str) -> None:
        if self.ring.fraction_bits == 0:
            raise MisuseError(
                f"task: {what} gives fractions, and the ring has no fraction bits; use Ring({self.ring.bits}, "
                f"fraction_bits={self.ring.bits * 3 // 8})"
            )

    def _check_weights(self) -> None:
        if self.weights is None:
            if self.rule == "weighted-mean":
                raise MisuseError(
                    'task: apply = "weighted-mean" needs weights = "BLOCK", the name of a Dense block of size 1 in '
                    "which each client submits its weight"
                )
            return
        if self.rule not in ("weighted-mean", "own"):
            raise MisuseError(f'task: weights belong to apply = "weighted-mean", and apply is "{self.apply}"')
        block = self.block(self.weights)
        if not isinstance(block, Dense) or block.size != 1:
            raise MisuseError(f"task: weights = {self.weights!r} must name a Dense block of size 1, not {block!r}")
        if len(self.blocks) == 1:
            raise MisuseError(f"task: {self.weights!r} only divides; give the task a block to learn as well")

    def _check_largest_weight(self) -> None:
        if self.bound is None or self.weights is None:
            if self.largest_weight is not None:
                raise MisuseError(
                    "task: largest_weight is proved where a task has both weights and a bound; add what is missing, or "
                    "leave it out"
                )
            return
        if self.largest_weight is None:
            raise MisuseError(
                f"task: weights={self.weights!r} with a bound needs largest_weight = …, the most that one client "
                "weighs: a client with a weight below 0 would undo what the bound promises of the mean; 1.0 will do if "
                "clients divide their weights by the largest one"
            )
        if type(self.largest_weight) not in (int, float) or not 0 < self.largest_weight < _BEYOND_FLOATS:
            raise MisuseError(f"task: largest_weight must be a number above 0, not {self.largest_weight!r}")
        msgspec.structs.force_setattr(self, "largest_weight", float(self.largest_weight))

    def _check_bound(self) -> None:
        if self.bound is None:
            if self.bound_proof != "exact":
                raise MisuseError(f"task: bound_proof={self.bound_proof!r} says how a bound is proved; add bound = …")
            return
        if type(self.bound) not in (int, float) or not 0 < self.bound < _BEYOND_FLOATS:
            raise MisuseError(f"task: bound must be a number above 0, not {self.bound!r}")
        if self.security == "semi-honest":
            raise MisuseError(
                "task: security='semi-honest' contradicts bound: a bound is proved of verified trees; leave one of the "
                "two out"
            )
        msgspec.structs.force_setattr(self, "bound", float(self.bound))
        if self.largest_weight is not None and not 1 <= self.largest_weight_integer <= self.bound_integer:
            raise MisuseError(
                f"task: largest_weight={self.largest_weight:g} must be at least {2.0**-self.ring.fraction_bits}, the "
                f"ring's smallest value, and at most bound={self.bound:g}: a weight is a part of what is bounded; "
                "divide weights by the largest one, or choose a larger bound"
            )
        from fsl_async.bounds import terms_of  # here, because the terms depend on what a task is

        terms_of(self)

    def _room_per_client(self) -> int:
        return int((2 ** (self.ring.bits - 1) - 1) // self.max_clients)

    @property
    def largest_integer(self) -> int:
        """The largest absolute ring integer one client may submit: max_clients of them do not wrap."""
        if self.largest is None:
            return self._room_per_client()
        return int(self.largest * 2**self.ring.fraction_bits)

    @property
    def largest_value(self) -> float:
        """The largest absolute value one client may submit for one weight."""
        return ldexp(float_below(self.largest_integer), -self.ring.fraction_bits)

    @property
    def bound_integer(self) -> int:
        """The bound as a ring integer, 0 where there is none."""
        return int(Fraction(self.bound or 0) * 2**self.ring.fraction_bits)

    @property
    def largest_weight_integer(self) -> int:
        """The largest weight as a ring integer, rounded as a client's weight is; 0 where none is proved."""
        units: int = round(Fraction(self.largest_weight or 0) * 2**self.ring.fraction_bits)
        return units

    @property
    def doses(self) -> Doses:
        """The standard deviations of the noise that each server adds; 0 where it adds none."""
        if self.privacy is None:
            return Doses(0)
        counted = 0 if self.min_contributors is None else sum(block.select for _, block in self.sparse_blocks())
        return doses(self.privacy.noise, self.bound_integer, counted)

    @property
    def noise_reach(self) -> int:
        """The most, in ring integers, by which noise changes a weight of a sum, but with probability 2^-40."""
        return largest_noise(self.doses.values, sum(block.weights for block in self.blocks))

    @property
    def verified(self) -> bool:
        """Whether the trees of this task carry a proof; where nothing is submitted, there is nothing to prove."""
        return self.security == "verified" and self.protocol != "psr"

    @property
    def quorum(self) -> int:
        """How many clients a round needs; none where it only serves retrievals."""
        return self.min_clients or 0

    @property
    def finds_unions(self) -> bool:
        """Whether some of its rounds find a union, or all of them do."""
        return self.protocol == "psu" or self.alignment == "union"

    @property
    def round_protocols(self) -> tuple[ProtocolName, ...]:
        """What its rounds may run."""
        return ("psu", "ssa") if self.protocol == "ssa" and self.alignment == "union" else (self.protocol,)

    @property
    def model_blocks(self) -> tuple[Block, ...]:
        """The blocks that have a model: none where only unions are found, and not the one of the clients' weights."""
        return () if self.protocol == "psu" else tuple(block for block in self.blocks if block.name != self.weights)

    @property
    def rule(self) -> Literal["sum", "mean", "weighted-mean", "own"]:
        """What `apply` says, in one word; "own" where it names a function."""
        if is_own(str(self.apply)):
            return "own"
        return next(word for word in _RULES if word == self.apply)

    @property
    def adds(self) -> bool:
        """Whether the sum is added to the model as it is."""
        return self.apply == "sum" and self.optimizer is None

    def sparse_blocks(self) -> Iterator[tuple[int, Sparse]]:
        """The sparse blocks by number, from 0; a block that a round moves plainly is left out but keeps its number."""
        return ((index, block) for index, block in self._in_rows() if isinstance(block, Sparse))

    def plain_blocks(self) -> Iterator[tuple[int, Plain]]:
        """The blocks that a round moves plainly, by their numbers among the sparse ones."""
        return ((index, block) for index, block in self._in_rows() if isinstance(block, Plain))

    def _in_rows(self) -> Iterator[tuple[int, Sparse | Plain]]:
        return enumerate(block for block in self.blocks if isinstance(block, Sparse | Plain))

    def dense_blocks(self) -> Iterator[tuple[int, Dense]]:
        """The dense blocks, counted from 0, without those that a round moves plainly."""
        return enumerate(block for block in self.blocks if isinstance(block, Dense) and not isinstance(block, Plain))

    def sparse(self, index: int) -> Sparse:
        """The sparse block of that number."""
        return next(block for number, block in self.sparse_blocks() if number == index)

    def block(self, name: str) -> Block:
        """The block of that name.

        Raises:
            MisuseError: the task has no such block; the message lists those it has.
        """
        for block in self.blocks:
            if block.name == name:
                return block
        raise MisuseError(f"task {self.name!r} has no block {name!r}; it has {[b.name for b in self.blocks]}")

    def carrying(self, *blocks: Block) -> Task:
        """The same settings for a round that carries these blocks and applies nothing to a model."""
        return msgspec.structs.replace(
            self, blocks=blocks, apply="sum", weights=None, largest_weight=None, optimizer=None
        )

    def canonical(self) -> bytes:
        """The bytes of this task in digests and in a round's configuration."""
        return bytes(msgpack.packb(msgspec.to_builtins(self)))

    @staticmethod
    def parse(data: bytes, source: str) -> Task:
        """Read canonical bytes that come from `source`.

        Raises:
            PeerViolationError: the bytes are not a task.
        """
        try:
            plain = msgpack.unpackb(data, max_array_len=64, max_map_len=32, max_str_len=256, max_ext_len=0)
            task = msgspec.convert(plain, Task)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException, msgspec.MsgspecError) as error:
            raise PeerViolationError(source, f"sent a task that cannot be read: {error}") from error
        if task.canonical() != data:
            raise PeerViolationError(source, "sent a task that is not in canonical form")
        return task

    def digest(self) -> bytes:
        """BLAKE2b-256 of the canonical bytes."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        """Every key of a round is derived from it."""
        return digest(Domain.TASK, self.canonical())


_RULES: tuple[Literal["sum", "mean", "weighted-mean"], ...] = ("sum", "mean", "weighted-mean")

_CHOICES = {
    "protocol": ("ssa", "psr", "psu"),
    "selection": ("adaptive", "fixed"),
    "updates": ("retrieved", "any"),
    "alignment": ("all", "union"),
    "security": ("verified", "semi-honest"),
    "participants": ("count", "names"),
    "bound_proof": ("exact", "projected"),
}
