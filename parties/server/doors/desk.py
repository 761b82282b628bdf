"""What all doors of a server share in its core: who decides, and what is counted over all of them."""

from __future__ import annotations

from contextlib import AsyncExitStack

import trio

from fsl_async.errors import PeerViolationError
from parties.identity.keys import PublicIdentity
from parties.server.clients.answerer import Room
from parties.server.clients.connection import SENDING
from parties.server.doors.forward_orders import ForwardOrders
from parties.server.doors.visits import Places, Turns, Visit
from parties.server.peer.forward_keeper import MOST_LINKS
from parties.server.peer.offers import Offers
from parties.server.refusals import RequestRefusedError
from parties.server.server import Server
from transport import NoPlace, Refusal

__all__ = ["CoreDesk"]


class CoreDesk:
    """Decides for all doors of one server.

    Args:
        server: the server.

    Attributes:
        server: as given.
        requests: decides about clients' requests.
        offers: decides about what the other server forwards.
        orders: has the doors forward to it.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.requests = server.requests
        self.offers = Offers(server.actor)
        self.orders = ForwardOrders()
        self._limits = server.setup.conversations
        self._places = Places()
        self._turns = Turns()

    def admit_offhand(self, visit: Visit, payload: bytes) -> bytes | Refusal | None:
        """The answer of `admit` to a client that is known; None where something has to be waited for."""
        setup, enrolment = self.server.setup, self.server.enrolment
        client = None if visit.key == setup.peer.channel else enrolment.by_channel(visit.key)
        if client is None:
            return None
        answer = enrolment.recognise(client, payload)
        return answer if isinstance(answer, Refusal) else self._let_in(visit, client, answer)

    async def admit(self, visit: Visit, payload: bytes) -> bytes | Refusal:
        """Decide about the holder of an authenticated channel key; the answer is what its handshake ends with.

        The visit has its key's place from then on, until `end`; its name and client are filled in.
        """
        server, setup = self.server, self.server.setup
        is_peer = visit.key == setup.peer.channel
        if is_peer and not self.offers.are_made(payload):
            return Refusal(
                f"the doors of {setup.name} take what {setup.peer_name} forwards, and no link: name the address of the "
                "link in the servers' list of the task file"
            )
        answer = await server.admit_in_sight(visit.key, payload)
        if isinstance(answer, Refusal):
            return answer
        client = None if is_peer else server.enrolment.by_channel(visit.key)
        if client is None and not is_peer:  # dismissed meanwhile
            return Refusal(f"a key that is not known to {setup.name} any more")
        return self._let_in(visit, client, answer)

    def _let_in(self, visit: Visit, client: PublicIdentity | None, answer: bytes) -> bytes | Refusal:
        """Give a visit a place, if its key has one left: of a client, or of the other server."""
        server, setup = self.server, self.server.setup
        most = MOST_LINKS if client is None else setup.limits.per_key
        if not self._places.take(visit.key, most):
            return NoPlace(f"{most} connections with this key are open already, over all doors")
        visit.client, visit.name = client, setup.peer_name if client is None else client.name
        if client is not None:
            server.come(client.name)
        return answer

    def end(self, visit: Visit) -> None:
        """A visit that was let in is over."""
        self.wait_for_round(visit, None)
        self._places.give_back(visit.key)
        if visit.client is not None:
            self.server.leave(visit.client.name)

    def wait_for_round(self, visit: Visit, after: int | None) -> None:
        """Note that a visit's client waits to take part in a round, or does not wait any more."""
        askers, before = self.server.actor.rounds.askers, visit.after
        visit.after = after
        if after is not None:
            askers.begin(visit.name, after)
        if before is not None:
            askers.end(visit.name, before)

    # ---- limits

    @property
    def patience(self) -> float:
        """Seconds for which a granted request's bulk may be on its way: longer than any client may take."""
        return 2 * self._limits.message_seconds

    def is_leisurely(self, client: str) -> bool:
        """Whether a client may ask for something more at once; if so, it has."""
        return self.server.clients.rate.admits(client)

    async def pace(self, client: str) -> None:
        """Wait until a client may ask for something more."""
        await self.server.clients.rate.wait(client)

    async def take_turn(self, client: str) -> None:
        """Let one message with bulk of a client be under way at a time: this one is, until `end_turn`.

        Raises:
            RequestRefusedError: another one has not come to its end in time.
        """
        if not self._turns.take(client):
            with trio.move_on_after(self._limits.queue_seconds) as waiting:
                await self._turns.wait(client)
            if waiting.cancelled_caught:
                raise self._busy("another message of yours has not come to its end")

    def end_turn(self, client: str) -> None:
        """The message that had its turn has come to its end."""
        self._turns.end(client)

    def room(self, client: str, lent: AsyncExitStack) -> Room:
        """Takes room in the core's memory for an answer of this client's, which lasts as long as the stack."""
        budget = self.server.clients.answer_memory

        async def take(own: int) -> None:
            size = min(own + SENDING, budget.limit)
            with trio.move_on_after(self._limits.queue_seconds):
                loan = await lent.enter_async_context(budget.loan(client, size))
                await budget.lend(loan, size)
                return
            raise self._busy(f"no room for an answer of {own:,} bytes")

        return take

    def _busy(self, why: str) -> RequestRefusedError:
        return RequestRefusedError.because(
            "busy", f"{why}: others are being served", max(1, round(self._limits.queue_seconds))
        )


class DoorViolationError(PeerViolationError):
    """A door says what no door says: it is disconnected, and its clients go to others."""
