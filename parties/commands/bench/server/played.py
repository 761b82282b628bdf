"""The cores of two servers while this process plays their doors: what a core takes for a client, and nothing else.

The cores are processes as `fsl-async serve` makes them, with stores on disk, and evaluate nothing. Their doors are
played over the same sockets with a door's own connection to its core (`CoreLink`), and say what doors say, in the same
order: they have clients let in, enter the round, and submit with both halves; they forward to each other what the cores
order, ask for the outcome, and leave. Only bulk is missing: of a submission there is a name and a digest.

Rules: some clients come first and are not counted, because a process is slow at first; all clients that are counted
come as fast as the cores take them, so many at a time as `members` has.
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from fsl_async.config import RoundConfig
from fsl_async.derivation import seed_commitment
from fsl_async.digests import DIGEST_BYTES, KEY_BYTES
from fsl_async.error_groups import sole_error
from fsl_async.errors import FslError
from fsl_async.task import Task
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.door_messages import (
    AdmitKey,
    Admitted,
    Answered,
    Ask,
    Begin,
    CoreHello,
    Deposited,
    DoorHello,
    Forwarded,
    ForwardOrder,
    Granted,
    Kept,
    Later,
    Leave,
    NotYet,
    Offer,
    RoundOpened,
    Taken,
    Wanted,
)
from fsl_async.wire.forward_messages import forwarding
from fsl_async.wire.messages import AskOutcome, Enter, FromServer, Opened, Receipt, Submit
from fsl_async.wire.public_part import Layout, Trees
from parties.commands.bench.server.deployed import SERVERS, Deployed, lay_out, started
from parties.commands.bench.server.members import SUBMITTING, name_of
from parties.commands.bench.server.spent import Spent, spent_by
from parties.identity.credentials import Credentials
from parties.identity.keys import Identity
from parties.server.door.core_link import CoreLink, Unasked
from parties.settings.task_file import Deployment
from transport import HandshakeSettings, Kind, Role, SecureChannel, SocketTransport

__all__ = ["Played", "PlayedTaken", "play"]

DOORS = 2
OFFERED_AGAIN = 0.05
PATIENCE = 300.0


@dataclass(frozen=True)
class Played:
    """What is played.

    Attributes:
        task: what is learnt: it decides how large a submission says it is.
        clients: how many are counted.
        before: how many come before them.
    """

    task: Task
    clients: int
    before: int


@dataclass
class PlayedTaken:
    """What the clients took that were counted.

    Attributes:
        core: what each core's process has had of the processors.
        seconds: from the first client to the last.
    """

    core: list[Spent] = field(default_factory=list)
    seconds: float = 0.0


def play(played: Played) -> PlayedTaken:
    """Have the clients come to both servers, and measure these.

    Raises:
        FslError: a process failed, or said what no core says to such a client.
    """
    with tempfile.TemporaryDirectory(prefix="fsl-bench-played-") as name, sole_error():
        folder, everybody = Path(name), played.clients + played.before
        lay_out(folder, Deployed(played.task, everybody, doors=DOORS, starts_doors=False))
        return trio.run(_Play(folder, played).run)


class _Play:
    """Both servers' doors, and whoever comes to them.

    Attributes:
        servers: the identities of both servers.
        doors: by server, its doors.
        config: the round's, once it is open.
        task: the task.
    """

    def __init__(self, folder: Path, played: Played) -> None:
        self._folder = folder
        self._played = played
        self._turns = trio.CapacityLimiter(SUBMITTING)
        self.servers = [Identity.load(folder / f"{name}.key") for name in SERVERS]
        self.task = Deployment.load(folder / "task.toml").task
        self.config: RoundConfig | None = None
        self.opened = [trio.Event(), trio.Event()]
        self.doors: list[list[_Door]] = []

    async def run(self) -> PlayedTaken:
        taken = PlayedTaken()
        async with (
            started("S0", self._serve(0), _unheard) as first,
            started("S1", self._serve(1), _unheard) as second,
            trio.open_nursery() as nursery,
        ):
            cores = (first, second)
            for core in cores:
                nursery.start_soon(core.hear)
            self.doors = [[_Door(self, server, number, nursery) for number in range(DOORS)] for server in (0, 1)]
            with trio.fail_after(PATIENCE):
                for door in (*self.doors[0], *self.doors[1]):
                    await door.open()
                for event in self.opened:
                    await event.wait()
                played = self._played
                await self._take_part(range(played.before))
                earlier, begun = [spent_by(core.process.pid) for core in cores], time.perf_counter()
                await self._take_part(range(played.before, played.before + played.clients))
                taken.seconds = time.perf_counter() - begun
                taken.core = [spent_by(core.process.pid) - before for core, before in zip(cores, earlier, strict=True)]
            nursery.cancel_scope.cancel()
        return taken

    def _serve(self, server: int) -> list[str]:
        file = self._folder / f"{SERVERS[server]}.toml"
        return ["parties.commands.bench.server.unevaluated", "serve", str(file)]

    async def _take_part(self, numbers: Sequence[int]) -> None:
        clients = [self._client(number) for number in numbers]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(self._come, client)

    def _client(self, number: int) -> _Client:
        if self.config is None:
            raise FslError("no round is open")
        return _Client.of(Identity.load(self._folder / f"{name_of(number)}.key"), number, self.task, self.config)

    async def _come(self, client: _Client) -> None:
        """Everything that one client does at both servers."""
        visits = [_Visit(self.doors[server][client.number % DOORS], client) for server in (0, 1)]
        async with self._turns, trio.open_nursery() as nursery:
            for visit in visits:
                nursery.start_soon(visit.submit)
        async with trio.open_nursery() as nursery:
            for visit in visits:
                nursery.start_soon(visit.leave)


def _unheard(line: str) -> None:
    """What a core logs."""


@dataclass(frozen=True)
class _Client:
    """A client, and what it says.

    Attributes:
        number: its number.
        key: its channel key.
        payload: what it says in its handshake.
        carrier: the server to which it brings its part, and `part` that part's digest.
        size: bytes of that part.
        submits: to each server.
    """

    number: int
    key: bytes
    payload: bytes
    carrier: int
    part: bytes
    size: int
    submits: tuple[Submit, Submit]

    @staticmethod
    def of(identity: Identity, number: int, task: Task, config: RoundConfig) -> _Client:
        """A client of this round, with seeds of its own and a part that nobody has."""
        name, round_id = identity.name, config.round_id()
        seeds, part = (os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)), os.urandom(DIGEST_BYTES)
        first, second = (seed_commitment(seed, round_id, name, server) for server, seed in enumerate(seeds))
        said = [
            Submit(
                round_id=round_id,
                query=0,
                seed=seed,
                commitments=(first, second),
                public_digest=part,
                dense_digest=b"",
            )
            for seed in seeds
        ]
        return _Client(
            number=number,
            key=identity.public.channel,
            payload=Credentials.of(identity, task.digest()).encode(),
            carrier=config.carrier(name),
            part=part,
            size=Layout.submission(config.shape, Trees.OWN).size,
            submits=(said[0], said[1]),
        )


def _trees_of(part: bytes) -> bytes:
    """The digest of the trees of a part that nobody has."""
    return part[::-1]


class _Door:
    """One door: its connection to the core, and the link over which it takes what the other server forwards.

    Attributes:
        link: to the core.
        peer: the visit of the other server's door that forwards to this one.
    """

    def __init__(self, play: _Play, server: int, number: int, nursery: trio.Nursery) -> None:
        self._play = play
        self.server = server
        self._number = number
        self._nursery = nursery
        self._address = f"unix:{play._folder / SERVERS[server]}.core"
        self.link = CoreLink(SERVERS[server], self._dial, self)
        self.peer = 0

    async def open(self) -> None:
        """Reach the core, and let the other server's door in."""
        await self._nursery.start(self.link.keep)
        self.peer = self.link.number()
        other = self._play.servers[1 - self.server].public.channel
        asked = AdmitKey(call=self.peer, key=other, payload=forwarding(self._play.task.digest()))
        _expect(await self.link.call(self.peer, asked), Admitted)

    async def _dial(self) -> SecureChannel:
        play, role = self._play, (Role.DOOR_0, Role.DOOR_1)[self.server]
        identity = play.servers[self.server]
        hello = DoorHello(
            release=importlib.metadata.version("fsl-async"), task=play.task.digest(), door=f"door-{self._number}"
        )
        said = HandshakeSettings(identity.channel_secret, role, Kind.LIVE, os.urandom, bytes(encode(hello)[0]))
        return await SocketTransport().dial(self._address, identity.public.channel, said)

    def core_met(self, hello: CoreHello) -> None:
        """See `CoreListener.core_met`."""

    def core_lost(self) -> None:
        """See `CoreListener.core_lost`."""

    def core_said(self, message: Unasked, bulk: memoryview) -> None:
        """See `CoreListener.core_said`."""
        if isinstance(message, RoundOpened):
            self._play.config = RoundConfig.parse(bytes(bulk), SERVERS[self.server])
            self._play.opened[self.server].set()
        elif isinstance(message, ForwardOrder):
            self._nursery.start_soon(self._forward, message)

    async def _forward(self, order: ForwardOrder) -> None:
        """Forward a part to the other server's door of the same number, which asks its core."""
        other = self._play.doors[1 - self.server][self._number]
        await other.take(order)
        self.link.post(Forwarded(order.order))

    async def take(self, order: ForwardOrder) -> None:
        """Take what the other server forwards."""
        while True:
            call = self.link.number()
            offer = Offer(
                call=call,
                visit=self.peer,
                round_id=order.round_id,
                client=order.client,
                purpose=order.purpose,
                query=order.query,
                part=order.part,
                size=Layout.submission(self._play.task, Trees.OWN).size,
            )
            answer = (await self.link.call(call, offer)).message
            if not isinstance(answer, Later):
                break
            await trio.sleep(OFFERED_AGAIN)
        if isinstance(answer, Wanted):
            kept = Kept(call=call, part=order.part, tree=_trees_of(order.part))
            _expect(await self.link.call(call, kept), Taken)


class _Visit:
    """One client at one door of one server."""

    def __init__(self, door: _Door, client: _Client) -> None:
        self._door = door
        self._link = door.link
        self._client = client
        self._visit = 0

    async def submit(self) -> None:
        """Be let in, enter the round, and submit."""
        client, self._visit = self._client, self._link.number()
        asked = AdmitKey(call=self._visit, key=client.key, payload=client.payload)
        _expect(await self._link.call(self._visit, asked), Admitted)
        _expect_reply(await self._ask(Enter(0)), Opened)
        _expect_reply(await self._submit(client.submits[self._door.server]), Receipt)

    async def _submit(self, message: Submit) -> Any:
        client, call = self._client, self._link.number()
        is_carried = client.carrier == self._door.server
        asked = Begin(call=call, visit=self._visit, request=_head(message), size=client.size if is_carried else 0)
        answer = await self._link.call(call, asked)
        if is_carried:
            _expect(answer, Granted)
            said = Deposited(call=call, part=client.part, tree=_trees_of(client.part), size=client.size)
            answer = await self._link.call(call, said)
        return answer

    async def leave(self) -> None:
        """Ask for the outcome, which is not there, and leave."""
        round_id = self._client.submits[0].round_id
        _expect(await self._ask(AskOutcome(round_id)), NotYet)
        self._link.post(Leave(self._visit))

    async def _ask(self, message: Enter | AskOutcome) -> Any:
        call = self._link.number()
        return await self._link.call(call, Ask(call=call, visit=self._visit, request=_head(message)))


def _head(message: Enter | AskOutcome | Submit) -> bytes:
    return bytes(encode(message)[0])


def _expect(answer: Any, kind: type) -> None:
    if not isinstance(answer.message, kind):
        raise FslError(f"{kind.__name__} expected of a core, it says {answer.message}")


def _expect_reply(answer: Any, kind: type) -> None:
    _expect(answer, Answered)
    reply = decode(answer.bulk, FromServer, "the core").message
    if not isinstance(reply, kind):
        raise FslError(f"{kind.__name__} expected of a core, it says {reply}")
