"""Clients whose contributions can be told apart in the sum, and the ledgers of what they did.

A member does what callers do: if an error says that it may call again, it submits the same plan again in the next
round; if a submission may have counted, it does not. So a plan that counts twice shows that the error was wrong.

The client with digit i adds 4^i to every weight of the rows that it chooses. The sum of a round is then a number in
base 4 whose i-th digit is how often client i was counted: 1 is right for a client in the roster, 0 is a loss, 2 a
double count. A ledger is outside of the simulated process, and survives its crashes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import trio

from fsl_async import Dense, Sparse, Task
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError, WrongAnswerError
from fsl_async.wire.messages import Hint, Message, Submit
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.errors import (
    AlreadyCountedError,
    NotDrawnError,
    NoUnionError,
    OtherCountedError,
    OutcomeUnknownError,
    RoundClosedError,
    SumRefusedError,
)
from parties.outcome import ClientOutcome, SubmissionReceipt
from parties.testing.disk import Disk
from parties.testing.processes import current_life
from parties.testing.round_faults import Late, OldCopy
from parties.testing.trials.scenario import is_late

RETRIEVALS = (0, 0, 1, 1, 2)
"""A client retrieves so often before it submits, with equal probability of each entry."""

FORGETS = 0.1
"""The probability that a client with a fixed selection begins a new session with other rows."""

CAREFUL = 0.5
"""The probability that a restarted client resumes its submission; otherwise it submits the same again."""

WAITS = 0.15
"""The probability that a client waits for the next union round."""

WHOLE = 0.6
"""The probability that a retrieval fetches a sparse block whole, in trials of late seeds (see `is_late`)."""

Rows: TypeAlias = Mapping[str, tuple[int, ...]]
FaultT = TypeVar("FaultT", Late, OldCopy)


@dataclass(frozen=True)
class Plan:
    """What a client is going to submit: rows of each sparse block, and whether in a union round."""

    union: bool
    rows: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Retrieved:
    """Rows that a client has retrieved in a round; without rows, a whole block."""

    number: int
    block: str
    rows: tuple[int, ...]
    values: npt.NDArray[Any]


@dataclass(frozen=True)
class Read:
    """The last union as a client has read it, when it knew of the unions of the rounds up to number `known`."""

    known: int
    union: Mapping[str, npt.NDArray[np.uint32]]


@dataclass
class Ledger:
    """What one client did, and which answers it got.

    Attributes:
        digit: its digit in the sum.
        plans: by round id, the indices in `all_plans` of the plans that it sent to a server in the round.
        contents: by round id and server, the digests of the submissions that it sent there.
        acknowledged: the numbers of the rounds for which it got both receipts.
        refused: by round id, the plans that were refused for good.
        refused_sums: the numbers of rounds of which the client was told that their sum was opened and refused.
        repeated: ids of the rounds whose plan it submitted again without asking for the round's outcome.
        outcomes: by round number, all outcomes that it got.
        retrieved: the rows that it has retrieved.
        wrong_answers: how many of its retrievals were answered wrongly, and gave it no row.
        read: the unions that it has read.
        all_plans: all its plans, in order.
    """

    digit: int
    plans: defaultdict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    contents: defaultdict[tuple[bytes, str], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    acknowledged: set[int] = field(default_factory=set)
    refused: defaultdict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    refused_sums: set[int] = field(default_factory=set)
    repeated: set[bytes] = field(default_factory=set)
    outcomes: defaultdict[int, list[ClientOutcome]] = field(default_factory=lambda: defaultdict(list))
    retrieved: list[Retrieved] = field(default_factory=list)
    wrong_answers: int = 0
    read: list[Read] = field(default_factory=list)
    all_plans: list[Plan] = field(default_factory=list)


class Member:
    """A client that takes part in every round it can, over all its lives.

    Args:
        name: its name.
        digit: its digit in the sum.
        task: the task.
        seed: the seed of its choices.
        disk: its process's disk.
        faults: the faults that it causes itself.

    Attributes:
        ledger: what it did.
        struck: the faults of `faults` that have struck.
        spoiled: the ids of rounds to which it sent a submission that must not be counted; empty for honest clients.
    """

    def __init__(
        self, name: str, digit: int, task: Task, seed: int, disk: Disk, faults: Iterable[Late | OldCopy] = ()
    ) -> None:
        self.name = name
        self.ledger = Ledger(digit)
        self.struck: list[Late | OldCopy] = []
        self.spoiled: set[bytes] = set()
        self._task = task
        self._rng = Random(f"{seed}/choices/{name}")
        self._habits = Random(f"{seed}/habits/{name}")
        self._whole = Random(f"{seed}/whole/{name}") if is_late(seed) else None
        self._disk = disk
        self._faults = tuple(faults)
        self._always = self._choose()
        self._united: dict[str, tuple[int, ...]] = {}
        self._copy = b""
        self._again: list[Plan] = []

    def make(self, setup: ClientSetup) -> Client:
        """Make the client of one life; its submissions are entered in the ledger before they leave."""

        def watch(sender: str, receiver: str, message: Message, bulk: int) -> None:
            if isinstance(message, Submit | Hint):
                self._note_left_out(client)
                self._note_sent(receiver, message)
            setup.watch(sender, receiver, message, bulk)

        client = Client(replace(setup, watch=watch))
        return client

    async def live(self, client: Client) -> None:
        """Finish what an earlier life left unfinished, then take part in round after round."""
        await self._finish_earlier(client)
        while True:
            with self._continuing():
                match self._task.protocol:
                    case "psr":
                        await self._only_retrieve(client)
                    case "psu":
                        await self._take_part(client)
                        await self._read_union(client)
                    case "ssa":
                        await self._take_part(client)

    async def _only_retrieve(self, client: Client) -> None:
        """Retrieve what it likes, in this round or, where it has retrieved often enough, in the next."""
        await self._think()
        try:
            await self._retrieve(client, self._choose())
        except MisuseError as error:
            if "retrievals in one round are the most" not in str(error):
                raise
            await trio.sleep(1)

    # ---- a round

    @contextmanager
    def _continuing(self) -> Iterator[None]:
        """Continue with the next round, whether the submission was counted, was not, or nobody knows."""
        try:
            yield
        except AlreadyCountedError as counted:
            self.ledger.acknowledged.add(counted.receipt.number)
            self._note_outcome(counted.outcome)
        except SumRefusedError as refused:
            self.ledger.refused_sums.add(refused.number)
        except (RoundClosedError, NotDrawnError, OtherCountedError, OutcomeUnknownError):
            pass

    async def _finish_earlier(self, client: Client) -> None:
        with self._continuing():
            if self._task.protocol == "psr":
                return
            if client.pending:
                await self._acknowledged(self._repeat(client))
            try:
                self._note_outcome(await client.outcome())
            except MisuseError as error:
                if "nothing has been submitted" not in str(error):
                    raise

    async def _repeat(self, client: Client) -> SubmissionReceipt:
        """Resume the submission of an earlier life, or submit the same plan again."""
        plan = self.ledger.all_plans[-1]
        if self._task.finds_unions or self._habits.random() < CAREFUL:
            return await client.resume()
        number = len(self.ledger.all_plans) - 1
        sent = {name for name, plans in self.ledger.plans.items() if number in plans}
        earlier = frozenset(self.ledger.repeated)
        self.ledger.repeated |= sent
        try:
            return await client.submit(self._updates(plan.rows))
        except MisuseError as error:
            if "`resume` finishes it" not in str(error):
                raise
            self.ledger.repeated &= earlier  # an earlier life may have repeated it, and has found out what became of it
            return await client.resume()

    async def _take_part(self, client: Client) -> None:
        if client.pending:
            await self._acknowledged(client.resume())
        else:
            await self._submit(client)
        for _ in self._due(OldCopy, len(self.ledger.plans)):
            self._disk.restore(self._copy)
            if (life := current_life()) is not None:
                life.process.kill(1.0)
                life.require_alive()
        outcome = await client.outcome()
        self._note_outcome(outcome)
        if not outcome.counted:
            self._again = self.ledger.all_plans[-1:]

    async def _submit(self, client: Client) -> None:
        for fault in self._due(Late, 1 + len(self.ledger.plans)):
            await trio.sleep(fault.seconds)
        await self._think()
        if self._task.selection == "fixed" and self._task.alignment == "all" and self._rng.random() < FORGETS:
            client.forget_session()
            self._always = self._choose()
        rows = self._united or self._always if self._task.alignment == "union" else self._chosen()
        unions = self._task.alignment == "union" and self._task.selection == "adaptive"
        wants_a_union = unions and self._rng.random() < WAITS
        for plan in self._again:
            rows, wants_a_union = plan.rows, plan.union
        try:
            if self._task.protocol == "psu":
                await self._unite(client)
                return
            for _ in range(self._rng.choice(RETRIEVALS)):
                await self._retrieve(client, rows)
                await self._think()
            await (self._unite(client) if wants_a_union else self._add(client, rows))
        except MisuseError as error:
            if "finds the union first" in str(error):
                await self._unite(client)
            elif "union of this session has been found" in str(error):
                self._united = {}
                await self._add(client, {})
            elif "not among the session's rows" in str(error):  # an earlier life had begun a new session
                client.forget_session()
            else:
                raise

    async def _think(self) -> None:
        if self._rng.random() < 0.5:
            await trio.sleep(2 ** self._rng.uniform(-6, 3))

    async def _retrieve(self, client: Client, rows: Rows) -> None:
        """Retrieve rows, or stop waiting for them after a random time.

        After a wrong answer it goes on, as a caller does that tells a person: with fresh trees.
        """
        wanted: dict[str, Any] = {name: list(chosen) for name, chosen in rows.items()}
        whole = [block.name for block in self._task.model_blocks if isinstance(block, Dense)]
        if self._whole is not None:
            whole += [name for name in rows if self._whole.random() < WHOLE]
        wanted |= dict.fromkeys(whole, ...)
        with trio.move_on_after(2 ** self._rng.uniform(-5, 8)):
            try:
                found = await client.retrieve(wanted)
            except WrongAnswerError:
                self.ledger.wrong_answers += 1
                return
            for name, values in found.items():
                chosen = () if name in whole else rows[name]
                if name in client.deferred:
                    there = ~np.isin(chosen, client.deferred[name])
                    chosen, values = tuple(np.array(chosen)[there].tolist()), values[there]
                if chosen or name in whole:
                    self.ledger.retrieved.append(Retrieved(client.round_number, name, chosen, values))

    async def _read_union(self, client: Client) -> None:
        """Read the last union, or stop waiting for the next round after a random time."""
        known = max(self.ledger.outcomes, default=0)
        with trio.move_on_after(2 ** self._habits.uniform(-5, 4)), suppress(NoUnionError):
            self.ledger.read.append(Read(known, await client.union()))

    async def _add(self, client: Client, rows: Rows) -> None:
        """Submit a plan; `again`, for another plan of the same rows has the same values, and may be in doubt."""
        self._plan(Plan(False, dict(rows)))
        await self._acknowledged(client.submit(self._updates(rows), again=True))

    def _updates(self, rows: Rows) -> dict[str, Any]:
        digit = 4**self.ledger.digit
        updates: dict[str, Any] = {}
        for block in self._task.blocks:
            if block.name == self._task.weights:
                updates[block.name] = [1 + self.ledger.digit]
            elif isinstance(block, Dense):
                updates[block.name] = np.full(block.size, digit, dtype=np.int64)
            elif rows.get(block.name):
                chosen = list(rows[block.name])
                updates[block.name] = (chosen, np.full((len(chosen), block.width), digit, dtype=np.int64))
        return updates

    async def _unite(self, client: Client) -> None:
        self._united = dict(self._always if self._task.selection == "fixed" else self._choose())
        for plan in self._again:
            self._united = dict(plan.rows) if plan.union else self._united
        self._plan(Plan(True, dict(self._united)))
        await self._acknowledged(client.unite({name: list(rows) for name, rows in self._united.items()}, wait=True))

    # ---- its choices

    def _chosen(self) -> Rows:
        return self._always if self._task.selection == "fixed" else self._choose()

    def _choose(self) -> dict[str, tuple[int, ...]]:
        return {
            block.name: tuple(sorted(self._rng.sample(range(block.rows), self._rng.randint(1, block.select))))
            for block in self._task.blocks
            if isinstance(block, Sparse)
        }

    def _due(self, kind: type[FaultT], submission: int) -> Iterator[FaultT]:
        for fault in self._faults:
            if isinstance(fault, kind) and fault not in self.struck and fault.submission == submission:
                self.struck.append(fault)
                yield fault

    # ---- its ledger

    def _note_left_out(self, client: Client) -> None:
        """Remove the rows from the last plan that are outside of the round's union."""
        if client.left_out:
            plan = self.ledger.all_plans[-1]
            rows = {name: set(chosen) - set(client.left_out.get(name, ())) for name, chosen in plan.rows.items()}
            self.ledger.all_plans[-1] = replace(plan, rows={name: tuple(sorted(left)) for name, left in rows.items()})

    def _plan(self, plan: Plan) -> None:
        """Enter a plan in the ledger, unless it repeats the last plan, which was not counted."""
        if self._again != [plan]:
            self.ledger.all_plans.append(plan)
        self._again = []

    def _note_sent(self, receiver: str, message: Submit | Hint) -> None:
        if message.round_id not in self.ledger.plans:
            self._copy = bytes(self._disk.data[: self._disk.synced])
        self.ledger.plans[message.round_id].add(len(self.ledger.all_plans) - 1)
        content = digest(Domain.SIMULATION, message.public_digest, message.bound_digest)
        self.ledger.contents[message.round_id, receiver].add(content)

    async def _acknowledged(self, sending: Awaitable[SubmissionReceipt]) -> None:
        """Send the last plan, and record whether both servers acknowledged it, or that it was refused for good."""
        plan = len(self.ledger.all_plans) - 1
        try:
            receipt = await sending
        except NotDrawnError:
            self._again = self.ledger.all_plans[-1:]
            raise
        except RoundClosedError:
            for round_id, plans in self.ledger.plans.items():
                self.ledger.refused[round_id] |= plans & {plan}
            self._again = self.ledger.all_plans[-1:]
            raise
        self.ledger.acknowledged.add(receipt.number)

    def _note_outcome(self, outcome: ClientOutcome) -> None:
        self.ledger.outcomes[outcome.number].append(outcome)
