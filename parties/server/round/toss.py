"""The toss that opens a round, on one server: the machine of `fsl_async.protocols.toss`, recorded and obeyed.

Rules: our half of the seed is in the store before any message mentions it, and each message of the peer's is recorded
before we act on it; so a server that restarts sends the same messages again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.protocols import toss as protocol
from fsl_async.protocols.machine import UnexpectedEvent
from fsl_async.randomness import Randomness
from fsl_async.wire.messages import TossCommitment, TossReveal
from parties.server.peer.link import PeerLink
from parties.server.store_layout import round_prefix
from parties.storage.store import DAMAGED, Put, Record, Store, decode_stored, replaying

LAST = "last-toss"

_Said: TypeAlias = protocol.PeerTossCommitment | protocol.PeerTossReveal


class TossRun:
    """The toss of one round.

    Args:
        start: the machine's state at its beginning, with our half.
        store: where it is recorded.
        link: to the peer.

    Attributes:
        number: the round's.
        state: the machine's.
    """

    def __init__(self, start: protocol.Committing, store: Store, link: PeerLink) -> None:
        self.number = start.half.number
        self.state: protocol.Toss = start
        self._store = store
        self._link = link
        self._sent: tuple[TossCommitment | TossReveal, ...] = ()

    @staticmethod
    async def begin(
        server: int, number: int, model: bytes, randomness: Randomness, store: Store, link: PeerLink
    ) -> TossRun:
        """Resume the toss for a round from the store, or begin it with fresh randomness.

        Args:
            server: 0 or 1.
            number: the round's.
            model: the digest of the model that this server holds.
            randomness: the operating system's, except in simulation.
            store: where the toss is recorded.
            link: to the peer.

        Raises:
            StorageError: what is recorded cannot be read, or belongs to another server or round.
        """
        journal = _journal(number)
        recorded = await store.entries(journal)
        if not recorded:
            half = protocol.Half(server, number, model, randomness(DIGEST_BYTES), randomness(DIGEST_BYTES))
            recorded = [msgspec.msgpack.encode(half)]
            await store.commit(Record(journal, *recorded))
        run = TossRun._again(recorded, journal, store, link)
        if (run.state.half.server, run.number) != (server, number):
            raise StorageError(f"{journal} is of S{run.state.half.server} in round {run.number}; {DAMAGED}")
        run._send()
        return run

    @staticmethod
    async def last(store: Store, link: PeerLink) -> TossRun | None:
        """The toss of the last settled round, as `remembered` stored it; None before the first."""
        if not await store.keys(LAST):
            return None
        recorded = decode_stored(await store.blob(LAST), list[bytes], LAST)
        return TossRun._again(recorded, LAST, store, link)

    @staticmethod
    def _again(recorded: Sequence[bytes], journal: str, store: Store, link: PeerLink) -> TossRun:
        if not recorded:
            raise StorageError(f"{journal} is empty; {DAMAGED}")
        run = TossRun(protocol.Committing(decode_stored(recorded[0], protocol.Half, journal)), store, link)
        for entry in recorded[1:]:
            said = decode_stored(entry, _Said, journal)
            with replaying(journal):
                run.state = protocol.step(run.state, said, link.peer)
        return run

    async def remembered(self) -> Put:
        """The change that stores this toss beyond its round, because the peer may still lack our half of it."""
        return Put(LAST, msgspec.msgpack.encode(await self._store.entries(_journal(self.number))))

    async def take(self, message: TossCommitment | TossReveal) -> None:
        """Take a message of the peer's.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or comes out of turn.
            StorageError: it could not be recorded; the state is as before.
        """
        match message:
            case TossCommitment(commitment=commitment, model=model):
                event: _Said = protocol.PeerTossCommitment(commitment, model)
            case TossReveal(seed=seed, nonce=nonce):
                event = protocol.PeerTossReveal(seed, nonce)
            case _:
                assert_never(message)
        try:
            after = protocol.step(self.state, event, self._link.peer)
        except UnexpectedEvent as error:
            raise PeerViolationError(self._link.peer, f"tosses out of turn: {error}") from error
        if after != self.state:
            await self._store.commit(Record(_journal(self.number), msgspec.msgpack.encode(event)))
            self.state = after
            self._send()

    def resend(self) -> None:
        """Send again what the peer may lack; also when the round is open, because it may still lack our half."""
        for message in protocol.effects(self.state):
            self._link.post(message)

    def resend_past(self) -> None:
        """Send our half again when the round is over here, because the peer may not know yet that it began."""
        for message in protocol.effects(self.state):
            if isinstance(message, TossReveal):
                self._link.post(msgspec.structs.replace(message, past=True))

    def _send(self) -> None:
        sent, self._sent = self._sent, protocol.effects(self.state)
        for message in self._sent:
            if message not in sent:
                self._link.post(message)


def _journal(number: int) -> str:
    return f"{round_prefix(number)}/toss"
