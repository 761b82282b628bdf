"""What a round sends to the other server: what its state asks for, and the public parts of the clients it carries.

Rules: bulk data is read from the store when its turn comes; if the round is over by then, nothing is sent. A part that
has been forwarded is forwarded again when the servers meet, because a lost connection may have lost it, unless the
other server says that it holds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from fsl_async.protocols.ending import Send, Stored
from fsl_async.wire.messages import AskPieces, Forward, Held, HeldParts, SharePiece
from fsl_async.wire.peer_lists import mark_of
from fsl_async.wire.pieces import packed_pieces
from parties.compute import ComputeLane
from parties.server.peer.link import PeerLink
from parties.server.round.records import RoundRecords
from parties.server.storage import PAUSE
from parties.server.store_layout import RequestKey
from parties.storage.blobs.blobs import DamagedBlobError


class Outbox:
    """What one round sends to the peer.

    Args:
        config: the round.
        link: to the peer.
        records: where bulk data is stored.
        over: set when the round is over; its records may be gone from then on.
    """

    def __init__(self, config: RoundConfig, link: PeerLink, records: RoundRecords, over: trio.Event) -> None:
        self._round_id = config.round_id()
        self._link = link
        self._records = records
        self.over = over
        self._forwards: dict[RequestKey, bytes] = {}
        self._damaged: dict[RequestKey, bytes] = {}
        self._damage = trio.Event()
        self._pieces_asked = False

    def send(self, effect: Send) -> None:
        """Send what the state says the peer may lack."""
        match effect.bulk:
            case Stored(kind=kind, name=name):
                read = {"counts": self._records.counts, "share": self._list}[kind]
                self._link.post_stored(effect.message, partial(self._fetch, partial(read, name)))
            case bulk:
                self._link.post(effect.message, bulk)

    def tell_held(self, clients: int) -> None:
        """Say how many submissions are here of clients that the peer carries."""
        self._link.post(Held(self._round_id, clients))

    async def send_pieces(self, share: bytes, first: int) -> bool:
        """Send the pieces of our share from one on; whether they were not asked for before, since the servers met.

        Raises:
            StorageError: the share is not stored.
        """
        if self._pieces_asked:
            return False
        self._pieces_asked = True
        for place, name in enumerate(await self._records.shares.pieces(share)):
            if place >= first:
                read = partial(self._records.shares.piece, name)
                self._link.post_stored(SharePiece(self._round_id, place), partial(self._fetch, read))
        return True

    def ask_pieces(self, first: int) -> None:
        """Ask for the pieces of the peer's share from one on."""
        self._link.post(AskPieces(self._round_id, first))

    def forward(self, key: RequestKey, part: bytes) -> None:
        """Send a client's stored public part, unless it is on its way already."""
        if key not in self._forwards:
            self.note_forward(key, part)
            self._post_forward(key, part)

    def note_forward(self, key: RequestKey, part: bytes) -> None:
        """Note a part that was forwarded before a restart: it is sent again when the servers meet."""
        self._forwards[key] = part

    def say_held_parts(self, held: Callable[[], Awaitable[bytes]]) -> None:
        """Say which parts of the other server's clients are here.

        Args:
            held: makes their marks, when the message's turn comes.
        """
        self._link.post_stored(HeldParts(self._round_id), held)

    async def resend_forwards(self, held: frozenset[bytes], lane: ComputeLane) -> None:
        """Send all parts again but those of which the other server holds the marks: the servers have met anew."""
        self._pieces_asked = False
        noted = list(self._forwards.items())
        lacking = await lane.run(lambda: [(key, part) for key, part in noted if mark_of(*key, part) not in held])
        for key, part in lacking:
            self._post_forward(key, part)

    async def forward_repaired(self) -> None:
        """Send parts that were altered or missing, when they are there again; until cancelled."""
        while True:
            await self._damage.wait()
            await trio.sleep(PAUSE)
            damaged, self._damaged, self._damage = self._damaged, {}, trio.Event()
            for key, part in damaged.items():
                self._post_forward(key, part)

    async def _list(self, share: bytes) -> memoryview:
        return memoryview(packed_pieces(await self._records.shares.pieces(share)))

    def _post_forward(self, key: RequestKey, part: bytes) -> None:
        message = Forward(round_id=self._round_id, client=key.client, purpose=key.purpose, query=key.query)
        self._link.post_stored(message, partial(self._fetch, partial(self._part, key, part)))

    async def _part(self, key: RequestKey, part: bytes) -> memoryview | None:
        """A public part; none where it is damaged, of which the operator hears: the other server would see a lie."""
        try:
            found = await self._records.part(key, part)
            self._records.note_used(key, part)
            return found
        except DamagedBlobError:
            self._damaged[key] = part
            self._damage.set()
            return None

    async def _fetch(self, read: Callable[[], Awaitable[memoryview | None]]) -> Buffer | None:
        """The bulk of a message, read when its turn comes; None if the round is over by then."""
        if self.over.is_set():
            return None
        try:
            return await read()
        except StorageError:
            if self.over.is_set():  # and erased, meanwhile
                return None
            raise
