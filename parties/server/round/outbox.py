"""What a round sends to the other server: what its state asks for, and the public parts of the clients it carries.

Rules: bulk data is read from the store when its turn comes; if the round is over by then, nothing is sent. A part that
has been forwarded is forwarded again each time the servers meet, because a lost connection may have lost it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import assert_never

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from fsl_async.protocols import psr, ssa
from fsl_async.wire.messages import Forward
from parties.server.peer.link import PeerLink
from parties.server.round.assembly import RequestKey
from parties.server.round.records import RoundRecords


class Outbox:
    """What one round sends to the peer.

    Args:
        round_id: the round.
        link: to the peer.
        records: where bulk data is stored.
        over: set when the round is over; its records may be gone from then on.

    Attributes:
        over: as given.
    """

    def __init__(self, round_id: bytes, link: PeerLink, records: RoundRecords, over: trio.Event) -> None:
        self._round_id = round_id
        self._link = link
        self._records = records
        self.over = over
        self._forwards: dict[RequestKey, bytes] = {}

    def send(self, effect: ssa.Send | ssa.SendCounts | ssa.SendShare | psr.Send) -> None:
        """Send what the state says the peer may lack."""
        match effect:
            case ssa.Send(message=message, bulk=bulk):
                self._link.post(message, bulk)
            case psr.Send(message=message):
                self._link.post(message)
            case ssa.SendCounts(message=message, counts=counts):
                self._link.post_stored(message, partial(self._fetch, partial(self._records.counts, counts)))
            case ssa.SendShare(message=message, share=share):
                self._link.post_stored(message, partial(self._fetch, partial(self._records.share, share)))
            case _:
                assert_never(effect)

    def forward(self, key: RequestKey, part: bytes) -> None:
        """Send a client's stored public part, unless it is on its way already."""
        if key not in self._forwards:
            self.note_forward(key, part)
            self._post_forward(key, part)

    def note_forward(self, key: RequestKey, part: bytes) -> None:
        """Note a part that was forwarded before a restart: it is sent again when the servers meet."""
        self._forwards[key] = part

    def resend_forwards(self) -> None:
        """Send all parts again, because the servers have met anew."""
        for key, part in self._forwards.items():
            self._post_forward(key, part)

    def _post_forward(self, key: RequestKey, part: bytes) -> None:
        message = Forward(round_id=self._round_id, client=key.client, purpose=key.purpose, query=key.query)
        self._link.post_stored(message, partial(self._fetch, partial(self._records.part, key, part)))

    async def _fetch(self, read: Callable[[], Awaitable[memoryview]]) -> Buffer | None:
        """The bulk of a message, read when its turn comes; None if the round is over by then."""
        if self.over.is_set():
            return None
        try:
            return await read()
        except StorageError:
            if self.over.is_set():  # and erased, meanwhile
                return None
            raise
