"""A protocol machine in a store: an event is recorded before the new state is adopted, and replayed after a restart."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, Union

import msgspec
import trio

from fsl_async.protocols.machine import Event, Machine, State
from parties.storage.store import Record, Store, decode_stored, replaying

StateT = TypeVar("StateT", bound=State)


class Journal(Generic[StateT]):
    """One machine's first state and its events, as a journal of a store.

        journal = await Journal.open(host.store, "auction", MACHINE, begin(host.randomness(32)))
        await journal.take(PeerBid(price=7))        # durable when it returns; then act on `journal.state`

    Rules: durable before visible, so nobody may see what follows from an event before `take` has returned. A party that
    restarts opens the journal, is where it was, and performs the effects of that state again. The laboratory finds the
    moments of a machine's transitions by these records.

    Attributes:
        state: the machine's state; every change of it is durable.
    """

    def __init__(
        self, store: Store, name: str, machine: Machine[StateT], first: StateT, context: tuple[Any, ...]
    ) -> None:
        self.state = first
        self._store = store
        self._name = name
        self._machine = machine
        self._context = context
        self._turn = trio.Lock()

    @staticmethod
    async def open(store: Store, name: str, machine: Machine[StateT], first: StateT, *context: Any) -> Journal[StateT]:
        """Take up the machine where the store has it, or begin it.

        Args:
            store: where it is recorded.
            name: the journal's name.
            machine: the machine.
            first: the state in which it begins, if the store has none; recorded before this returns.
            context: handed to every rule.

        Raises:
            StorageError: what is recorded cannot be read, or does not follow from what is recorded before it; or the
                first state could not be recorded.
        """
        recorded = await store.entries(name)
        if not recorded:
            await store.commit(Record(name, msgspec.msgpack.encode(first)))
            return Journal(store, name, machine, first, context)
        first = decode_stored(recorded[0], _union(machine.initial), name)
        journal = Journal(store, name, machine, first, context)
        for entry in recorded[1:]:
            event = decode_stored(entry, _union(machine.events), name)
            with replaying(name):
                journal.state = machine.step(journal.state, event, *context)
        return journal

    async def take(self, event: Event) -> StateT:
        """Take one event, and return the state to which it has led; one that changes nothing is not recorded.

        Once it is being recorded, it is not cancelled: the state is never behind what the store has.

        Raises:
            UnexpectedEvent: the state does not accept it; nothing has changed.
            StorageError: it could not be recorded; the state is as before.
        """
        async with self._turn:
            after = self._machine.step(self.state, event, *self._context)
            if after != self.state:
                with trio.CancelScope(shield=True):
                    await self._store.commit(Record(self._name, msgspec.msgpack.encode(event)))
                self.state = after
            return after


def _union(kinds: tuple[type, ...]) -> Any:
    return Union[kinds]  # noqa: UP007 - made from a table
