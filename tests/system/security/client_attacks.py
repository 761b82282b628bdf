"""What a malicious server tells clients; it keeps to the protocol between the servers.

Each attack lets a first round come to its sum, if the honest server takes part in that, and tells clients something
else, so that they send the same values again; then it leaves one of them out of the next sum.
"""

import msgspec
import trio

from fsl_async.digests import Domain
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import (
    Abort,
    Answer,
    AskOutcome,
    Finished,
    Hint,
    Message,
    Receipt,
    Refused,
    Retrieve,
    RosterList,
    Share,
    Submit,
)
from parties.server.replies import Reply
from parties.server.setup import ServerSetup
from parties.statement import Statement

from .byzantine import CLIENTS, VICTIM, Byzantine, Said, flipped

LATE = 100.0
"""Seconds that an answer is kept back: longer than a caller here waits."""

ROUND_CLOSED = Refused(reason="round-closed", explanation="the round of this request is not open")
BUSY = Refused(reason="busy", explanation="no room", retry_after=7)


class DropsLater(Byzantine):
    """Counts everybody in the first round, and not the victim in the next: what differs is the victim's."""

    def hear(self, event: Event) -> tuple[Event, ...]:
        dropped = isinstance(event, ssa.Submitted) and event.client == VICTIM and self.number() > 1
        return () if dropped else (event,)


class AnswersRoundClosed(DropsLater):
    """Lists everybody's submission, and says that the round has closed."""

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(reply, Receipt) and self.number() == 1 and self.is_told(client):
            return ROUND_CLOSED
        return reply

    def is_told(self, client: str) -> bool:
        """Whether this client is among those."""
        return True


class AnswersHalfRoundClosed(AnswersRoundClosed):
    def is_told(self, client: str) -> bool:
        return client in CLIENTS[::2]


class SaysBusy(DropsLater):
    """Lists everybody's submission, and says that there is no room for it, again and again."""

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(message, Submit | Hint) and isinstance(reply, Receipt | Refused) and self.number() == 1:
            return BUSY
        return reply


class SaysBusyForEver(Byzantine):
    """Says that it has no room for any submission, and lists those that it has stored."""

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(message, Submit | Hint):
            return BUSY
        return reply


class DeniesTheOutcome(DropsLater):
    """Knows of no round that is over."""

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(reply, Finished):
            return Refused(reason="round-closed", explanation="that round is unknown here")
        return reply


class ClosesAndDenies(DeniesTheOutcome):
    """Says that the round has closed without a submission that it has listed, and then knows of no such round."""

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(reply, Receipt):
            return ROUND_CLOSED
        return super().tell(client, message, reply)


class TellsOneAnother(DropsLater):
    """Signs for the victim alone that it was not counted."""

    async def answer(self, client: str, message: Message, reply: Reply) -> Reply:
        if client == VICTIM and isinstance(reply[0], Finished):
            self.fired = True
            return self._not_counted(client, bytes(reply[1]))
        return await super().answer(client, message, reply)

    def _not_counted(self, client: str, told: bytes) -> Reply:

        statement = Statement.parse(told, self.setup.task, client, "the test")
        fewer = statement.participants - statement.included
        lie = msgspec.structs.replace(statement, participants=fewer, seat=None, excluded="only_s0").canonical()
        return Finished(round_id=statement.round_id, signature=self.setup.identity.sign(Domain.STATEMENT, lie)), lie


class ReplaysAnOldOutcome(DropsLater):
    """Tells of every round what it signed of the first."""

    def __init__(self, setup: ServerSetup) -> None:
        super().__init__(setup)
        self._first: dict[str, Reply] = {}

    async def answer(self, client: str, message: Message, reply: Reply) -> Reply:
        if not isinstance(reply[0], Finished):
            return reply
        first = self._first.setdefault(client, (reply[0], bytes(reply[1])))
        self.fired |= first[1] != bytes(reply[1])
        return first


class TellsEverybodyTheFirst(DropsLater):
    """Gives every client what it has signed for the one that asked first."""

    def __init__(self, setup: ServerSetup) -> None:
        super().__init__(setup)
        self._first: dict[bytes, Reply] = {}

    async def answer(self, client: str, message: Message, reply: Reply) -> Reply:
        if not isinstance(reply[0], Finished):
            return reply
        first = self._first.setdefault(reply[0].round_id, (reply[0], bytes(reply[1])))
        self.fired |= first[1] != bytes(reply[1])
        return first


class SignsLate(DropsLater):
    """Lets everybody wait for an outcome for longer than any of them waits."""

    async def answer(self, client: str, message: Message, reply: Reply) -> Reply:
        if isinstance(message, AskOutcome) and self.number() <= 2:
            self.fired = True
            await trio.sleep(LATE)
        return reply


class GivesUpAfterTheHints(Byzantine):
    """Has everybody's submission, and gives the round up: what clients send again must be worth nothing to it."""

    def say(self, message: Message, bulk: bytes) -> Said:

        if isinstance(message, RosterList) and self.number() == 1:
            message, bulk = Abort(message.round_id, f"S{self.setup.index} gave up: no more"), b""
        yield message, bulk


class DeniesARetrieval(Byzantine):
    """Answers nobody's retrieval in the first round."""

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(message, Retrieve) and self.number() == 1:
            return ROUND_CLOSED
        return reply


class KeepsItsShare(Byzantine):
    """Sees the sum and shows nobody its share; then answers that the round has closed."""

    def say(self, message: Message, bulk: bytes) -> Said:

        if not isinstance(message, Share):
            yield message, bulk

    def tell(self, client: str, message: Message, reply: Message) -> Message:
        if isinstance(reply, Receipt | Finished):
            return ROUND_CLOSED
        return reply


# ---- rows


class AnswersWrongly(Byzantine):
    """Flips a bit of the row of one tree in every answer that has tags, and watches what the client does."""

    async def answer(self, client: str, message: Message, reply: Reply) -> Reply:
        header, bulk = reply
        task = self.setup.task
        tagged = task.security == "verified" or task.selection == "fixed"
        if not isinstance(header, Answer) or not len(bulk) or not tagged:
            return await super().answer(client, message, reply)
        self.fired = True
        return header, flipped(bytes(bulk), len(bulk) // 3)


LIES_TO_CLIENTS: dict[str, type[Byzantine]] = {
    "answers round-closed after listing": AnswersRoundClosed,
    "answers round-closed to half of the clients": AnswersHalfRoundClosed,
    "says busy after listing": SaysBusy,
    "says busy for ever": SaysBusyForEver,
    "denies the outcome": DeniesTheOutcome,
    "answers round-closed and denies the outcome": ClosesAndDenies,
    "tells one client that it was not counted": TellsOneAnother,
    "replays an old outcome": ReplaysAnOldOutcome,
    "tells everybody what it signed for the first": TellsEverybodyTheFirst,
    "signs an outcome late": SignsLate,
    "gives up after the hints": GivesUpAfterTheHints,
    "denies a retrieval": DeniesARetrieval,
    "keeps its share, and denies the round": KeepsItsShare,
    "answers retrievals wrongly": AnswersWrongly,
}
"""Played in simulated worlds, whose checks find values that are in two opened sums."""
