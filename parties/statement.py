"""What a server signs for one client once a round is over: how it ended, how many were counted, and whether it was.

Rules: a statement is for one client alone and names no other, unless the task asks for the list
(`Task.participants = "names"`); why others were not counted is told to nobody but them and the operators. Apart from
`client`, `seat` and `excluded`, every client of a round is told the same: also `root`, which stands for the list of who
is in the sum, and by which a client that is on it is shown that it is.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgpack
import msgspec

from fsl_async.config import BlockModel
from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import is_name
from fsl_async.geometry import RowNumbers
from fsl_async.merkle import RosterTree, Seat, is_seated, root_of_nobody
from fsl_async.task import Task
from fsl_async.union import UnionBlock, unpack_union
from fsl_async.wire.codec import UNREADABLE
from parties.outcome import Aborted, Done, Ending, Name, RoundReport

STATEMENT_BYTES = 32 * 1024
"""More than a statement can take without a list of names: two entries for each of a task's 32 blocks, and a text."""

NAME_BYTES = 260
"""More than a name in a statement's list can take: 64 characters."""

Digest: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Reason: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server's account of a round for one client.

    Attributes:
        client: whom it is for.
        round_id: which round.
        number: its number.
        ending: how it ended.
        participants: how many clients are in the sum; 0 where the round was aborted.
        root: what names the list of them; see `fsl_async.merkle`.
        seat: where this client is on that list and with which submission, with a proof; None where it is not on it.
        excluded: why it is not: only_s0, only_s1, mismatch, proof or bound; empty where it is, where nobody is, and
            where neither server had a submission of this client in time.
        model: the model after the round.
        union: in a union round, what it found.
        names: who is in the sum, sorted, if the task asks for that; otherwise empty.
        opened_rows: by sparse block, the rows that were opened, packed as a union is, if the task counts contributors;
            the changed model shows them in any case.
    """

    client: Name
    round_id: bytes
    number: int
    ending: Ending
    participants: Count
    root: Digest
    seat: Seat | None
    excluded: Reason
    model: tuple[BlockModel, ...]
    union: tuple[UnionBlock, ...] = ()
    names: tuple[Name, ...] = ()
    opened_rows: dict[Name, bytes] = {}

    @staticmethod
    def of(report: RoundReport, client: str, tree: RosterTree, *, named: bool) -> Statement:
        """What a report says to one client.

        Args:
            report: the full account.
            client: the client.
            tree: the tree over the report's list; the caller makes it once for all clients.
            named: whether the task asks for the list of names.
        """
        return Statement(
            client=client,
            round_id=report.round_id,
            number=report.number,
            ending=report.ending,
            participants=len(report.clients),
            root=tree.root,
            seat=tree.seat(client),
            excluded=report.excluded.get(client, ""),
            model=report.model,
            union=report.union,
            names=tuple(report.clients) if named else (),
            opened_rows=report.opened_rows,
        )

    @property
    def included(self) -> bool:
        """Whether the client's submission is in the sum."""
        return self.seat is not None

    @property
    def counted(self) -> bool:
        """Whether the client's submission is in the model."""
        return self.included and isinstance(self.ending, Done)

    @property
    def opened(self) -> bool:
        """Whether the client's submission is in a sum that was opened and not applied."""
        return self.included and not isinstance(self.ending, Done)

    def canonical(self) -> bytes:
        """The bytes that travel and that are signed."""
        return bytes(msgpack.packb(msgspec.to_builtins(self, builtin_types=(bytes,))))

    @staticmethod
    def parse(data: bytes | memoryview, task: Task, client: str, sender: str) -> Statement:
        """Read the canonical bytes of a statement of that task for that client.

        Raises:
            PeerViolationError: the bytes are not a statement, or it is another client's, or contradicts itself.
        """
        try:
            # Read as what it must be: a reader of anything would make room for every list that is declared in a list.
            statement = msgspec.msgpack.decode(data, type=Statement)
        except UNREADABLE as error:
            raise PeerViolationError(sender, f"sent a round's outcome that cannot be read: {error}") from error
        if statement.canonical() != data:
            raise PeerViolationError(sender, "sent a round's outcome that is not in canonical form")
        if wrong := statement._wrong(task, client):
            raise PeerViolationError(sender, f"sent a round's outcome {wrong}")
        statement.rows(task, sender)
        return statement

    def rows(self, task: Task, sender: str) -> dict[str, RowNumbers]:
        """By sparse block, the rows that were opened, ascending; empty where contributors are not counted.

        Raises:
            PeerViolationError: they are not rows of the task's blocks.
        """
        sizes = {block.name: block.rows for _, block in task.sparse_blocks()}
        return {name: unpack_union(packed, sizes[name], sender) for name, packed in self.opened_rows.items()}

    def _wrong(self, task: Task, client: str) -> str:
        """What makes it no statement that an honest server signs for this client; empty if nothing does."""
        if self.client != client:
            return f"that was signed for another client than {client!r}"
        if not self.included <= self.participants <= task.max_clients:
            return f"with {self.participants} clients in its sum; the task has at most {task.max_clients}"
        if self.included and self.excluded:
            return f"that both counts this client and does not ({self.excluded!r})"
        if wrong := self._wrong_seat():
            return wrong
        if wrong := self._wrong_rows(task):
            return wrong
        if self.names and task.participants != "names":
            return "with names of participants, for which the task does not ask"
        if task.participants == "names":
            return self._wrong_names()
        return ""

    def _wrong_seat(self) -> str:
        if not self.participants and self.root != root_of_nobody():
            return "with a list of clients although nobody is in its sum"
        if self.seat is not None and not is_seated(self.root, self.participants, self.client, self.seat):
            return "that counts this client, and does not prove that it is on the list that the root names"
        return ""

    def _wrong_rows(self, task: Task) -> str:
        counts = task.min_contributors is not None and not isinstance(self.ending, Aborted)
        expected = {block.name for _, block in task.sparse_blocks()} if counts else set()
        if set(self.opened_rows) != expected:
            return f"with opened rows of {sorted(self.opened_rows)}, expected of {sorted(expected)}"
        return ""

    def _wrong_names(self) -> str:
        if len(self.names) != self.participants or (self.client in self.names) != self.included:
            return f"with {len(self.names)} names, which are not those of the {self.participants} clients in its sum"
        for name in self.names:
            if not is_name(name):
                return f"with a client called {name!r}"
        return ""


def longest_statement(task: Task) -> int:
    """The bytes that no statement of a task exceeds."""
    names = NAME_BYTES * task.max_clients if task.participants == "names" else 0
    rows = sum(NAME_BYTES + block.rows // 8 for _, block in task.sparse_blocks())
    return STATEMENT_BYTES + names + (rows if task.min_contributors is not None else 0)
