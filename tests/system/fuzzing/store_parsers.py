"""What a store gives back: every kind of value, blob and journal entry, and the file itself with damaged bytes.

A store's content is written by the party itself, so damage and other releases are the threat here, not an enemy; the
answer is a `StorageError` that a user can act on, or a refusal of what is another party's.
"""

from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest, public_digest, tree_digest
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.protocols import epochs, psu, sampling, ssa, toss
from fsl_async.protocols.entries import Entries
from fsl_async.wire.public_part import Layout, Trees, dense_bytes
from parties.client.session import StoredSession
from parties.client.state import ClientState
from parties.client.submission import Header, StoredDraft
from parties.client.trees import MadeTrees
from parties.identity.registry import Registry
from parties.server.admission import Anyone, Enrolment
from parties.server.evidence import Evidence, EvidenceBook
from parties.server.history import Arrays, PastRounds, Progress, SessionSeed, standing_of
from parties.server.ledger import Charge, PrivacyLedger
from parties.server.round.drawing import SampleRun
from parties.server.round.reading import StoredSubmission
from parties.server.round.records import RoundRecords
from parties.server.round.toss import TossRun
from parties.server.round.waiting import Measured, Stopwatch
from parties.server.sessions import Sessions
from parties.server.store_layout import RequestKey, dense_name, part_name
from parties.status import PastRound, RoundTimes
from parties.storage.mark import mark_path, read_mark
from parties.storage.sqlite_connections import Commit, ReadConnection, WriteConnection
from parties.storage.store import Keep, MemoryStore, Put, Record, Store
from tests.support.machine_scenes import key

from .channel_parsers import LaneAtOnce, at_once
from .parser import HEAVY, SLOW, Parser
from .samples import ALICE, CONFIG, REPORT, SERVERS, TASK, repeating, workplace

Restore = Callable[[Store], Coroutine[Any, Any, object]]

encode = msgspec.msgpack.encode


class _Calm(MemoryStore):
    """A store in memory with one thing in it."""

    def __init__(self, change: Put | Record, *others: Put | Record) -> None:
        super().__init__()
        at_once(self.commit(change, *others))


def _value(place: str, restore: Restore, *others: Put | Record) -> Callable[[bytes], None]:
    """A parser of what lies at a place of a store."""
    return lambda data: at_once(restore(_Calm(Put(place, data), *others)))


def _entry(journal: str, restore: Restore, *before: Put | Record) -> Callable[[bytes], None]:
    """A parser of a journal's entry."""

    def read(data: bytes) -> None:
        store = _Calm(*before, Record(journal, data)) if before else _Calm(Record(journal, data))
        at_once(restore(store))

    return read


# ---- a client's state


def load_state(store: Store) -> Coroutine[Any, Any, object]:
    return ClientState(store, ALICE.public, TASK, LaneAtOnce()).load()


def _fresh_state() -> bytes:
    store = MemoryStore()
    at_once(ClientState(store, ALICE.public, TASK, LaneAtOnce()).claim())
    return bytes(at_once(store.blob("owner")))


OWNER = Put("owner", _fresh_state())
HEADER = Header(
    digest=key(1),
    trees=Trees.OWN,
    query=0,
    seeds=(bytes(16), bytes(16)),
    commitments=(key(2), key(3)),
    public_digest=key(4),
    bound_digest=b"",
)
SUBMISSIONS = (
    {"type": "ended", "config": CONFIG.canonical(), "digest": key(1), "mark": key(2)},
    {"type": "received", "config": CONFIG.canonical(), "digest": key(1), "mark": key(2)},
    {"type": "pending", "draft": StoredDraft(CONFIG.canonical(), HEADER, {0: bytes(64)}, key(2), {"items": [3]})},
)


def _planting() -> MadeTrees:
    rows = {0: np.array([1, 5, 9], dtype=np.uint32)}
    return MadeTrees.fresh(CONFIG, rows, repeating(40))


def _sessions_of_client() -> list[bytes]:
    state = epochs.Established(3, 4, key(1))
    return [encode(StoredSession(state, _planting().stored(), (key(2), key(3))))]


def _retrievals() -> list[bytes]:
    return [encode({"config": CONFIG.canonical(), "query": 1})]


# ---- a server's

FRESH = Progress(
    task=TASK.canonical(),
    server=0,
    keys=SERVERS[0].public.keys,
    alignment=psu.Everything(),
    session=SessionSeed(number=2, hash_seed=key(8)),
)
MODEL = {"items": np.zeros((40, 2), np.float32), "head": np.zeros(3, np.float32)}
PAST = PastRound(
    report=REPORT, protocol="ssa", opened_at=1.0, settled_at=2.5, times=RoundTimes(collecting=1.5), evaluating=0.25
)


def open_history(store: Store) -> Coroutine[Any, Any, object]:
    return standing_of(store, FRESH, Arrays(MODEL))


def _standings() -> list[bytes]:
    store = MemoryStore()
    at_once(open_history(store))
    return [bytes(at_once(store.blob("standing")))]


_ARRAYS = (Put("model/items", MODEL["items"].tobytes()), Put("model/head", MODEL["head"].tobytes()))


async def _past(store: Store) -> None:
    history = PastRounds(store)
    await history.number(3)
    assert len(await history.last(3, 1)) == 1


async def _opened(store: Store) -> None:
    assert isinstance(await PastRounds(store).opened_at(3, 1.0), float)


async def _times(store: Store) -> None:
    watch = Stopwatch(1.0, f"{ROUND}/times")
    await watch.resume(store, ssa.Closed(Entries({})), 2.0)
    assert min(msgspec.structs.astuple(watch.times(ssa.Closed(Entries({})), 3.0))) >= 0


async def _evidence(store: Store) -> None:
    book = EvidenceBook(store)
    await book.restore()
    assert len(await book.entries()) == 1


EVIDENCE = Evidence(number=3, about="alice", kind="two-hints", first=key(1), second=key(2), explanation="twice")


async def _no_session(client: str) -> Any:
    raise PeerViolationError(client, "has no session")


def records_of(store: Store, config: RoundConfig = CONFIG) -> RoundRecords:
    return RoundRecords(store, config, _no_session, lane=LaneAtOnce())


async def _requests(store: Store) -> None:
    for known in await records_of(store).requests():
        assert known.key.purpose in ("retrieve", "submit")


def _read_part_name(data: bytes) -> None:
    store = _Calm(Put(f"{ROUND}/parts/{data.decode('utf-8', 'replace')}", b"part"))
    assert len(at_once(records_of(store).parts())) == 1


async def _submission(store: Store) -> None:
    await records_of(store).submission("alice")


LAYOUT = Layout.submission(CONFIG.shape, Trees.OWN)
BULK, DENSE = bytes(LAYOUT.size), bytes(dense_bytes(CONFIG.shape))
STORED = StoredSubmission(
    client="alice",
    name=key(1),
    msk=bytes(16),
    commitments=(key(2), key(3)),
    tree=key(4),
    trees=Trees.OWN,
    query=0,
    query_part=b"",
    part=public_digest(LAYOUT, BULK, tree_digest(LAYOUT, BULK)),
    bind=key(5),
    dense=dense_digest(DENSE, bytes(16)),
)
ROUND = "round-00000003"
PART = (
    Put(part_name(ROUND, RequestKey("alice", "submit", 0), STORED.part), BULK),
    Put(dense_name(ROUND, "alice", STORED.dense), DENSE),
)
SESSION = "session/alice"
STANDING = epochs.Established(2, 3, key(1))


async def _session_state(store: Store) -> None:
    await Sessions(TASK, store).restore()


async def _session_origin(store: Store) -> None:
    sessions = Sessions(TASK, store)
    await sessions.restore()
    await sessions.of(CONFIG, "alice")


ORIGIN = {"msk": bytes(16), "commitments": (key(1), key(2)), "tree": key(3), "trees": Trees.OWN, "protocol": "ssa"}


class SilentLink:
    """A link to the peer on which nothing is said."""

    peer = "S1"

    def post(self, message: Any, *bulk: bytes) -> None:
        """Forget it."""


async def _toss(store: Store) -> None:
    await TossRun.begin(0, 3, key(9), repeating(1), store, SilentLink())


async def _last_toss(store: Store) -> None:
    await TossRun.last(store, SilentLink())


async def _sample(store: Store) -> None:
    await SampleRun.begin(DRAWING, TOSSED_SEED, store, SilentLink())


async def _last_sample(store: Store) -> None:
    await SampleRun.last(DRAWING, 0, store, SilentLink())


DRAWING = msgspec.structs.replace(TASK, sample=0.5)
LISTS = [sampling.Frozen(("alice", "bob")), sampling.PeerAsked(("bob",))]
HALF, PEER_HALF = (toss.Half(server, 3, key(9), key(1), key(2)) for server in (0, 1))
TOSSED = toss.PeerTossCommitment(PEER_HALF.commitment(), key(9))


TOSSED_SEED = toss.Tossed(HALF, (key(1), key(2)), key(3), key(4), {})


async def _enrolled_before(store: Store) -> None:
    enrolment = Enrolment("S0", TASK.digest(), Registry(), Anyone(), store)
    await enrolment.restore()


ENROLLED = {"name": "alice", "channel": key(1), "statement": key(2), "token": b""}


# ---- the file

SQLITE = "store.db"


def _write_store(path: Path) -> None:
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    with closing(WriteConnection(path)) as end:
        changes = (Put("value", bytes(300)), Keep("blob", bytes(9_000)), Record("journal", b"entry"))
        end.transact([Commit.of(changes)])


def _stores() -> list[bytes]:
    path = workplace() / f"sample-{SQLITE}"
    _write_store(path)
    return [path.read_bytes()]


def _read_mark(data: bytes) -> None:
    path = workplace() / SQLITE
    mark_path(path).write_bytes(data)
    age = read_mark(path)
    mark_path(path).unlink()
    assert age is not None
    assert len(age.identity) == 16


def _read_store(data: bytes) -> None:
    """Open the file, read what is in it, write to it, and tidy up."""
    path = workplace() / SQLITE
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    path.write_bytes(data)
    with closing(WriteConnection(path)) as writing, closing(ReadConnection(path)) as reading:
        reading.entries("journal")
        for name in reading.keys(""):
            reading.blob(name)
        writing.transact([Commit.of((Put("value", bytes(10)), Record("journal", b"more")))])
        writing.tidy()


KEPT = (StorageError, MisuseError)
DAMAGED = (StorageError,)


def _parser(name: str, read: Callable[[bytes], object], samples: Any, **more: Any) -> Parser:
    made = samples if callable(samples) else lambda: [encode(sample) for sample in samples]
    return Parser(name, read, made, **{"errors": DAMAGED, **more})


PARSERS = (
    _parser("state-owner", _value("owner", load_state), lambda: [bytes(OWNER.data)], errors=KEPT),
    _parser(
        "state-names",
        lambda data: at_once(load_state(_Calm(OWNER, Put(data.decode("utf-8", "replace"), b"")))),
        lambda: [f"spent/{key(1).hex()}".encode(), f"doubts/{key(1).hex()}/3".encode()],
        longest=128,
        tokens=(b"spent/", b"doubts/"),
    ),
    _parser("state-session", _value("session", load_state, OWNER), _sessions_of_client, share=SLOW),
    _parser("state-retrieval", _value("retrieval", load_state, OWNER), _retrievals, share=SLOW),
    _parser(
        "state-submission",
        _value("submission", load_state, OWNER, Put("bulk/part", b"part"), Put("bulk/shares", b"")),
        SUBMISSIONS,
    ),
    _parser("server-standing", _value("standing", open_history, *_ARRAYS), _standings),
    _parser(
        "server-model",
        _value("model/items", open_history, Put("standing", _standings()[0]), *_ARRAYS[1:]),
        lambda: [_ARRAYS[0].data],
    ),
    _parser("server-past", _value("past/00000003", _past), [PAST]),
    _parser("server-opened", _value(f"{ROUND}/opened", _opened), [1.5], longest=32),
    _parser("server-round-times", _value(f"{ROUND}/times", _times), [Measured(RoundTimes(collecting=1.5), 2.0)]),
    _parser(
        "server-spent",
        _value("spent/00000003", lambda store: PrivacyLedger(TASK, store).restore()),
        [Charge(number=3, round_id=key(1)), Charge(number=4)],
    ),
    _parser("server-evidence", _entry("evidence", _evidence), [EVIDENCE]),
    _parser("server-enrolled", _entry("enrolment", _enrolled_before), [ENROLLED]),
    _parser("server-request", _entry(f"{ROUND}/requests", _requests), [("alice", "submit", 0, key(5), key(6))]),
    _parser("server-part-name", _read_part_name, lambda: [b"alice%2F/retrieve-1/" + b"ab" * 32], longest=128),
    _parser("server-submission", _value(f"{ROUND}/submissions/alice", _submission, *PART), [STORED]),
    _parser("server-session", _value(f"{SESSION}/state", _session_state), [STANDING, epochs.Planted(3, key(1))]),
    _parser(
        "server-session-origin",
        _value(
            f"{SESSION}/00000002/origin",
            _session_origin,
            Put(f"{SESSION}/state", encode(STANDING)),
            Put(f"{SESSION}/00000002/trees", b"trees"),
        ),
        [ORIGIN],
    ),
    _parser("server-toss-half", _entry(f"{ROUND}/toss", _toss), [HALF]),
    _parser("server-toss-said", _entry(f"{ROUND}/toss", _toss, Record(f"{ROUND}/toss", encode(HALF))), [TOSSED]),
    _parser("server-sample", _entry(f"{ROUND}/sample", _sample), LISTS),
    _parser(
        "server-last-sample",
        _value("last-sample", _last_sample),
        [{"number": 3, "secret": key(1), "events": [encode(event) for event in LISTS]}],
    ),
    _parser("server-last-toss", _value("last-toss", _last_toss), [[encode(HALF)], [encode(HALF), encode(TOSSED)]]),
    _parser(
        "store-mark", _read_mark, lambda: [b"fsl-async mark %s %020d\n" % (b"ab" * 16, 7)], longest=128, share=SLOW
    ),
    _parser("store-file", _read_store, _stores, source=SQLITE, share=HEAVY, longest=2**18, memory=2**23),
)
