"""What a server holds from one round to the next: how far it has got, the model, and what belongs to it.

The sequence of rounds (see `parties.server.round_sequence`) reads here what the next round begins with, and adopts here
what a settled one has left, once it is stored.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from fsl_async.bin_count import bins_of_round
from fsl_async.config import Draw, RoundConfig, ServerKeys, describe_model, describe_plain
from fsl_async.digests import Domain, digest
from fsl_async.model_numbers import check_numbers
from fsl_async.protocols import psu
from fsl_async.protocols.machine import Event
from fsl_async.protocols.toss import Tossed
from fsl_async.server.rules import check_state, describe_state
from fsl_async.union import pack_union, shape_of_round
from parties.outcome import Aborted, Done, Model, RoundReport
from parties.server.history import Arrays, Progress, SessionSeed, SumOf, settling, standing_of
from parties.server.round.conclusion import OpenedSum
from parties.server.round.places import RoundQuota
from parties.server.rounds import FoundUnion
from parties.server.setup import ServerSetup
from parties.status import PastRound
from parties.storage.store import Change, Store


class LastingState:
    """What one server holds.

    Args:
        setup: what the server is made of.

    Attributes:
        progress: how far the server has got.
        arrays: the model, the state beside it, the union, and the last sum if the setup keeps it.
    """

    def __init__(self, setup: ServerSetup) -> None:
        check_numbers(setup.task, setup.model)
        check_state(setup.task, setup.state)
        self._setup = setup
        self.progress = Progress(
            task=setup.task.canonical(),
            server=setup.index,
            keys=setup.identity.public.keys,
            alignment=psu.begin(setup.task),
        )
        self.arrays = Arrays(dict(setup.model), dict(setup.state))
        self._describe()

    async def restore(self, store: Store) -> None:
        """Read back what is stored.

        Raises:
            StorageError: it cannot be read, or is another server's or another task's.
        """
        self.progress, self.arrays = await standing_of(store, self.progress, self.arrays)
        self._describe()

    @property
    def settled(self) -> int:
        """The number of the last settled round; 0 before the first."""
        return self.progress.settled

    @property
    def model_digest(self) -> bytes:
        """The digest of the model and the rule's state as they stand, which both servers compare before every round."""
        return digest(Domain.MODEL, *(entry.digest for entry in self._described), self._state_digest)

    # ---- before a round

    def configuration(self, tossed: Tossed, sample: Draw | None) -> RoundConfig:
        """Of the round that this toss opens, with those that were drawn for it."""
        setup, number = self._setup, tossed.half.number
        session = self.progress.session
        if session is None or setup.task.selection != "fixed":
            session = SessionSeed(number=number, hash_seed=tossed.hash_seed)
            self.progress = msgspec.structs.replace(self.progress, session=session)
        own, peer = setup.identity.public.keys, setup.peer.keys
        servers: tuple[ServerKeys, ServerKeys] = (own, peer) if setup.index == 0 else (peer, own)
        coming = psu.effects(self.progress.alignment, setup.task)
        bins = bins_of_round(setup.task, coming.union, self._described)
        shape = shape_of_round(setup.task, coming.protocol, coming.union, bins)
        return RoundConfig(
            task=setup.task,
            number=number,
            session=session.number,
            hash_seed=session.hash_seed,
            toss=tossed.commitments,
            servers=servers,
            model=self._described,
            bins=bins,
            protocol=coming.protocol,
            union=coming.union,
            plain=describe_plain(shape, self.arrays.model, self.arrays.union),
            found=coming.found,
            state=self._state_digest,
            sample=sample,
        )

    # ---- after a round

    def settling(self, past: PastRound, opened: OpenedSum | None) -> tuple[Progress, Arrays, list[Change]]:
        """What the server is to hold after a settled round, and the changes that store it; nothing is adopted yet."""
        done = isinstance(past.report.ending, Done)
        sum_of, arrays = self.progress.sum_of, self.arrays
        if done and opened is not None and past.protocol == "ssa":
            keeps = self._setup.keeps_update
            sum_of = SumOf(number=past.report.number, clients=len(past.report.clients)) if keeps else None
            update: Model = dict(opened.outcome.update) if keeps else {}
            arrays = Arrays(opened.model, opened.state, arrays.union, update)
        elif done and opened is not None:
            arrays = replace(arrays, union=opened.union)
        progress = msgspec.structs.replace(
            self.progress,
            settled=past.report.number,
            alignment=psu.step(self.progress.alignment, self._alignment_event(past)),
            done=self.progress.done + done,
            aborted=self.progress.aborted + (not done),
            sum_of=sum_of,
        )
        progress, changes = settling(progress, past, self.arrays, arrays, self._setup.schedule.retention)
        return progress, arrays, changes

    def adopt(self, progress: Progress, arrays: Arrays, report: RoundReport) -> None:
        """Hold this from now on; it is stored, and the account of the round that has left it has its digests."""
        self.progress, self.arrays = progress, arrays
        self._described, self._state_digest = report.model, report.state

    def found_union(self, before: FoundUnion | None) -> FoundUnion | None:
        """The union that was found last, where it is for clients to read; the same value as long as it is the same."""
        last = self.progress.alignment
        if not isinstance(last, psu.Found) or (before is not None and before.round_id == last.round_id):
            return before
        task, union = self._setup.task, self.arrays.union
        packed: dict[str, bytes] = {
            block.name: pack_union(union[block.name], block.rows) for _, block in task.sparse_blocks()
        }
        return FoundUnion(last.round_id, packed, RoundQuota(task.retrievals))

    def _alignment_event(self, past: PastRound) -> Event:
        if past.protocol != "psu":
            return psu.MainSettled()
        if isinstance(past.report.ending, Aborted):
            return psu.UnionLost()
        if self._setup.task.protocol == "psu":
            return psu.UnionPublished(past.report.round_id)
        return psu.UnionFound(past.report.union, stays=self._setup.task.selection == "fixed")

    def _describe(self) -> None:
        self._described = describe_model(self._setup.task, self.arrays.model)
        self._state_digest = describe_state(self.arrays.state)
