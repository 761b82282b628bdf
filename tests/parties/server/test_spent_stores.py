"""What is spent, in stores that are new, read back, restored from a copy, or damaged."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fsl_async import Dense, Privacy, Ring, StorageError, Task
from parties import MemoryStore, Server, simulate
from parties.events import PrivacyCharged, ServerEvent
from parties.server.history import Restore
from parties.server.ledger import Charge, PrivacyLedger
from parties.server.store_layout import RESTORES
from parties.storage.store import Put, Record

TWO_ROUNDS = Privacy(noise=4.0, delta=1e-6, budget=1.7)
TASK = Task(
    name="noisy",
    blocks=(Dense("head", size=5),),
    ring=Ring(64, fraction_bits=10),
    min_clients=2,
    bound=16.0,
    privacy=TWO_ROUNDS,
)


async def test_a_ledger_reads_back_what_it_has_charged() -> None:
    store, told = MemoryStore(), list[ServerEvent]()
    ledger = PrivacyLedger(TASK, store, told.append)
    await store.commit(*ledger.changes(7, b"id"))
    assert ledger.rounds == 0, "it is charged once it is stored"
    ledger.adopt(7)
    ledger.adopt(7)
    assert ledger.changes(7, b"id") == []
    assert told == [PrivacyCharged(number=7, rounds=1, epsilon=TWO_ROUNDS.epsilon(1), budget=1.7)]
    again = PrivacyLedger(TASK, store)
    await again.restore()
    assert again.rounds == 1
    assert again.refusal(8) == ""
    await again.charge_forgotten(8)
    await again.charge_forgotten(8)
    assert again.rounds == 2, "one round, however often the server is started"
    assert "round 9 is not opened: 2 rounds have spent ε = 1." in again.refusal(9)
    (note,) = again.notes()
    assert (note.more.split(",")[0], note.poor) == ("2 of 2 rounds", True)


async def test_a_task_without_noise_charges_nothing() -> None:
    store = MemoryStore()
    ledger = PrivacyLedger(msgspec.structs.replace(TASK, privacy=None), store)
    assert ledger.changes(1, b"id") == []
    ledger.adopt(1)
    await ledger.charge_forgotten(2)
    assert (ledger.rounds, ledger.notes(), ledger.refusal(3)) == (0, (), "")
    assert await store.keys("spent/") == []


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x80", b"\x81\xa6number\xa1x"])
async def test_a_damaged_charge_is_refused_and_not_forgotten(data: bytes) -> None:
    store = MemoryStore()
    await store.commit(Put("spent/00000003", data))
    with pytest.raises(StorageError, match="spent/00000003"):
        await PrivacyLedger(TASK, store).restore()


@pytest.mark.parametrize(("newest", "rounds"), [(True, 0), (False, 1)])
async def test_a_store_made_from_a_copy_is_charged_for_what_it_may_have_forgotten(newest: bool, rounds: int) -> None:
    restored = Restore(settled=0, newest=newest, gives_up=False, at=0.0)
    store = MemoryStore()
    await store.commit(Record(RESTORES, msgspec.msgpack.encode(restored)))
    async with simulate(TASK, {"head": np.zeros(5)}, seed=1) as net:
        setup = replace(net.servers[0].setup, store=store)
        for _ in range(2):
            server = Server(setup)
            await server.restore()
            (note,) = server.status().notes
            assert note.figures["privacy_rounds"] == rounds
    charged = [msgspec.msgpack.decode(await store.blob(key), type=Charge) for key in await store.keys("spent/")]
    assert charged == [Charge(number=1)] * rounds
