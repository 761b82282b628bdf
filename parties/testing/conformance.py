"""Two real servers that a client in another language is tried against: they say in words what it did right and wrong.

    python -m parties.testing.conformance task.toml --rounds 2

The first line of the output is what the client needs, as JSON: addresses, keys, the task, and the rows of each round.
In each round it retrieves these rows, downloads every dense block whole, and submits what came, as it came, as its
update. So the sum says whether all of that was right: companions of ours submit zeros at the same rows.

Keys, model and rows are the same in every run, so they can stand in the client's own tests; whatever protects values
is drawn by the operating system, as in every live server. Nothing that is to stay secret belongs in this pair.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import FslError, MisuseError, sole_error
from fsl_async.randomness import SeededSource
from fsl_async.task import Dense, Sparse, Task
from fsl_async.wire.messages import Answer, Block, Finished, Message, Opened, Receipt, Refused
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import ThreadLane
from parties.concurrency import RecurringEvent
from parties.events import ClientLeft, ClientMet, ConnectionFailed, MessageReceived, ServerEvent
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.outcome import Model, RoundOutcome
from parties.schedule import Schedule
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.settings.writing import load_task
from parties.storage.store import MemoryStore
from transport import Kind, TcpTransport

SERVERS = ("S0", "S1")
FOREIGN = "foreign"
"""The name of the client that is tried."""

LARGEST = 100
"""The largest number of a model, in units of the ring's last fraction bit."""

MOST_ROUNDS, MOST_COMPANIONS, MOST_WEIGHTS = 10, 32, 2**24
SHOWN = 3
"""So many places are shown at which a sum is wrong."""


class Finding(NamedTuple):
    """One line of the report, and whether it is a good one."""

    right: bool
    text: str


class Story:
    """What one server saw of the client; `moved` is called whenever something happened.

    Attributes:
        wrong: what the client did wrong, in words.
        sent: kinds of the messages that went to the client, by the round's number.
        whole: the blocks that it downloaded, with the round's number.
    """

    def __init__(self, server: str, moved: Callable[[], None]) -> None:
        self.server, self._moved = server, moved
        self.wrong: list[str] = []
        self.connections = self.open = 0
        self.sent: dict[int, list[str]] = defaultdict(list)
        self.whole: set[tuple[int, str]] = set()
        self._rounds: dict[bytes, int] = {}
        self._asked = ""

    def note(self, event: ServerEvent) -> None:
        """Take a server's event."""
        match event:
            case ClientMet(client=name) if name == FOREIGN:
                self.connections, self.open = self.connections + 1, self.open + 1
            case ClientLeft(client=name) if name == FOREIGN:
                self.open -= 1
            case MessageReceived(sender=name, kind=kind) if name == FOREIGN:
                self._asked = kind
            case ConnectionFailed(explanation=explanation):
                self.wrong.append(f"a connection ended badly: {explanation}")
            case _:
                return
        self._moved()

    def watch(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        """Take a message that the server sends."""
        if receiver != FOREIGN:
            return
        match message:
            case Refused(reason=reason, explanation=explanation):
                asked = f"{self._asked} was refused" if self._asked else "a connection was ended"
                self.wrong.append(f"{asked} ({reason}): {explanation}")
            case Opened(config=config):
                opened = RoundConfig.parse(config, sender)
                self._rounds[opened.round_id()] = opened.number
                self.sent[opened.number].append("Opened")
            case Answer() | Receipt() | Finished() | Block():
                number = self._rounds.get(message.round_id, 0)
                self.sent[number].append(type(message).__name__)
                if isinstance(message, Block):
                    self.whole.add((number, message.block))
            case _:
                pass
        self._asked = ""
        self._moved()

    def missing(self) -> str:
        """What to say of a reply that was never sent."""
        if self._asked in ("Retrieve", "Recall", "Submit", "Hint"):
            return f"{self._asked} waits for the other server: send to both, and only then wait for either"
        return f"{self._asked} has no reply" if self._asked else "no such request was carried out"


class Pair:
    """Both servers, companions, and what becomes of a client.

    Args:
        task: what is played.
        rounds: how many.
        patience: seconds without a move of the client after which the trial is over.
        port: where S0 listens; S1 one above it. 0: anywhere.

    Raises:
        MisuseError: the task, or a number, is none that can be played.
    """

    def __init__(self, task: Task, rounds: int = 1, patience: float = 30.0, port: int = 0) -> None:
        self.task, self.rounds, self.patience, self.port = task, rounds, patience, port
        if not 1 <= rounds <= MOST_ROUNDS:
            raise MisuseError(f"--rounds is a number from 1 to {MOST_ROUNDS}, not {rounds}")
        if not 0 < patience < math.inf:
            raise MisuseError(f"--patience is a number of seconds above 0, not {patience:g}")
        if not 0 <= port < 2**16 - 1:
            raise MisuseError(f"--port is a port with another one above it, or 0, not {port}")
        companions = max(task.min_clients or 0, task.min_contributors or 0)
        self.companions = [f"companion-{number}" for number in range(min(companions, task.max_clients - 1))]
        _check(task, rounds, len(self.companions))
        self.model = {} if task.protocol == "psu" else _model(task, rounds)
        names = (*SERVERS, FOREIGN, *self.companions)
        self.keys = {name: Identity.generate(name, SeededSource(0, "conformance", name)) for name in names}
        self.stories = [Story(name, self._moved) for name in SERVERS]
        self.findings: list[Finding] = []
        self._opened: dict[int, RoundConfig] = {}
        self._shared: dict[str, Any] = {"task": task, "transport": TcpTransport(), "lane": ThreadLane()}
        self._shared |= {"randomness": os.urandom, "kind": Kind.LIVE}
        self._scope, self._change = trio.CancelScope(), RecurringEvent()

    def rows(self, number: int) -> dict[str, list[int]]:
        """The client's rows in a round, by sparse block: the same in all where the selection is fixed."""
        if self.task.selection == "fixed":
            number = 1
        elif self.task.alignment == "union":
            number = (number + 1) // 2  # those of the union round before
        chosen = np.random.default_rng([number, 6])
        return {
            block.name: sorted(chosen.choice(block.rows, block.select, replace=False).tolist())
            for _, block in self.task.sparse_blocks()
        }

    def needed(self, addresses: Sequence[str]) -> dict[str, Any]:
        """What a client needs to know; bytes in hexadecimal digits, and of the model the first round's rows."""
        own, rows = self.keys[FOREIGN], self.rows(1)
        servers = (self.keys[name].public for name in SERVERS)
        return {
            "task": self.task.canonical().hex(),
            "digest": self.task.digest().hex(),
            "servers": [
                {"address": address, "channel": one.channel.hex(), "statement": one.statement.hex()}
                for address, one in zip(addresses, servers, strict=True)
            ],
            "client": {"name": FOREIGN, "channel": own.channel_secret.hex(), "statement": own.statement_secret.hex()},
            "rounds": [self.rows(number) for number in range(1, self.rounds + 1)],
            "model": {name: array[rows.get(name, slice(None))].tolist() for name, array in self.model.items()},
        }

    # ---- playing

    async def run(self, *, task_status: trio.TaskStatus[dict[str, Any]] = trio.TASK_STATUS_IGNORED) -> None:
        """Play all rounds, and judge them; reports what a client needs once it can connect."""
        async with trio.open_nursery() as nursery:
            addresses, servers = list[str](), list[Server]()
            for index in (0, 1):
                servers.append(Server(self._server_setup(index, addresses)))
                addresses.append(await nursery.start(servers[-1].run))
            for name in self.companions:
                await nursery.start(self._accompany, name, addresses, servers[0])
            task_status.started(self.needed(addresses))
            with self._scope:
                self._moved()
                for number in range(1, self.rounds + 1):
                    await self._play(servers, number)
                for server in servers:
                    await server.drain(self.patience)
            nursery.cancel_scope.cancel()
        for story in self.stories:
            self._judge_connections(story)
            for number in range(1, self.rounds + 1):
                self._judge_requests(story, number)
        for config in self._opened.values():
            self._judge_downloads(config)

    def end(self, seconds: float) -> None:
        """Let the trial be over when nothing has moved for so many seconds, because the client will not come again."""
        self.patience = seconds
        self._moved()

    def _moved(self) -> None:
        self._scope.deadline = trio.current_time() + self.patience
        self._change.set()

    def _server_setup(self, index: int, addresses: list[str]) -> ServerSetup:
        story = self.stories[index]
        return ServerSetup(
            index=index,
            identity=self.keys[SERVERS[index]],
            peer=self.keys[SERVERS[1 - index]].public,
            peer_address=addresses[0] if index else "",
            registry=Registry(self.keys[name].public for name in (FOREIGN, *self.companions)),
            model={name: array.copy() for name, array in self.model.items()},
            address=f"127.0.0.1:{self.port and self.port + index}",
            store=MemoryStore(),
            schedule=Schedule(clients=1 + len(self.companions), rounds=self.rounds, grace=0.0),
            observe=story.note,
            watch=story.watch,
            **self._shared,
        )

    async def _accompany(
        self, name: str, addresses: list[str], server: Server, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Take part in every round with zeros, at the rows of the client that is tried; started with the first one.

        So the kernels are compiled by the time that the client comes, and its patience is not tried by that.
        """
        first, second = (self.keys[each].public for each in SERVERS)
        own, places = self.keys[name], (addresses[0], addresses[1])
        setup = ClientSetup(identity=own, servers=(first, second), addresses=places, **self._shared)
        async with Client(setup) as client:
            for number in range(1, self.rounds + 1):
                run, rows = await server.next_round(number - 1), self.rows(number)
                with suppress(FslError):  # whatever the other client did: the round's end says it
                    if run.config.protocol == "psu":
                        await client.unite(rows)
                    else:
                        found = await client.retrieve(rows) if rows else {}
                        await client.submit({name: (rows[name], 0 * values) for name, values in found.items()})
                    if number == 1:
                        task_status.started()
                    await client.outcome()

    async def _play(self, servers: Sequence[Server], number: int) -> None:
        """Wait for a round's end, and judge its sum."""
        runs = [await server.next_round(number - 1) for server in servers]
        model, protocol = servers[0].model, runs[0].config.protocol
        self._opened[number] = runs[0].config
        while protocol == "psr" and not all("Answer" in story.sent[number] for story in self.stories):
            await self._change.wait()
        try:
            outcome = await (servers[0].close_round() if protocol == "psr" else servers[0].settled_outcome(runs[0]))
        except FslError as error:
            self._find(False, f"round {number} is done", str(error))
            return
        if protocol != "psr":
            counted, why = FOREIGN in outcome.clients, EXPLAINED[outcome.excluded.get(FOREIGN, "")]
            self._find(counted, f"round {number}: the submission is counted", why)
            for name, rows in self.rows(number).items() if counted and protocol == "psu" else ():
                text, odd = (
                    f"round {number}, block {name!r}: the union is exact",
                    {*rows} ^ {*outcome.union[name].tolist()},
                )
                self._find(not odd, text, f"these rows are in it, or are missing, by mistake: {sorted(odd)}")
            if counted and protocol == "ssa":
                self._judge_sum(outcome, model)

    # ---- judging

    def _judge_sum(self, outcome: RoundOutcome, model: Model) -> None:
        """Of each block, whether its sum is what was to be retrieved or downloaded of it, element by element."""
        for name, elements in outcome.elements.items():
            rows = self.rows(outcome.number).get(name, slice(None))
            expected = np.zeros(elements.shape, np.int64)
            expected[rows] = np.rint(model[name][rows].astype(np.float64) * 2.0**self.task.ring.fraction_bits)
            wrong = np.unique(np.nonzero(elements != expected)[0])
            shown = (f"at {at}: {elements[at].tolist()}, not {expected[at].tolist()}" for at in wrong[:SHOWN])
            text = f"round {outcome.number}, block {name!r}: the sum is exactly what was to be retrieved and submitted"
            self._find(not len(wrong), text, f"wrong at {len(wrong)} of {len(expected)} places: {'; '.join(shown)}")

    def _judge_connections(self, story: Story) -> None:
        text = f"{story.server}: connected: preamble, handshake, credentials and welcome"
        self._find(story.connections > 0, text, f"nobody came with the keys of {FOREIGN!r}")
        self.findings += [Finding(right=False, text=f"{story.server}: {text}") for text in story.wrong]
        if story.connections and not story.wrong:
            text = f"{story.server}: every connection ended with CLOSE"
            self._find(not story.open, text, "one was still open when the trial was over")

    def _judge_requests(self, story: Story, number: int) -> None:
        """Of one round, up to which point a server was asked, and has answered."""
        config = self._opened.get(number)
        wanted = {"Opened": "the round was entered"}
        if config is not None and config.protocol != "psu" and any(config.bins):
            wanted["Answer"] = "a retrieval was answered"
        if self.task.protocol != "psr":
            wanted["Receipt"] = "a submission has its receipt"
        wanted["Finished"] = "the outcome was asked for and told"
        for kind, text in wanted.items():
            there = kind in story.sent[number]
            self._find(there, f"{story.server}, round {number}: {text}", story.missing())
            if not there:
                return

    def _judge_downloads(self, config: RoundConfig) -> None:
        """Of one round, whether every union, and every block that is not retrieved, was downloaded from a server."""
        names = {union.name for union in config.union} | {block.name for block in config.plain}
        if config.protocol == "ssa":
            names |= {block.name for block in self.task.model_blocks if isinstance(block, Dense)}
        for name in sorted(names):
            there = any((config.number, name) in story.whole for story in self.stories)
            text = f"round {config.number}: block {name!r}, or its union, was downloaded"
            self._find(there, text, "nobody asked for it")

    def _find(self, right: bool, text: str, otherwise: str) -> None:
        self.findings.append(Finding(right, text if right else f"{text}: NO: {otherwise}"))


EXPLAINED = {
    "only_s0": "S0 alone has it: send to both servers",
    "only_s1": "S1 alone has it: send to both servers",
    "mismatch": "the two servers have different digests of it: both get the same public digest and commitments",
    "proof": "a tree is no point function, or a proof block is wrong: both servers' proofs differ",
    "bound": "the proof of its bound is wrong",
    "": "it came to neither server",
}
"""Why a submission is not counted, and what to look at."""


def _check(task: Task, rounds: int, companions: int) -> None:
    """Refuse a task of which the pair cannot tell whether a sum is exact.

    Raises:
        MisuseError: it is one.
    """
    moves, weights = task.apply != "sum" or task.optimizer is not None, sum(block.weights for block in task.blocks)
    for refused, why in (
        (task.privacy is not None, "has `privacy`, and with noise no sum is exact"),
        (task.draws, "has a `sample`, so nobody knows who is drawn"),
        (task.weights is not None, "has `weights`, which no client can have from the model"),
        (":" in str(task.apply), f"has a rule of its own, {task.apply!r}, which is not here"),
        (moves and rounds > 1, "moves its model by more than the sum, so that only --rounds 1 is exact"),
        (companions > MOST_COMPANIONS, f"has {companions} other clients at least, above {MOST_COMPANIONS}"),
        (weights > MOST_WEIGHTS, f"has {weights:,} weights, above {MOST_WEIGHTS:,}"),
    ):
        if refused:
            raise MisuseError(f"the task {task.name!r} {why}: give the pair a task without that")


def _model(task: Task, rounds: int) -> Model:
    """What the servers begin with: whole numbers of the ring's last fraction bit, none too large to be an update.

    Raises:
        MisuseError: not even 1 of them is an update that the task allows.
    """
    unit = 2.0**-task.ring.fraction_bits
    updates = sum(block.select * block.width if isinstance(block, Sparse) else block.size for block in task.blocks)
    times = 2 ** (rounds - 1)  # a row that is drawn in every round is doubled by each
    limits = [LARGEST * times, (task.largest or math.inf) / unit, (task.bound or math.inf) / unit / updates**0.5]
    most = min(limits) / times
    if most < 1:
        raise MisuseError(
            f"the task {task.name!r} allows no update in {rounds} rounds: a larger `largest` or `bound`, more fraction "
            "bits or fewer --rounds expected"
        )
    drawn, kind = np.random.default_rng(7), np.float32 if task.ring.fraction_bits else np.int32
    return {
        block.name: (drawn.integers(-int(most), int(most), block.shape, endpoint=True) * unit).astype(kind)
        for block in task.model_blocks
    }


def main(arguments: list[str]) -> int:
    """Play, and print what came of it: 0 where all was right, else 1; ends with 2 where it cannot."""
    parser = argparse.ArgumentParser(prog="python -m parties.testing.conformance", description=__doc__)
    parser.add_argument("task", metavar="TASK", type=Path, help="a task file; its [[servers]] are not looked at")
    parser.add_argument("--rounds", type=int, default=1, help=f"how many rounds, up to {MOST_ROUNDS}")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds that a client may do nothing")
    parser.add_argument("--port", type=int, default=0, help="where S0 listens; S1 one above it")
    given = parser.parse_args(arguments)
    try:
        pair = Pair(load_task(given.task), given.rounds, given.patience, given.port)
        with sole_error():
            trio.run(_told, pair)
    except FslError as error:
        parser.error(str(error))
    return 0 if all(finding.right for finding in pair.findings) else 1


async def _told(pair: Pair) -> None:
    """Print what a client needs, and then line after line what it did."""
    async with trio.open_nursery() as nursery:
        needed = await nursery.start(pair.run)
        sys.stdout.write(f"{json.dumps(needed)}\n")
        sys.stdout.flush()
    for finding in pair.findings:
        sys.stdout.write(f"{'right' if finding.right else 'WRONG'}  {finding.text}\n")


if __name__ == "__main__":
    logging.getLogger("parties").setLevel(logging.ERROR)  # the companions wait long, and need not say so
    sys.exit(main(sys.argv[1:]))
