"""The fields of a task, and what follows from them; the modules beside this one check them, each its own topic.

Rules: nothing here refuses a value, so whatever a check needs to know can import this; the order of the fields is the
order of a task's canonical bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ldexp
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from fsl_async.blocks import Block, Dense, Plain, Sparse
from fsl_async.errors import MisuseError
from fsl_async.privacy.accounting import Privacy
from fsl_async.privacy.doses import Doses, doses, largest_noise
from fsl_async.ring import Ring, float_below
from fsl_async.server_rules import Optimizer, is_own

ProtocolName: TypeAlias = Literal["ssa", "psr", "psu"]
"""What a round runs: secure submodel aggregation, private submodel retrieval, private set union."""

Only: TypeAlias = Mapping[str, tuple[object, str]]
"""By field, the only value that it may have, and why; the `ONLY` of a topic has it by protocol."""

NO_UPDATES: Final = "rounds of this protocol have no updates; leave it out"
"""Why a field has its only value where rounds only retrieve, or only find unions."""

Rule: TypeAlias = Literal["sum", "mean", "weighted-mean", "row-mean", "own"]
"""What servers do with a sum, in one word."""

if TYPE_CHECKING:
    Apply: TypeAlias = str | Callable[..., Any]
    Blocks: TypeAlias = Sequence[Block]
else:  # a task that was made holds a function's name, and a tuple
    Apply, Blocks = str, tuple[Block, ...]


class TaskFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What a task says, not yet checked; `Task` says what each field means."""

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
    optimizer: Optimizer | None = None
    sample: int | float | None = None
    bound: float | None = None
    bound_proof: Literal["exact", "projected"] = "exact"
    min_contributors: int | None = None
    lying_clients: int = 1
    privacy: Privacy | None = None

    @property
    def room_per_client(self) -> int:
        """The largest absolute ring integer that `max_clients` can each submit without a wrap."""
        return int((2 ** (self.ring.bits - 1) - 1) // self.max_clients)

    @property
    def largest_integer(self) -> int:
        """The largest absolute ring integer one client may submit: max_clients of them do not wrap."""
        if self.largest is None:
            return self.room_per_client
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
    def draws(self) -> bool:
        """Whether it is drawn which clients that ask take part in a round."""
        return self.sample is not None

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
    def rule(self) -> Rule:
        """What `apply` says, in one word; "own" where it names a function."""
        return "own" if is_own(str(self.apply)) else cast(Rule, self.apply)

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


def check_choices(task: TaskFields, choices: Mapping[str, tuple[str, ...]]) -> None:
    """Check that each field has one of its words.

    Raises:
        MisuseError: it has another one; the message lists the words.
    """
    for field, allowed in choices.items():
        if getattr(task, field) not in allowed:
            raise MisuseError(f"task: {field} must be one of {allowed}, not {getattr(task, field)!r}")


def check_only(task: TaskFields, cause: str, only: Only) -> None:
    """Check the fields that have only one value because of another field, `cause`.

    Raises:
        MisuseError: one has another value; the message names both fields, and says why.
    """
    for field, (value, why) in only.items():
        if (found := getattr(task, field)) != value:
            raise MisuseError(f"task: {field}={found!r} contradicts {cause}={getattr(task, cause)!r}: {why}")
