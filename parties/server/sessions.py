"""The trees that outlive their round: one session per client, in tasks whose selection is fixed.

Each client's session is the machine of `fsl_async.protocols.epochs`; the store has its state and its trees. A hint
that the machine refuses goes into the evidence, with the one that it contradicts.

    session/<client>/state              value: the machine's state
    session/<client>/<since>/trees      blob: the public part that brought the trees, in round `since`
    session/<client>/<since>/origin     blob: what else belongs to them
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import ClassVar
from urllib.parse import unquote

import msgspec

from fsl_async.bin_count import planned
from fsl_async.config import RoundConfig
from fsl_async.errors import PeerViolationError
from fsl_async.protocols import epochs
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.secrecy import Discreet
from fsl_async.server.aggregation import Submission
from fsl_async.task import ProtocolName, Task
from fsl_async.union import union_task
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.events import Observer, Warned, unobserved
from parties.server.replies import NOTHING, ContradictionError, RequestRefusedError
from parties.server.store_layout import client_key
from parties.storage.blobs.blobs import DamagedBlobError
from parties.storage.store import Change, Erase, Put, Store, decode_stored


class StoredOrigin(Discreet, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What belongs to a session's trees: the seeds they grow from, and their layout in the part that brought them."""

    hidden: ClassVar[frozenset[str]] = frozenset({"msk"})
    msk: bytes
    commitments: tuple[bytes, bytes]
    tree: bytes
    trees: Trees
    protocol: ProtocolName


class Sessions:
    """All sessions of one server.

    Args:
        task: what is learnt.
        store: where sessions are kept.
        observe: hears of sessions that end because their trees are lost.
    """

    def __init__(self, task: Task, store: Store, observe: Observer = unobserved) -> None:
        self._task = task
        self._store = store
        self._observe = observe
        self._states: dict[str, epochs.Session] = {}

    async def restore(self) -> None:
        """Read back all sessions.

        Raises:
            StorageError: they cannot be read.
        """
        for key in await self._store.keys("session/"):
            if key.endswith("/state"):
                state = decode_stored(await self._store.blob(key), epochs.Session, key)
                self._states[unquote(key.split("/")[1])] = state

    async def origin(self, client: str) -> StoredOrigin:
        """Where the trees of a client's session come from.

        Raises:
            RequestRefusedError: it has no session here.
        """
        place = f"{self._established(client)}/origin"
        origin: StoredOrigin = decode_stored(await self._store.blob(place), StoredOrigin, place)
        return origin

    def _established(self, client: str) -> str:
        """The prefix under which the trees of a client's session are stored.

        Raises:
            RequestRefusedError: it has no session here.
        """
        state = self._states.get(client)
        if not isinstance(state, epochs.Established):
            raise RequestRefusedError.because(
                "no-session", "you have no session here: retrieve or submit with new trees, which begins one"
            )
        return _tree_prefix(client, state.since)

    async def of(self, config: RoundConfig, client: str) -> Submission:
        """The submission that brought the trees of a client's session, without its hints.

        Args:
            config: a main round of the session; all of them have one shape.
            client: whose session.

        Raises:
            RequestRefusedError: it has no session here.
        """
        prefix, origin = self._established(client), await self.origin(client)
        shape = union_task(planned(self._task)) if origin.protocol == "psu" else config.shape
        layout = Layout.retrieval(shape) if origin.trees is Trees.RETRIEVAL else Layout.submission(shape, origin.trees)
        return Submission(
            client=client,
            msk=origin.msk,
            commitments=origin.commitments,
            tree=origin.tree,
            trees=Part(layout, await self._store.blob(f"{prefix}/trees")),
            part=Part(layout, NOTHING),
            dense=NOTHING,
        )

    def take(self, client: str, event: epochs.Brought | epochs.Hinted) -> Put:
        """Take a submission; what is returned belongs in the commit that stores it.

        Raises:
            RequestRefusedError: its epoch does not rise, it is the epoch's second hint, or there is no session.
        """
        try:
            return self._step(client, event)
        except PeerViolationError as error:
            known = self._states[client]
            first = known.hint if isinstance(known, epochs.Planted | epochs.Established) else b""
            raise ContradictionError("conflict", str(error), "two-hints", first, event.hint) from error
        except UnexpectedEvent as error:
            raise RequestRefusedError.because("no-session", str(error)) from error

    async def settle(
        self,
        epoch: int,
        protocol: ProtocolName,
        counted: Collection[str],
        fetch: Callable[[str], Awaitable[Submission]],
    ) -> list[Change]:
        """Settle a round: trees of submissions that were counted stay, the others go.

        Trees that are altered or missing in blobs for good end their client's session here, because the other server
        forwards nothing of a round that is over; the client is told so, and begins a new one.

        Args:
            epoch: the round's.
            protocol: the round's.
            counted: the clients whose submissions were counted.
            fetch: reads a submission of the round; raises DamagedBlobError where it is not worth while to wait longer.

        Returns:
            What belongs in the commit that settles the round; the trees themselves are stored already.
        """
        changes: list[Change] = []
        for client, state in list(self._states.items()):
            if client not in counted:
                changes += self._drop(client, epoch)
                continue
            if isinstance(state, epochs.Planted) and state.epoch == epoch:
                try:
                    brought = await fetch(client)
                except DamagedBlobError as error:
                    changes += self._drop(client, epoch)
                    self._observe(Warned(about="blobs", explanation=f"the session of {client!r} ends here: {error}"))
                    continue
                replaced = await self._tree_prefixes(client) - {_tree_prefix(client, epoch)}
                changes += [Erase(f"{prefix}/") for prefix in replaced]
                await self._keep_trees(epoch, protocol, brought)
            changes.append(self._step(client, epochs.Counted(epoch)))
        return changes

    def _drop(self, client: str, epoch: int) -> list[Change]:
        before = self._states[client]
        change = self._step(client, epochs.Dropped(epoch))
        if isinstance(self._states[client], epochs.Absent):
            del self._states[client]
            return [Erase(f"session/{client_key(client)}/")]
        return [change] if self._states[client] != before else []

    async def _keep_trees(self, epoch: int, protocol: ProtocolName, submission: Submission) -> None:
        """Store trees beside those that they replace: the commit that settles the round decides which ones stay."""
        own = submission.trees.layout == submission.part.layout
        origin = StoredOrigin(
            msk=submission.msk,
            commitments=submission.commitments,
            tree=submission.tree,
            trees=Trees.OWN if own else Trees.RETRIEVAL,
            protocol=protocol,
        )
        prefix = _tree_prefix(submission.client, epoch)
        await self._store.commit(
            Put(f"{prefix}/trees", submission.trees.data), Put(f"{prefix}/origin", msgspec.msgpack.encode(origin))
        )

    async def _tree_prefixes(self, client: str) -> set[str]:
        keys = await self._store.keys(f"session/{client_key(client)}/")
        return {key.rpartition("/")[0] for key in keys if not key.endswith("/state")}

    def _step(self, client: str, event: Event) -> Put:
        state = epochs.step(self._states.get(client, epochs.Absent()), event, client)
        self._states[client] = state
        return Put(f"session/{client_key(client)}/state", msgspec.msgpack.encode(state))


def _tree_prefix(client: str, since: int) -> str:
    return f"session/{client_key(client)}/{since:08}"
