"""How a round ended, as every party is told: who was counted, who was not and why, and what the model is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, assert_never

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async.config import BlockModel
from fsl_async.digests import Domain, digest
from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import is_name
from fsl_async.union import UnionBlock

__all__ = [
    "BY_OUTCOME",
    "ENTRY_BYTES",
    "Aborted",
    "ClientOutcome",
    "Done",
    "Ending",
    "Model",
    "RoundOutcome",
    "RoundReport",
    "SubmissionReceipt",
    "SumRefused",
]

ENTRY_BYTES = 320
"""More than a client's entry in a roster, a list of proofs or a report can take: a name of 64 characters, a digest."""

BY_OUTCOME = b""
"""Stands for the receipt of a server that never sent one, of a submission that both servers' outcome lists."""


Model: TypeAlias = dict[str, npt.NDArray[Any]]
"""By block, an array: of a model its rows and numbers, of a union its row numbers, sorted, uint32."""

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
    """The public account of a round, equal on both servers.

    Attributes:
        round_id: which round.
        number: its number.
        ending: how it ended.
        clients: who is in the sum, sorted; nobody where the round was aborted.
        excluded: who is not, and why: only_s0, only_s1, mismatch or proof.
        model: the model after the round.
        union: in a union round, what it found.
    """

    round_id: bytes
    number: int
    ending: Ending
    clients: tuple[Name, ...]
    excluded: dict[Name, Text]
    model: tuple[BlockModel, ...]
    union: tuple[UnionBlock, ...] = ()

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
        return self.clients if isinstance(self.ending, Done) else ()

    def canonical(self) -> bytes:
        """The bytes that travel and that are signed."""
        return bytes(msgpack.packb(msgspec.to_builtins(self, builtin_types=(bytes,))))

    def digest(self) -> bytes:
        """BLAKE2b-256 of the canonical bytes."""
        return digest(Domain.OUTCOME, self.canonical())

    @staticmethod
    def parse(data: bytes | memoryview, clients: int, sender: str) -> RoundReport:
        """Read canonical bytes of a round with at most so many clients.

        Raises:
            PeerViolationError: the bytes are not a report.
        """
        try:
            # Read as what it must be: a reader of anything would make room for every list that is declared in a list.
            report = msgspec.msgpack.decode(data, type=RoundReport)
        except (UnicodeDecodeError, msgspec.MsgspecError) as error:
            raise PeerViolationError(sender, f"sent a round's outcome that cannot be read: {error}") from error
        most = 2 * clients  # each server may hold as many that the other one does not
        if len(report.clients) > clients or len(report.excluded) > most:
            raise PeerViolationError(
                sender,
                f"sent the outcome of a round with {len(report.clients)} clients and {len(report.excluded)} more that "
                f"were not counted; the task has at most {clients}",
            )
        for name in (*report.clients, *report.excluded):
            if not is_name(name):
                raise PeerViolationError(sender, f"sent a round's outcome with a client called {name!r}")
        return report


class RoundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A finished round with its sum, as a server sees it.

    Attributes:
        number: the round's number.
        clients: who was counted.
        excluded: who was not, and why.
        update: by block, the exact sum over the counted clients, (rows, width) or (size,): float64; where the ring has
            no fraction bits, integers.
        elements: the same sum as signed ring integers; `RingIntegers` takes them back.
        union: by sparse block, the union that the round found or was aligned on; empty where the task has none.
    """

    number: int
    clients: tuple[str, ...]
    excluded: dict[str, str]
    update: dict[str, npt.NDArray[Any]]
    elements: dict[str, npt.NDArray[Any]]
    union: dict[str, npt.NDArray[np.uint32]] = {}


class ClientOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a client learns about its submission.

    Attributes:
        number: the round's number.
        counted: whether the submission is in the sum that was applied.
        reason: why not; empty where it is.
        clients: everybody who was counted.
        opened: whether the submission is in a sum that was opened, and refused: both servers know the sum, so the same
            values must not be submitted again. `Client.outcome` then raises `SumRefusedError`.
    """

    number: int
    counted: bool
    reason: str
    clients: tuple[str, ...]
    opened: bool = False


@dataclass(frozen=True)
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
    """

    number: int
    digest: bytes
    signatures: tuple[bytes, bytes]
    bytes_sent: int
    left_out: Mapping[str, Sequence[int]] = field(default_factory=dict, repr=False)
