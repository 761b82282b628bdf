"""Stores with damaged content: whatever is read, the answer is a `StorageError` that says what cannot be read."""

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from fsl_async.bin_count import bins_of_round
from fsl_async.errors import StorageError
from fsl_async.protocols import epochs, ssa, toss
from fsl_async.task import Sparse
from parties.client import state as client_state
from parties.client.session import StoredSession
from parties.client.state import ClientState
from parties.client.submission import StoredDraft
from parties.client.trees import MadeTrees, StoredTrees
from parties.compute import InlineLane
from parties.identity.registry import Registry
from parties.server.admission import Enrolment, ListOnly, StoredEnrolment
from parties.server.evidence import Evidence
from parties.server.history import PastRounds, Progress, Restore
from parties.server.round.reading import StoredSubmission
from parties.server.round.records import StoredRequest
from parties.server.round.toss import TossRun
from parties.server.round.waiting import Measured
from parties.server.sessions import StoredOrigin
from parties.status import PastRound
from parties.storage.store import MemoryStore, Put, Record, decode_stored
from tests.support.cases import in_turn
from tests.system.fuzzing.samples import ALICE, CONFIG, TASK
from tests.system.fuzzing.store_parsers import (
    FRESH,
    PAST,
    ROUND,
    SilentLink,
    encode,
    load_state,
    open_history,
    records_of,
)

# ---- values that can be read and make no sense


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (("<f4", (40, 1)), "cannot reshape"),
        (("O", (40, 2)), "no model has this type"),
        (("<f4\n(", (40, 2)), "no model has this type"),
        (("<f4", (2**40, 2**40)), ""),
    ],
    ids=["another shape", "objects", "no type", "absurd shape"],
)
async def test_an_array_of_another_form_is_the_stores_error(form, words):
    store = MemoryStore()
    await open_history(store)
    standing = decode_stored(await store.blob("standing"), Progress, "the standing")
    damaged = msgspec.structs.replace(standing, forms=standing.forms | {"model/items": form})
    await store.commit(Put("standing", encode(damaged)))
    with pytest.raises(StorageError, match=f"model/items in the store is no array .*{words}"):
        await open_history(store)


@pytest.mark.parametrize("task", [b"", TASK.canonical()[:-1] + b"\xcc\x08"], ids=["none", "another form"])
async def test_a_task_that_cannot_be_read_is_the_stores_error(task):
    store = MemoryStore()
    await store.commit(Put("standing", encode(msgspec.structs.replace(FRESH, task=task))))
    with pytest.raises(StorageError, match="the store belongs to another task: the store: sent a task that"):
        await open_history(store)
    owner = await _owner_with(task)
    with pytest.raises(StorageError, match="this client's state cannot be read"):
        await load_state(owner)


async def _owner_with(task: bytes) -> MemoryStore:
    store = await _owned()
    plain = msgspec.msgpack.decode(await store.blob("owner"))
    await store.commit(Put("owner", encode(plain | {"task": task})))
    return store


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.array([40], np.uint32).tobytes(), "row 40 is outside 0 to 39"),
        (np.array([1, 1], np.uint32).tobytes(), "row 1 is selected twice"),
        (np.arange(4, dtype=np.uint32).tobytes(), "4 rows selected, the task allows 3"),
        (bytes(5), "5 bytes are not a list of rows"),
    ],
    ids=["too high", "twice", "too many", "cut"],
)
async def test_rows_that_no_client_has_are_the_stores_error(rows, words):
    kept = MadeTrees.fresh(CONFIG, {0: np.array([1, 5], np.uint32)}, bytes).stored()
    store = await _with_session(msgspec.structs.replace(kept, rows={0: rows}))
    with pytest.raises(StorageError, match=f"this client's state cannot be read: .*{words}"):
        await load_state(store)


async def test_trees_of_another_task_are_the_stores_error():
    larger = msgspec.structs.replace(TASK, blocks=(Sparse("items", rows=2**31, select=2**20), TASK.blocks[1]))
    kept = MadeTrees.fresh(CONFIG, {0: np.array([1, 5], np.uint32)}, bytes).stored()
    config = msgspec.structs.replace(CONFIG, task=larger, bins=bins_of_round(larger, (), ()))
    store = await _with_session(msgspec.structs.replace(kept, config=config.canonical()))
    with pytest.raises(StorageError, match="it has trees of another task"):
        await load_state(store)


async def _with_session(planting) -> MemoryStore:
    store = await _owned()
    kept = StoredSession(epochs.Established(3, 4, bytes(32)), planting, (bytes(32), bytes(32)))
    await store.commit(Put("session", encode(kept)))
    return store


async def _owned() -> MemoryStore:
    store = MemoryStore()
    await ClientState(store, ALICE.public, TASK, InlineLane()).claim()
    return store


async def test_a_toss_of_another_round_is_the_stores_error():
    store = MemoryStore()
    await store.commit(Record(f"{ROUND}/toss", encode(toss.Half(0, -3, bytes(32), bytes(32), bytes(32)))))
    with pytest.raises(StorageError, match="is of S0 in round -3"):
        await TossRun.begin(0, 3, bytes(32), bytes, store, SilentLink())


async def test_an_enrolment_that_contradicts_another_is_the_stores_error():
    store = MemoryStore()
    for channel in (b"a", b"b"):
        entry = {"name": "alice", "channel": channel * 32, "statement": bytes(32), "token": b""}
        await store.record("enrolment", encode(entry))
    with pytest.raises(StorageError, match="another client has this name"):
        await Enrolment("S0", bytes(32), Registry(), ListOnly(), store).restore()


@pytest.mark.parametrize(
    "name",
    ["alice/retrieve--5/ab", "alice/retrieve-1-2/ab", "alice/submit-0/xy", "alice/submit-0/abc", "submit-0/ab", "a/b"],
)
async def test_a_name_of_no_part_is_the_stores_error(name):
    store = MemoryStore()
    await store.commit(Put(f"{ROUND}/parts/bob/retrieve-3/{'ab' * 32}", b"part"))
    (known,) = await records_of(store).parts()
    assert known == (("bob", "retrieve", 3), bytes.fromhex("ab" * 32))
    await store.commit(Put(f"{ROUND}/parts/{name}", b"part"))
    with pytest.raises(StorageError, match="names no public part"):
        await records_of(store).parts()


# ---- records of another release


STORED = [
    *(
        Progress,
        Restore,
        PastRound,
        Measured,
        Evidence,
        StoredSubmission,
        StoredSession,
        StoredDraft,
        StoredTrees,
        epochs.Session,
    ),
    *(event for _, event in ssa.TRANSITIONS),
    *(toss.Half, toss.PeerTossCommitment, toss.PeerTossReveal, StoredRequest, StoredOrigin, StoredEnrolment),
    *(client_state.StoredOwner, client_state.StoredRetrieval, client_state.StoredSubmission),
]


def structs(kind: object) -> Iterator[msgspec.inspect.StructType]:
    """All structs that a type holds, in itself or in what it holds."""
    match msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind:
        case msgspec.inspect.StructType(fields=fields) as struct:
            yield struct
            inner = [found.type for found in fields]
        case msgspec.inspect.UnionType(types=inner) | msgspec.inspect.TupleType(item_types=inner):
            pass
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            inner = [key, value]
        case (
            msgspec.inspect.ListType(item_type=item)
            | msgspec.inspect.VarTupleType(item_type=item)
            | msgspec.inspect.FrozenSetType(item_type=item)
        ):
            inner = [item]
        case _:
            inner = []
    for held in inner:
        yield from structs(held)


@in_turn("kind", STORED)
def test_nothing_that_is_stored_is_dropped_because_it_is_not_known(kind):
    assert list(structs(kind))
    assert [struct.cls for struct in structs(kind) if not struct.forbid_unknown_fields] == []


async def test_a_record_with_a_field_of_another_release_is_not_read():
    store = MemoryStore()
    await open_history(store)
    later = msgspec.msgpack.decode(encode(FRESH)) | {"later": 1}
    await store.commit(Put("standing", encode(later)))
    with pytest.raises(StorageError, match=r"unknown field `later`.*written by another release"):
        await open_history(store)


# ---- a clock that is put back


async def test_a_round_that_opened_in_the_future_opened_now():
    """Else it would close when the clock has come there again: in 37 years, say."""
    history = PastRounds(MemoryStore())
    assert await history.opened_at(3, 2e9) == 2e9
    assert await history.opened_at(3, 2.1e9) == 2e9
    assert await history.opened_at(3, 8e8) == 8e8


def test_no_round_lasts_less_than_no_time():
    past = msgspec.structs.replace(PAST, opened_at=2e9, settled_at=8e8)
    assert past.seconds == 0.0
