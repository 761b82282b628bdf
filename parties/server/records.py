"""What a server keeps beyond a round: its clients, their sessions, the evidence, and the rounds that are over."""

from __future__ import annotations

from parties.server.admission import Enrolment
from parties.server.evidence import EvidenceBook
from parties.server.history import PastRounds
from parties.server.ledger import PrivacyLedger
from parties.server.sessions import Sessions
from parties.server.setup import ServerSetup
from parties.server.storage import PartCache, PatientBlobs, PatientStore, Standstill


class ServerRecords:
    """The lasting records of one server.

    Attributes:
        store: the server's store, for what the server records of its own accord: it waits for room.
        blobs: likewise, for clients' bulk.
        standstill: what of either waits, and how long it has.
        recent: public parts that its clients' connections have put a moment ago.
        enrolment: the clients that the server knows.
        sessions: the trees that outlive their round, where the task's selection is fixed.
        ledger: what rounds have spent of the privacy budget.
        evidence: what the server saw against the protocol.
        past: the rounds that are over.
    """

    def __init__(self, setup: ServerSetup) -> None:
        self.standstill = Standstill(setup.observe)
        self.store = PatientStore(setup.store, self.standstill)
        self.blobs = PatientBlobs(setup.bulk, self.standstill, setup.observe)
        self.recent = PartCache(setup.recent)
        self.enrolment = Enrolment(
            setup.name, setup.task.digest(), setup.registry, setup.policy, setup.store, setup.observe
        )
        self.sessions = Sessions(setup.task, self.store, setup.observe)
        self.evidence = EvidenceBook(self.store, setup.observe)
        self.ledger = PrivacyLedger(setup.task, self.store, setup.observe)
        self.past = PastRounds(self.store)

    async def restore(self) -> None:
        """Read back what the store holds, but for the model and how far the server has got.

        Raises:
            StorageError: it cannot be read.
        """
        await self.enrolment.restore()
        await self.evidence.restore()
        await self.sessions.restore()
        await self.ledger.restore()
