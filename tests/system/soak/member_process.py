"""One client under fire as a process.

    python -m tests.system.soak.member_process FOLDER NAME SEED PACE [--die-at STEP]

Round after round it retrieves, submits an update that nobody else knows, and asks what became of it, with a little
while in between; everything it does and hears is in its ledger first (see `ledger`). It may be killed at any moment and
started again: then it first finds out what became of the update that it was about. SIGTERM lets it finish that.
"""

import argparse
import os
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import trio

from fsl_async import Dense, Sparse
from fsl_async.errors import ChannelError, MisuseError
from fsl_async.wire.messages import Hint, Message, Submit
from parties import connect
from parties.client.client import Client
from parties.errors import RoundClosedError

from .ledger import Acknowledged, Began, Entry, Ledger, Planned, Retrieved, Sent, Told, Touched, TurnedAway
from .site import UNIT, Site, say
from .steps import Steps

SPREAD = 2**10
PATIENCE = 20.0

Protocol = Literal["ssa", "psu"]


@dataclass
class Member:
    """A client and its ledger.

    Attributes:
        site: the deployment.
        name: its name.
        seed: of all that it does.
        pace: seconds that it may dawdle between two steps, at most.
        ledger: what it notes.
        steps: counted for its fate.
        leaving: whether it has been asked to end.
    """

    site: Site
    name: str
    seed: int
    pace: float
    ledger: Ledger
    steps: Steps
    leaving: bool = False

    async def live(self) -> None:
        """Take part until asked to leave; a connection that is lost for longer than a client waits is made anew."""
        self._note(Began(pid=os.getpid()))
        while not self._has_left:
            try:
                async with self._connected() as client:
                    while not self._has_left:
                        await self._round(client)
            except* ChannelError as lost:
                say(state="reconnecting", explanation=str(lost.exceptions[0]))
                await trio.sleep(0.2)

    @property
    def _has_left(self) -> bool:
        return self.leaving and not self._open_plans

    def _connected(self) -> AbstractAsyncContextManager[Client]:
        keys, state = self.site.key(self.name), self.site.state(self.name)
        return connect(self.site.task_file, keys, watch=self._watch, state=state, patience=PATIENCE)

    @property
    def _open_plans(self) -> list[Planned]:
        """The last update, if it is not known what became of it; else none."""
        for entry in reversed(self.ledger.entries):
            match entry:
                case Told() | TurnedAway(again=False):
                    return []
                case Planned():
                    return [entry]
        return []

    async def _round(self, client: Client) -> None:
        """One update from its plan to its outcome, or what is left of that."""
        try:
            for plan in self._open_plans or [await self._prepare(client)]:
                if client.pending:
                    await self._resume(client, plan)
                elif await self._has_ended(client, plan) or not await self._submit(client, plan):
                    return
                await self._dawdle("waiting")
                await self._hear(client, plan)
        except RoundClosedError as closed:
            for plan in self._open_plans:
                self._note(TurnedAway(update=plan.update, explanation=str(closed), again=plan.protocol == "ssa"))

    async def _prepare(self, client: Client) -> Planned:
        await self._dawdle("thinking")
        protocol, rows = await self._retrieve(client)
        await self._dawdle("computing")
        plan = self._plan(client, protocol, rows)
        self._note(plan)
        return plan

    async def _retrieve(self, client: Client) -> tuple[Protocol, dict[str, npt.NDArray[np.uint32]]]:
        """Retrieve some rows; which protocol the round turned out to be in, and the rows."""
        rows = self._rows(client)
        try:
            await self._retrieve_these(client, rows)
        except MisuseError as refused:
            if "union first" in str(refused):
                return "psu", self._choose(client)
            raise
        return "ssa", {name: _there(client, name, chosen) for name, chosen in rows.items()}

    async def _retrieve_these(self, client: Client, rows: dict[str, npt.NDArray[np.uint32]]) -> None:
        say(state="retrieving")
        dense = {block.name: ... for block in client.task.blocks if isinstance(block, Dense)}
        found = await client.retrieve({**rows, **dense})
        for name, values in found.items():
            chosen = _there(client, name, rows[name]).tolist() if name in rows else None
            if chosen is not None:
                values = values[np.isin(rows[name], chosen)]
            units = _columns(np.rint(values / UNIT).astype(np.int64))
            self._note(Retrieved(number=client.round_number, block=name, rows=chosen, values=units))

    def _rows(self, client: Client) -> dict[str, npt.NDArray[np.uint32]]:
        """Which rows: in a union those this client has last put there; else a choice of its own."""
        if client.task.alignment == "union":
            united = [entry for entry in self.ledger.entries if isinstance(entry, Planned) and entry.protocol == "psu"]
            last = united[-1].blocks if united else {}
            return {
                block.name: np.array(last[block.name].rows if last else [], dtype=np.uint32)
                for block in client.task.blocks
                if isinstance(block, Sparse)
            }
        return self._choose(client)

    def _choose(self, client: Client) -> dict[str, npt.NDArray[np.uint32]]:
        """Random rows; always the same ones where the selection is fixed."""
        rng = self._rng(0 if client.task.selection == "fixed" else self._next_update)
        return {
            block.name: rng.choice(block.rows, int(rng.integers(1, block.select + 1)), replace=False).astype(np.uint32)
            for block in client.task.blocks
            if isinstance(block, Sparse)
        }

    def _plan(self, client: Client, protocol: Protocol, rows: dict[str, npt.NDArray[np.uint32]]) -> Planned:
        rng = self._rng(self._next_update)
        blocks = {}
        for block in client.task.blocks:
            if isinstance(block, Sparse):
                chosen = rows[block.name]
                count = 0 if protocol == "psu" else len(chosen)
                blocks[block.name] = Touched(_units(rng, count, block.width), chosen.tolist())
            elif protocol == "ssa":
                blocks[block.name] = Touched(_units(rng, block.size, 1), None)
        return Planned(update=self._next_update, protocol=protocol, blocks=blocks)

    async def _submit(self, client: Client, plan: Planned) -> bool:
        """Submit an update; False if the round does not take it."""
        say(state="submitting", update=plan.update)
        try:
            if plan.protocol == "psu":
                receipt = await client.unite({name: touched.rows or [] for name, touched in plan.blocks.items()})
            else:
                receipt = await client.submit(_as_update(plan))
        except MisuseError as refused:  # the round it was meant for is over, and the next one is of the other protocol
            self._note(TurnedAway(update=plan.update, explanation=str(refused), again=False))
            return False
        self._note(Acknowledged(update=plan.update, number=receipt.number))
        return True

    async def _resume(self, client: Client, plan: Planned) -> None:
        """Finish a submission that an earlier life of this client, or an earlier connection, left half done."""
        say(state="resuming", update=plan.update)
        receipt = await client.resume()
        self._note(Acknowledged(update=plan.update, number=receipt.number))

    async def _has_ended(self, client: Client, plan: Planned) -> bool:
        """Whether an update that an earlier life planned was submitted; then its outcome is noted."""
        if isinstance(self.ledger.entries[-1], Planned | TurnedAway):
            return False
        return await self._hear(client, plan)

    async def _hear(self, client: Client, plan: Planned) -> bool:
        """What became of an update; False if what the client knows is what became of an earlier one."""
        say(state="hearing", update=plan.update)
        try:
            outcome = await client.outcome()
        except MisuseError:
            return False  # nothing was ever submitted
        if any(isinstance(entry, Told) and entry.number == outcome.number for entry in self.ledger.entries):
            return False
        self._note(
            Told(
                update=plan.update,
                number=outcome.number,
                counted=outcome.counted,
                reason=outcome.reason,
                participants=outcome.participants,
            )
        )
        return True

    # ---- what it is made of

    @property
    def _next_update(self) -> int:
        return 1 + max((entry.update for entry in self.ledger.entries if isinstance(entry, Planned)), default=0)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *self.name.encode(), number))

    def _note(self, entry: Entry) -> None:
        self.steps.step(f"before noting {type(entry).__name__}")
        self.ledger.note(entry)

    def _watch(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        """Hears of every message before it leaves."""
        if isinstance(message, Submit | Hint):
            content = message.public_digest.hex()
            [plan] = self._open_plans
            sent = Sent(update=plan.update, server=receiver, round_id=message.round_id.hex(), content=content)
            self.ledger.note(sent)
        self.steps.step(f"before {type(message).__name__}")

    async def _dawdle(self, state: str) -> None:
        say(state=state)
        await trio.sleep(self.pace * np.random.default_rng().random())


def _there(client: Client, name: str, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Of the rows just retrieved those that the round has: others are outside its union."""
    return rows[~np.isin(rows, client.deferred.get(name, ()))]


def _units(rng: np.random.Generator, rows: int, width: int) -> list[list[int]]:
    return rng.integers(-SPREAD, SPREAD, size=(rows, width)).tolist()


def _columns(units: npt.NDArray[np.int64]) -> list[list[int]]:
    """One list for each row; a dense block's have one weight each."""
    return (units if units.ndim == 2 else units[:, None]).tolist()


def _as_update(plan: Planned) -> dict[str, Any]:
    """As a client is given it: in floats; a block without rows is left out."""
    update: dict[str, Any] = {}
    for name, touched in plan.blocks.items():
        weights = np.array(touched.values, dtype=np.float64) * UNIT
        if touched.rows is None:
            update[name] = weights.reshape(-1)
        elif touched.rows:
            update[name] = (np.array(touched.rows, dtype=np.uint32), weights)
    return update


async def _leave_on_request(member: Member) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        say(state="started")
        await anext(signals)
        member.leaving = True


async def main(member: Member) -> None:
    """Live, and tell that it is over."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave_on_request, member)
        await member.live()
        nursery.cancel_scope.cancel()
    say(steps=member.steps.taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("seed", type=int)
    parser.add_argument("pace", type=float)
    parser.add_argument("--die-at", type=int, default=0, metavar="STEP")
    options = parser.parse_args()
    place = Site(options.folder)
    trio.run(
        main,
        Member(
            place, options.name, options.seed, options.pace, Ledger(place.ledger(options.name)), Steps(options.die_at)
        ),
    )
