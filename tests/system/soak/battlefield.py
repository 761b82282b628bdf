"""One deployment under fire: its processes, who keeps them running, who strikes them, and what is left afterwards.

Every party has a task that starts its process again whenever it was killed; a process that ends by itself, when nobody
asked it to, is a violation, and so is a round that does not end although nobody is struck any more.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np
import trio

from fsl_async import Sparse, Task
from fsl_async.errors import leaves
from fsl_async.union import describe_union
from parties import simulate
from parties.files.models import load_model

from .audit import Account, Case, Violation, audit
from .children import Child, python_module
from .fates import Fates, Strike
from .ledger import Acknowledged, read_ledger
from .site import SERVERS, UNIT, Site

CALM_AFTER = 45.0
STUCK_AFTER = 45.0
"""Without a settled round for the first, nobody is struck any more; for the second in addition, it is stuck."""
LEAVE_WITHIN = 90.0
"""All of these are for a machine on which a process starts in a second; on a slower or busier one they are longer."""


@dataclass
class Outcome:
    """What came of one deployment.

    Attributes:
        kills: how many, by whom they hit, how and in which state.
        freezes: how many.
        rounds: how many were done, and how many were aborted.
        acknowledged: submissions with both receipts.
        counted: submissions in sums.
        seconds: how long it took.
        violations: what must not be.
    """

    kills: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    freezes: int = 0
    rounds: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    counted: int = 0
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)


class StuckError(Exception):
    """Nothing moves any more."""


class _Party:
    """A server or a client: the process it is now, and those it was.

    Attributes:
        name: its name.
        state: what its process told last.
        started_at: when that was started.
        leaving: whether it is asked to end.
        dies: at which step its process told that it kills itself; empty if it did not.
        has_left: set once it has ended as asked.
    """

    def __init__(self, name: str, command: Sequence[str], site: Site) -> None:
        self.name = name
        self.kind = "server" if name in SERVERS else "client"
        self.state = "starting"
        self.started_at = 0.0
        self.leaving = False
        self.dies = ""
        self.has_left = trio.Event()
        self._command = command
        self._site = site
        self._children: list[Child] = []

    def start(self, fate: Sequence[str], heard: Callable[[dict[str, Any]], None]) -> Child:
        self.state, self.dies, self.started_at = "starting", "", time.monotonic()
        self._children[:] = [Child(self.name, [*self._command, *fate], self._site.log(self.name), heard)]
        return self._children[0]

    def send(self, number: signal.Signals) -> bool:
        """Signal the process, if there is one now."""
        alive = bool(self._children) and self._children[0].alive
        if alive:
            self._children[0].send(number)
        return alive

    def ask_to_leave(self) -> None:
        self.leaving = True
        if self.state != "starting":  # else it is asked once it hears
            self.send(signal.SIGTERM)


class Battle:
    """A deployment under fire."""

    def __init__(self, site: Site, clients: Sequence[str], fates: Fates, seed: int, pace: float) -> None:
        self.site = site
        self.fates = fates
        self.outcome = Outcome()
        self.on_change: Callable[[], None] = lambda: None
        self._clients = clients
        self._parties = {
            name: _Party(name, python_module("tests.system.soak.server_process", site.server_file(index)), site)
            for index, name in enumerate(SERVERS)
        } | {
            name: _Party(name, python_module("tests.system.soak.member_process", site.folder, name, seed, pace), site)
            for name in clients
        }
        self._settled: set[int] = set()
        self._summed = False
        self._progress_at = 0.0
        self._pauses: dict[str, float] = {}

    async def run(self) -> None:
        """Fight until there were enough kills and rounds, and a sum; then everybody leaves in peace."""
        started = self._progress_at = time.monotonic()
        try:
            async with trio.open_nursery() as servers, trio.open_nursery() as clients:
                for name in SERVERS:
                    servers.start_soon(self._keep, self._parties[name])
                for name in self._clients:
                    clients.start_soon(self._keep, self._parties[name])
                await self._strike_until_fulfilled()
                await self._dismiss(self._clients)
                await self._dismiss(SERVERS)
        except* StuckError as group:
            self.outcome.violations += [Violation("stuck", str(stuck)) for stuck in leaves(group)]
        self.outcome.seconds = time.monotonic() - started

    # ---- strikes

    async def _strike_until_fulfilled(self) -> None:
        async with trio.open_nursery() as strikes:
            while not (self.fates.fulfilled and self._summed):
                await trio.sleep(self.fates.interval())
                quiet = time.monotonic() - self._progress_at
                if quiet > self._long(CALM_AFTER + STUCK_AFTER):
                    raise StuckError(f"no round has ended for {quiet:.0f} s: {self._states()}")
                if quiet < self._long(CALM_AFTER) and not self.fates.fulfilled:
                    starting = {party.name for party in self._parties.values() if party.state == "starting"}
                    strikes.start_soon(self._strike, self.fates.strike(starting))

    async def _strike(self, strike: Strike) -> None:
        if not strike.victims:
            return
        self._write("fate", kind=strike.kind, victims=strike.victims, pause=strike.pause)
        for victim, pause in zip(strike.victims, strike.pause, strict=True):
            self._pauses[victim] = pause
            if strike.kind == "kill":
                self._parties[victim].send(signal.SIGKILL)
        if strike.kind == "freeze":
            await self._freeze(strike)

    async def _freeze(self, strike: Strike) -> None:
        frozen = [self._parties[victim] for victim in strike.victims]
        self.outcome.freezes += sum(party.send(signal.SIGSTOP) for party in frozen)
        try:
            await trio.sleep(max(strike.pause))
        finally:
            for party in frozen:
                party.send(signal.SIGCONT)

    async def _dismiss(self, names: Sequence[str]) -> None:
        """Ask some parties to leave, and wait until they have."""
        for name in names:
            self._parties[name].ask_to_leave()
        within = self._long(LEAVE_WITHIN)
        with trio.move_on_after(within):
            for name in names:
                await self._parties[name].has_left.wait()
            return
        raise StuckError(f"asked to leave, after {within:.0f} s not all have: {self._states()}")

    def _long(self, seconds: float) -> float:
        return seconds * max(1.0, self.fates.start_seconds)

    def _states(self) -> str:
        return ", ".join(f"{party.name}: {party.state}" for party in self._parties.values())

    # ---- processes

    async def _keep(self, party: _Party) -> None:
        """Keep a party running until it has left."""
        while True:
            child = party.start(self.fates.fate(party.name), partial(self._hear, party))
            code = await child.run()
            if code == 0 and party.leaving:
                party.has_left.set()
                return
            if code != -signal.SIGKILL:
                self.outcome.violations.append(
                    Violation("ended", f"{party.name} ended by itself with code {code}: {child.last_words()}")
                )
                raise StuckError(f"{party.name} is gone")
            self._write(party.name, killed=party.dies or "from outside", state=party.state)
            self.outcome.kills[party.kind, party.dies or "at a moment", party.state] += 1
            self.fates.kills += 1
            self.on_change()
            await trio.sleep(self._pauses.pop(party.name, 0.0) if not party.dies else self.fates.pause())

    def _hear(self, party: _Party, told: dict[str, Any]) -> None:
        self._write(party.name, **told)
        match told:
            case {"dies": what}:
                party.dies = what
            case {"settled": number, "aborted": why}:
                self._take_settled(number, aborted=bool(why))
            case {"state": state}:
                was, party.state = party.state, state
                if was == "starting":
                    self.fates.started(time.monotonic() - party.started_at)
                    if party.leaving:
                        party.send(signal.SIGTERM)

    def _write(self, who: str, **what: Any) -> None:
        """Into the diary, for whoever has to find out what went wrong."""
        with self.site.diary.open("a") as diary:
            diary.write(json.dumps({"at": round(time.time(), 4), "who": who, **what}) + "\n")

    def _take_settled(self, number: int, aborted: bool) -> None:
        if number not in self._settled:
            self._settled.add(number)
            self._summed |= not aborted
            self._progress_at = time.monotonic()
            self.fates.settled(len(self._settled), self._progress_at)
            self.on_change()


async def fight(battle: Battle, task: Task) -> Outcome:
    """Fight, then check what is left."""
    await _warm_up(task)
    await battle.run()
    outcome = battle.outcome
    if not outcome.violations:
        case = _case(battle.site, battle.fates.clients, task)
        outcome.violations += audit(case)
        outcome.rounds.update("done" if account.done else "aborted" for account in case.accounts[0])
        outcome.counted = sum(len(account.clients) for account in case.accounts[0])
        entries = [entry for ledger in case.ledgers.values() for entry in ledger]
        outcome.acknowledged = sum(isinstance(entry, Acknowledged) for entry in entries)
        if not outcome.acknowledged or not outcome.rounds["done"]:
            outcome.violations.append(
                Violation("idle", "nothing was submitted, or no round was done: nothing is shown")
            )
    return outcome


async def _warm_up(task: Task) -> None:
    """One round in memory: the kernels that it needs are compiled before any process that needs them is killed."""
    model = {block.name: np.zeros(block.shape) for block in task.blocks}
    rows = {block.name: [0] for block in task.blocks if isinstance(block, Sparse)}
    async with simulate(task, model, seed=1) as net, net.client("first") as first, net.client("second") as second:
        if task.alignment == "union":
            await first.unite(rows)
            await second.unite(rows)
            await net.finish_round()
        await first.retrieve(rows)
        for client in (first, second):
            await client.submit({})
        await net.finish_round()


def _case(site: Site, clients: Sequence[str], task: Task) -> Case:
    def union_digest(name: str, rows: list[int]) -> str:
        return describe_union(name, np.array(rows, dtype=np.uint32), task.block(name).rows).digest.hex()

    first, second = (
        msgspec.json.decode(site.accounts(index).read_bytes(), type=list[Account]) for index in range(len(SERVERS))
    )
    return Case(
        start=_units(load_model(site.start_model)),
        finals=(_units(load_model(site.final_model(0))), _units(load_model(site.final_model(1)))),
        accounts=(first, second),
        ledgers={name: read_ledger(site.ledger(name)) for name in clients},
        union_digest=union_digest,
    )


def _units(model: dict[str, Any]) -> dict[str, Any]:
    return {name: np.rint(array / UNIT).astype(np.int64).reshape(len(array), -1) for name, array in model.items()}
