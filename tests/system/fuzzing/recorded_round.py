"""A round's journal read back from a store: entries that anything may have happened to, taken again as after a restart.

The input is a row of entries, each behind its length in two bytes. What an honest round has recorded leads through all
its states, and the shares that it names are in the store.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from fsl_async.errors import StorageError
from fsl_async.protocols import psr, ssa
from fsl_async.protocols.machine import Event
from fsl_async.task import Task
from fsl_async.wire.pieces import piece_digest, share_digest, spans_of
from parties.events import unobserved
from parties.server.evidence import EvidenceBook
from parties.server.ledger import PrivacyLedger
from parties.server.round.accumulation import InProcess
from parties.server.round.engine import RoundStart
from parties.server.round.run import RoundRun
from parties.server.round.services import RoundServices
from parties.server.round.shares import ShareRecords
from parties.server.storage import Standstill
from parties.storage.blobs.memory import StoreBlobs
from parties.storage.store import MemoryStore, Record
from tests.support.machine_scenes import key

from .channel_parsers import LaneAtOnce, at_once
from .parser import SLOW, Parser
from .samples import CONFIG, SERVERS, repeating
from .store_parsers import MODEL, ROUND, SilentLink, records_of

TERMS = ssa.Terms.of(CONFIG, 0)
BEGUN = RoundStart(
    config=CONFIG, server=0, proof_key=key(12), model=MODEL, state={}, union={}, opened_at=1.0, closes_at=2.0, enough=2
)
PIECES = tuple(tuple(bytes([n]) * span.size(CONFIG.shape) for span in spans_of(CONFIG.shape)) for n in (0, 1))
NAMES = tuple(share_digest(map(piece_digest, pieces)) for pieces in PIECES)


async def _unreported(round_id: bytes, event: Event) -> None:
    raise AssertionError("nothing is computed")


def _services(store: MemoryStore) -> RoundServices:
    return RoundServices(
        nursery=None,
        lane=LaneAtOnce(),
        engine=InProcess(LaneAtOnce()),
        evidence=EvidenceBook(store),
        ledger=PrivacyLedger(CONFIG.task, store),
        known=lambda name: True,
        identity=SERVERS[0],
        randomness=repeating(1),
        link=SilentLink(),
        report=_unreported,
        observe=unobserved,
        standstill=Standstill(unobserved),
        clock=lambda: 3.0,
        rule=None,
        grace=1.0,
        patience=1.0,
    )


def _entries(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[:2], "big")
        yield data[2 : 2 + size]
        data = data[2 + size :]


def _read_events(data: bytes) -> None:
    """Take the entries again; the state that they lead to has effects, and a settled round an account."""
    store = MemoryStore()
    at_once(store.commit(*(Record(f"{ROUND}/events", entry) for entry in _entries(data))))
    shares = ShareRecords(store, StoreBlobs(store), LaneAtOnce(), ROUND)
    for pieces in PIECES:
        for piece in pieces:
            at_once(shares.keep_piece(piece_digest(piece), piece))
        at_once(shares.keep_list(tuple(map(piece_digest, pieces))))
    run = RoundRun(BEGUN, records_of(store, CONFIG), _services(store))
    at_once(run.replay())
    assert ssa.effects(run.state, run.driver.terms) is not None
    if isinstance(run.state, ssa.Done | ssa.Aborted):
        assert run.settled.is_set()
        assert (run.report().ended == "aborted") == isinstance(run.state, ssa.Aborted)


RETRIEVALS = msgspec.structs.replace(
    CONFIG,
    task=Task(name="alone", protocol="psr", blocks=CONFIG.task.blocks, max_clients=CONFIG.task.max_clients),
    protocol="psr",
)


def _read_retrievals(data: bytes) -> None:
    """The same for a round that only serves retrievals."""
    store = MemoryStore()
    at_once(store.commit(*(Record(f"{ROUND}/events", entry) for entry in _entries(data))))
    begun = replace(BEGUN, config=RETRIEVALS)
    run = RoundRun(begun, records_of(store, RETRIEVALS), _services(store))
    at_once(run.replay())
    assert psr.effects(run.state, run.driver.terms) is not None
    assert run.settled.is_set() == isinstance(run.state, psr.Done | psr.Aborted)
    if run.settled.is_set():
        assert (run.report().ended == "aborted") == isinstance(run.state, psr.Aborted)


def _journals_of_retrievals() -> list[bytes]:
    """A round that is done, one that the peer closes first, and two that are given up."""
    begun = replace(BEGUN, config=RETRIEVALS)
    terms = RoundRun(begun, records_of(MemoryStore(), RETRIEVALS), _services(MemoryStore())).driver.terms
    ends = [psr.PeerClosed(), psr.PeerConclusion(terms.outcome)]
    given_up = [psr.CloseRound(), psr.GaveUp("no disk")]
    aborted = [psr.PeerClosed(), psr.PeerAbort("S1 gave up: no disk")]
    return [journal_of(events) for events in ([psr.CloseRound(), *ends], ends, given_up, aborted)]


def journal_of(events: Sequence[Event]) -> bytes:
    entries = [msgspec.msgpack.encode(event) for event in events]
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def _journals() -> list[bytes]:
    """A round that is done, one that the peer closes first, and two that are given up."""
    clients = {"alice": key(100), "bob": key(101)}
    proofs = {client: key(200) for client in clients}
    submitted = [ssa.Submitted(client, submission) for client, submission in clients.items()]
    agreed = [*submitted, ssa.CloseRound(), ssa.PeerRoster(clients)]
    done = [
        *agreed,
        ssa.Evaluated(proofs),
        ssa.PeerProofs(proofs),
        ssa.Summed(NAMES[0], key(1)),
        ssa.PeerCommitment(ssa.share_commitment(TERMS, 1, clients, NAMES[1], key(2))),
        ssa.PeerShare(NAMES[1], key(2)),
        ssa.Applied(key(50)),
        ssa.PeerConclusion(key(50)),
    ]
    late = [submitted[0], ssa.PeerRoster(clients), submitted[1]]
    given_up = [*agreed, ssa.GaveUp("no disk")]
    return [journal_of(events) for events in (done, late, given_up, [ssa.PeerAbort("S1 gave up: no disk")])]


PARSERS = tuple(
    Parser(
        name,
        read,
        journals,
        (StorageError,),
        source=ROUND,
        share=10 * SLOW,
        tokens=tuple(b"\xa4type" + msgspec.msgpack.encode(event.__name__) for _, event in machine.TRANSITIONS),
    )
    for name, read, journals, machine in (
        ("server-round-of-retrievals", _read_retrievals, _journals_of_retrievals, psr),
        ("server-round-events", _read_events, _journals, ssa),
    )
)
