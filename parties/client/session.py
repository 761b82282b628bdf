"""A client's own side of its session: the trees that outlive their round, where the task's selection is fixed.

What may be hinted when is the machine of `fsl_async.protocols.epochs`; a value here pairs its state with the trees.
Values are never changed: the next one is in the client's store before it replaces this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fsl_async.protocols import epochs
from fsl_async.protocols.machine import Event
from fsl_async.secrecy import Discreet
from fsl_async.wire.messages import NO_RETRIEVAL
from fsl_async.wire.public_part import Trees
from parties.client.submission import Draft, TreeSource
from parties.client.trees import MadeTrees, StoredTrees


@dataclass(frozen=True)
class NoSession:
    """There are no trees; the next submission brings some."""


class StoredSession(Discreet, frozen=True, forbid_unknown_fields=True):
    """What is stored of a session: the machine's state, what its trees are planted from, and their commitments."""

    state: epochs.Planted | epochs.Established
    planting: StoredTrees
    commitments: tuple[bytes, bytes]


@dataclass(frozen=True)
class TreeSession:
    """Trees that both servers hold, or will once the submission that brought them is counted.

    Attributes:
        state: since when they stand, and the last epoch that they were hinted in.
        planting: the trees.
        commitments: to their master seeds, as they came.
    """

    state: epochs.Planted | epochs.Established
    planting: MadeTrees
    commitments: tuple[bytes, bytes] = field(repr=False)

    @property
    def stands(self) -> bool:
        """Whether a submission may hint at these trees."""
        return isinstance(self.state, epochs.Established)

    def source(self) -> TreeSource:
        """These trees, for a submission."""
        return TreeSource(Trees.SESSION, NO_RETRIEVAL, self.planting, self.commitments)

    def stored(self) -> StoredSession:
        """What must be stored of it."""
        return StoredSession(self.state, self.planting.stored(), self.commitments)


OwnSession: TypeAlias = NoSession | TreeSession


def submitted(session: OwnSession, draft: Draft, source: TreeSource) -> OwnSession:
    """The session once a submission is on its way.

    Raises:
        PeerViolationError: its epoch does not rise, or it would be a second hint in its epoch.
    """
    if draft.config.task.selection != "fixed":
        return NoSession()
    epoch, hint = draft.config.epoch, draft.header.public_digest
    if isinstance(session, TreeSession) and session.stands:
        return _step(session, epochs.Hinted(epoch, hint), draft.client)
    before = session.state if isinstance(session, TreeSession) else epochs.Absent()
    match epochs.step(before, epochs.Brought(epoch, hint), draft.client):
        case epochs.Absent():
            return NoSession()
        case state:
            return TreeSession(state, source.planting, source.commitments)


def settled(session: OwnSession, epoch: int, client: str, *, counted: bool) -> OwnSession:
    """The session after a round: trees that were counted in it may be hinted at from now on."""
    if isinstance(session, NoSession):
        return session
    return _step(session, epochs.Counted(epoch) if counted else epochs.Dropped(epoch), client)


def _step(session: TreeSession, event: Event, client: str) -> OwnSession:
    match epochs.step(session.state, event, client):
        case epochs.Absent():
            return NoSession()
        case state:
            return replace(session, state=state)
