"""How a round ended: the account that both servers keep, and what a client or a program is told of it.

What a client gets to read is a statement of its own; see `parties.statement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, assert_never

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async.config import BlockModel
from fsl_async.digests import Domain, digest
from fsl_async.union import UnionBlock

ENTRY_BYTES = 320
"""More than a client's entry in a roster, a list of proofs or a report can take: a name of 64 characters, a digest.

In a list of proofs, a server's share of the proof of the client's bound comes on top.
"""

NAMES_SHOWN = 3
"""How many names of a list are printed."""

BY_OUTCOME = b""
"""Stands for the receipt of a server that never sent one, of a submission that both servers' outcome lists."""


Model: TypeAlias = dict[str, npt.NDArray[Any]]
"""By block, an array: of a model its rows and numbers, of a union its row numbers, sorted, uint32."""


class Retrieved(dict[str, Any]):
    """What a retrieval returns: arrays by block.

    Attributes:
        deferred: by sparse block, the rows that found no place, or are outside the round's union; zeros stand for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.deferred: dict[str, npt.NDArray[np.uint32]] = {}


class LazyArrays(Mapping[str, npt.NDArray[Any]]):
    """Arrays by block, each made when it is first asked for, and then kept.

        arrays = LazyArrays({"items": partial(ring.decode, total)})
        arrays["items"]

    Args:
        make: by block, what makes its array.
    """

    def __init__(self, make: Mapping[str, Callable[[], npt.NDArray[Any]]]) -> None:
        self._make = dict(make)
        self._made: Model = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._made:
            self._made[name] = self._make[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._make)

    def __len__(self) -> int:
        return len(self._make)

    def __repr__(self) -> str:
        return repr(dict(self))


Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Done(msgspec.Struct, frozen=True, tag="done", forbid_unknown_fields=True):
    """The sum was applied to the model; in a union round, the union was found."""


class Aborted(msgspec.Struct, frozen=True, tag="aborted", forbid_unknown_fields=True):
    """Nothing was summed, and nobody has learnt anything; the same values may be submitted again.

    Attributes:
        explanation: why.
    """

    explanation: Text


class SumRefused(msgspec.Struct, frozen=True, tag="refused", forbid_unknown_fields=True):
    """The sum was opened and not applied, so both servers know it.

    A client that is in it must not submit the same values again: the difference of two sums exposes a client.

    Attributes:
        explanation: why.
    """

    explanation: Text


Ending: TypeAlias = Done | Aborted | SumRefused
"""How a round ended."""


class RoundReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The account of a round, equal on both servers; operators read it, and clients get a `Statement` made of it.

    Attributes:
        round_id: which round.
        number: its number.
        ending: how it ended.
        clients: who is in the sum, sorted, with the digests of their submissions; nobody where the round was aborted.
        excluded: who is not, and why: only_s0, only_s1, mismatch, proof or bound.
        model: the model after the round.
        union: in a union round, what it found.
        state: the digest of what the task's optimizer, or its own rule, keeps after the round; empty where that is
            nothing.
        opened_rows: by sparse block, the rows that were opened, packed as a union is; empty where contributors are not
            counted.
        blind: the secret of both servers by which the list of clients is blinded in statements (see
            `fsl_async.merkle`); empty where nobody is on it.
    """

    round_id: bytes
    number: int
    ending: Ending
    clients: dict[Name, bytes]
    excluded: dict[Name, Text]
    model: tuple[BlockModel, ...]
    union: tuple[UnionBlock, ...] = ()
    state: bytes = b""
    opened_rows: dict[Name, bytes] = {}
    blind: bytes = b""

    @property
    def ended(self) -> Literal["done", "aborted", "refused"]:
        """How the round ended, in one word."""
        match self.ending:
            case Done():
                return "done"
            case Aborted():
                return "aborted"
            case SumRefused():
                return "refused"
            case _:
                assert_never(self.ending)

    @property
    def explanation(self) -> str:
        """Why the round was aborted or its sum refused; empty where it is done."""
        return "" if isinstance(self.ending, Done) else self.ending.explanation

    @property
    def counted(self) -> tuple[str, ...]:
        """Whose submissions are in the model: nobody's where the round was aborted, or its sum refused."""
        return tuple(self.clients) if isinstance(self.ending, Done) else ()

    def canonical(self) -> bytes:
        """The bytes that are hashed, so that both servers can compare what they have arrived at."""
        return bytes(msgpack.packb(msgspec.to_builtins(self, builtin_types=(bytes,))))

    def digest(self) -> bytes:
        """BLAKE2b-256 of the canonical bytes."""
        return digest(Domain.OUTCOME, self.canonical())


class RoundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A finished round with its sum, as a server sees it.

    Attributes:
        number: the round's number.
        clients: who was counted.
        excluded: who was not, and why.
        update: by block, the exact sum over the counted clients, (rows, width) or (size,): float64; where the ring has
            no fraction bits, integers. A block's array is made when it is first asked for.
        elements: the same sum as signed ring integers; `RingIntegers` takes them back.
        union: by sparse block, the union that the round found or was aligned on; empty where the task has none.
        opened_rows: by sparse block, the rows that were opened, ascending, in a task with `min_contributors`; the sum
            of the others is not known to anybody, and 0 in `update`.
    """

    number: int
    clients: tuple[str, ...]
    excluded: dict[str, str]
    update: Mapping[str, npt.NDArray[Any]]
    elements: Mapping[str, npt.NDArray[Any]]
    union: dict[str, npt.NDArray[np.uint32]] = {}
    opened_rows: dict[str, npt.NDArray[np.uint32]] = {}

    def __repr__(self) -> str:
        arrays = "".join(
            f", {name}={{{', '.join(f'{block!r}: {_form(array)}' for block, array in blocks.items())}}}"
            for name, blocks in (("update", self.update), ("union", self.union), ("opened_rows", self.opened_rows))
            if blocks
        )
        return (
            f"RoundOutcome(number={self.number}{_few('clients', self.clients)}"
            f"{_few('excluded', tuple(self.excluded))}{arrays})"
        )


class ClientOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a client learns about its submission.

    Attributes:
        number: the round's number.
        counted: whether the submission is in the sum that was applied.
        reason: why not; empty where it is.
        participants: how many clients are in the sum; 0 where the round was aborted.
        digest: which submission of this client is in the sum, as its receipt calls it; empty where none is.
        opened: whether the submission is in a sum that was opened, and refused: both servers know the sum, so the same
            values must not be submitted again. `Client.outcome` then raises `SumRefusedError`.
        names: who is in the sum, sorted, in a task with `participants="names"`; otherwise empty.
        root: what names the list of who is in the sum. Every client of the round is told the same one, so clients that
            compare it know that they were told of one list.
        opened_rows: by sparse block, the rows of which the sum was opened, ascending, in a task with
            `min_contributors`; see `withheld`. Every client is told the same; of other rows nobody is told whether any
            client contributed to them.
    """

    number: int
    counted: bool
    reason: str
    participants: int
    digest: bytes = b""
    opened: bool = False
    names: tuple[str, ...] = ()
    root: bytes = b""
    opened_rows: dict[str, npt.NDArray[np.uint32]] = {}

    def withheld(self, rows: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
        """Which of one's own rows were left out of the sum, because too few clients contributed to them.

        Their values are in no share and in no model, so they may be submitted again in another round.

            again = outcome.withheld({"items": [3, 7, 9]})["items"]     # array([7])

        Args:
            rows: by sparse block, rows that were submitted in this round.

        Returns:
            By block, those that were not opened, in the given order; none of a block where contributors are not
            counted. All of them where the submission is in no sum: then its dense blocks were left out, too.
        """
        found = {name: np.asarray(numbers).reshape(-1) for name, numbers in rows.items()}
        if not (self.counted or self.opened):
            return found
        return {
            name: numbers[~np.isin(numbers, self.opened_rows[name])] if name in self.opened_rows else numbers[:0]
            for name, numbers in found.items()
        }

    def __repr__(self) -> str:
        told = f", reason={self.reason!r}" if self.reason else ""
        opened = ", opened=True" if self.opened else ""
        rows = "".join(f", {len(numbers)} rows of {name!r} opened" for name, numbers in self.opened_rows.items())
        return (
            f"ClientOutcome(number={self.number}, counted={self.counted}{told}, participants={self.participants}"
            f"{opened}{_few('names', self.names)}{rows})"
        )


class PrivacySpent(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has spent of the privacy budget, by its own ledger.

    Attributes:
        rounds: how many rounds are charged.
        epsilon: the ε that they have spent together.
        next_epsilon: what it is after one more submission.
        budget: the largest ε that it may reach.
        delta: δ.
    """

    rounds: int
    epsilon: float
    next_epsilon: float
    budget: float
    delta: float


@dataclass(frozen=True, repr=False)
class SubmissionReceipt:
    """Both servers' word that a submission is stored.

    Attributes:
        number: the round.
        digest: the submission, as receipts, rosters and proofs name it.
        signatures: S0's and S1's, over round, client and digest; empty where a server's receipt was lost for good and
            the round's outcome, which both have signed, counts the client instead.
        bytes_sent: what the call sent for it, to both servers, framing included.
        left_out: by sparse block, the rows that found no place in it, or are outside the round's union: their values
            are not in the sum, and may be submitted in another round.
        privacy: what this client has spent of the privacy budget, with this submission; None in a task without noise.
    """

    number: int
    digest: bytes
    signatures: tuple[bytes, bytes]
    bytes_sent: int
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict)
    privacy: PrivacySpent | None = None

    def __repr__(self) -> str:
        signed = " and ".join(f"S{server}" for server, signature in enumerate(self.signatures) if signature)
        left_out = "".join(f", {len(rows)} rows of {block!r} left out" for block, rows in self.left_out.items() if rows)
        spent = f", ε={self.privacy.epsilon:.3g} of {self.privacy.budget:g}" if self.privacy else ""
        return (
            f"SubmissionReceipt(number={self.number}, digest={self.digest.hex()[:16]}…, "
            f"signed by {signed or 'both in the outcome'}, bytes_sent={self.bytes_sent:,}{left_out}{spent})"
        )


def _few(label: str, names: Sequence[str]) -> str:
    """How many names there are, and the first of them; empty where there are none."""
    if not names:
        return ""
    more = ", …" if len(names) > NAMES_SHOWN else ""
    return f", {label}={len(names)} ({', '.join(names[:NAMES_SHOWN])}{more})"


def _form(array: npt.NDArray[Any]) -> str:
    """An array's shape and type, in place of its values."""
    return f"{array.shape} {array.dtype}"
