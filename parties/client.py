"""A client: retrieves its rows and submits its updates, privately, with both servers.

The calls below are the whole interface; the order in which a round allows them is `fsl_async.protocols.client`. The
same code runs in memory (`parties.simulate`) and over TCP (`parties.connect`).

Rules: nothing is sent before the caller's input has been checked whole; a submission's bytes are made once and a repeat
sends the same ones; a server's statement counts only with its signature.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import trio

from fsl_async.alignment import unpack_union
from fsl_async.codec import Received, bulk_overhead, decode, encode
from fsl_async.config import RoundConfig, first_difference
from fsl_async.digests import Buffer, Domain, digest, same
from fsl_async.errors import ChannelError, FslError, MisuseError, PeerViolationError
from fsl_async.messages import (
    Answer,
    AskOutcome,
    AskTask,
    Block,
    Download,
    Enter,
    Finished,
    FromServer,
    Hint,
    Message,
    Opened,
    Recall,
    Receipt,
    Refused,
    Retrieve,
    Submit,
    TaskIs,
)
from fsl_async.protocols import client as protocol
from fsl_async.protocols import session as session_protocol
from fsl_async.public_part import Trees
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements
from fsl_async.selection import Grove, MasterSeeds, plant, rows_by_block
from fsl_async.task import Sparse, Task
from fsl_async.upload import (
    SparseUpdate,
    answer_bytes,
    dense_digest,
    dense_shares,
    public_digest,
    read_answers,
    retrieval_part,
    submission_digest,
    submission_part,
)
from parties.arguments import Rows, encoded_updates, wanted_rows
from parties.compute import ComputeLane
from parties.enrolment import NO_VOUCHER, Credentials
from parties.identity import Identity, PublicIdentity, verify
from parties.line import Line
from parties.outcome import ENTRY_BYTES, ClientOutcome, RoundReport
from parties.tokens import voucher
from transport import Channel, HandshakeSettings, Kind, Role, Transport

__all__ = ["Client", "ClientSetup", "RequestDeniedError", "RoundClosedError", "SubmissionReceipt"]

ResultT = TypeVar("ResultT")
Phase: TypeAlias = Literal["main", "union"]
NOTHING = memoryview(b"")


class RoundClosedError(FslError):
    """The round closed before the request was carried out; the next call enters the next round."""


class RequestDeniedError(FslError):
    """A server refused a request; the message says which and why.

    Attributes:
        reason: one of the reasons of `messages.Refused`.
    """

    def __init__(self, server: int, reason: str, explanation: str) -> None:
        super().__init__(f"S{server} refused ({reason}): {explanation}")
        self.reason = reason


@dataclass(frozen=True)
class ClientSetup:
    """All that a client is made of.

    Attributes:
        task: what is learnt.
        identity: its own keys.
        servers: S0's and S1's public keys.
        addresses: where they listen.
        transport: how to reach them.
        lane: where it computes.
        randomness: the operating system's, but in simulation.
        kind: which of the two, announced in every handshake.
        watch: hears of every message it sends.
        token: to enrol with, where the servers ask for one; else empty.
    """

    task: Task
    identity: Identity
    servers: tuple[PublicIdentity, PublicIdentity]
    addresses: tuple[str, str]
    transport: Transport
    lane: ComputeLane
    randomness: Randomness = field(repr=False)
    kind: Kind
    watch: Callable[[str, str, Message, int], None]
    token: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class SubmissionReceipt:
    """Both servers' word that a submission is stored.

    Attributes:
        number: the round.
        digest: the submission, as receipts, rosters and proofs name it.
        signatures: S0's and S1's, over round, client and digest.
        bytes_sent: what the submission took on the wire, to both servers, framing included.
    """

    number: int
    digest: bytes
    signatures: tuple[bytes, bytes]
    bytes_sent: int


@dataclass(frozen=True)
class _Session:
    """Trees that both servers keep: of which seed, and what only the client knows of them."""

    number: int
    grove: Grove
    commitments: tuple[bytes, bytes]


@dataclass(frozen=True)
class _Draft:
    """A submission whose bytes are fixed."""

    client: str
    config: RoundConfig
    grove: Grove
    trees: Trees
    query: int
    commitments: tuple[bytes, bytes]
    public_digest: bytes
    dense_digest: bytes

    def message(self, server: int) -> Submit | Hint:
        """What goes to one server, besides the bulk."""
        round_id = self.config.round_id()
        if self.trees is Trees.SESSION:
            dense = self.dense_digest if any(self.config.shape.dense_blocks()) else b""
            is_carrier = self.config.carrier(self.client) == server
            return Hint(round_id, b"" if is_carrier else self.public_digest, dense)
        return Submit(
            round_id=round_id,
            query=self.query,
            seed=self.grove.seeds.msk[server],
            commitments=self.commitments,
            public_digest=self.public_digest,
            dense_digest=self.dense_digest,
        )


class Client:
    """A client of both servers; made by `simulate` or `connect`, used as an async context manager."""

    def __init__(self, setup: ClientSetup) -> None:
        self.setup = setup
        self.task = setup.task
        self.name = setup.identity.name
        self._state: protocol.ClientRound = protocol.Outside(0)
        self._grove: Grove | None = None
        self._last: tuple[RoundConfig, bytes] | None = None
        self._session: _Session | None = None
        self._candidate: _Session | None = None
        self._standing: session_protocol.Session = session_protocol.Absent()
        self._unions: dict[bytes, npt.NDArray[np.uint32]] = {}
        limit = self._reply_limit()
        self._lines = tuple(Line(partial(self._connect, server), limit) for server in (0, 1))
        self._turn = trio.Lock()
        self.deferred: dict[str, npt.NDArray[np.uint32]] = {}

    # ---- life

    async def open(self) -> None:
        """Connect to both servers and check that they run the same task.

        Raises:
            ChannelError: a server could not be reached, or does not know this client; the class says which.
            MisuseError: a server runs another task; the message names the first field that differs.
        """
        try:
            for line in self._lines:
                await line.open()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close both connections."""
        for line in self._lines:
            await line.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to both servers so far: handshakes, framing and all."""
        return sum(line.bytes_sent for line in self._lines)

    @property
    def bytes_received(self) -> int:
        """Bytes received from both servers so far: handshakes, framing and all."""
        return sum(line.bytes_received for line in self._lines)

    @property
    def round_number(self) -> int:
        """The number of the round this client is in; 0 outside."""
        match self._state:
            case protocol.Outside() | protocol.HalfEntered() | protocol.Over():
                return 0
            case state:
                return state.config.number

    # ---- the calls

    async def retrieve(self, rows: Rows) -> dict[str, npt.NDArray[Any]]:
        """Fetch rows of sparse blocks privately, and dense blocks whole.

        A retrieval always moves as much for every sparse block, named or not: its shape tells the servers nothing.

        Args:
            rows: by sparse block, the distinct rows wanted, at most `select`; by dense block, `...`.

        Returns:
            By block, an array (rows, width) or (size,) of the model's own dtype, bit for bit, in the order asked.
            Rows that found no place (with probability 2^-40) are zero and named in `deferred`.

        Raises:
            MisuseError: a block or a row is not what the task allows; nothing was sent.
            RoundClosedError: the round closed meanwhile; call again.
            PeerViolationError: a server broke the protocol, or the two contradict each other.
            ChannelError: a connection was lost.
        """
        wanted, dense = wanted_rows(self.task, rows)
        async with self._turn:
            config = await self._enter("main")
            ranks = {index: await self._named(config, index, chosen) for index, chosen in wanted.items()}
            found = await self._retrieve_sparse(config, ranks) if ranks else {}
            arrays = {self.task.sparse(index).name: array for index, array in found.items()}
            return arrays | {name: await self._download_dense(config, name) for name in dense}

    async def submit(self, updates: Mapping[str, Any]) -> SubmissionReceipt:
        """Add updates to the round's sum; the only submission of this client in this round.

        Args:
            updates: by sparse block, a pair of rows and values (rows, width); by dense block, values (size,). Values
                are floats, or integers taken as ring integers. Blocks left out are submitted as zeros.

        Returns:
            Both servers' receipts. With them the submission counts, unless `outcome` says otherwise.

        Raises:
            MisuseError: a block, row or value is not what the task allows; nothing was sent.
            RoundClosedError: the round closed meanwhile; nothing counts, call again.
            RequestDeniedError: a server refused it; the message says why.
            PeerViolationError: a server broke the protocol.
            ChannelError: a connection was lost.
        """
        sparse, dense = encoded_updates(self.task, updates)
        async with self._turn:
            config = await self._enter("main")
            renamed = {
                index: (await self._named(config, index, rows), values) for index, (rows, values) in sparse.items()
            }
            return await self._submit(config, renamed, dense)

    async def unite(self, rows: Mapping[str, npt.ArrayLike]) -> SubmissionReceipt:
        """Take part in finding the union of all clients' rows, in a task with `alignment="union"`.

        Both servers and all clients learn the union, and nothing else; the rounds after it work on those rows alone.

        Args:
            rows: by sparse block, the distinct rows this client selects, at most `select`.

        Returns:
            Both servers' receipts.

        Raises:
            MisuseError: the task has no union rounds, its only one is over, or the rows are not what it allows.
            RoundClosedError, RequestDeniedError, PeerViolationError, ChannelError: as for `submit`.
        """
        if self.task.alignment != "union":
            raise MisuseError('this task is aligned on all rows; only one with alignment="union" has union rounds')
        wanted = rows_by_block(self.task, rows)
        async with self._turn:
            config = await self._enter("union")
            numbers = {index: (chosen, self._fresh_numbers(len(chosen))) for index, chosen in wanted.items()}
            return await self._submit(config, numbers, {})

    def _fresh_numbers(self, count: int) -> Elements:
        """Random elements of Z_2^64, none of them 0: what marks a row without telling how often it is marked."""
        numbers = np.frombuffer(self.setup.randomness(8 * count), dtype="<u8")
        return np.where(numbers == 0, np.uint64(1), numbers).reshape(count, 1)

    async def outcome(self) -> ClientOutcome:
        """Wait until the round of the last submission has ended, and tell whether it was counted.

        Raises:
            MisuseError: nothing was submitted.
            PeerViolationError: the servers tell different outcomes, or a signature is wrong.
        """
        async with self._turn:
            return await self._learn_outcome()

    def forget_session(self) -> None:
        """Begin anew: the next retrieval or submission brings new trees, and may select other rows."""
        self._session = self._candidate = self._grove = None
        self._standing = session_protocol.Absent()

    def _settle_session(self, epoch: int, counted: bool) -> None:
        """After a round: trees that were counted with it stand from now on."""
        event = session_protocol.Counted(epoch) if counted else session_protocol.Dropped(epoch)
        self._standing = session_protocol.step(self._standing, event, self.name)
        if self.task.selection == "fixed" and isinstance(self._standing, session_protocol.Standing):
            self._session = self._session or self._candidate
        self._candidate = None

    async def _learn_outcome(self) -> ClientOutcome:
        if self._last is None:
            raise MisuseError("nothing has been submitted yet")
        config, _ = self._last
        reports = await self._both(partial(self._outcome_of, config))
        if not _same_ending(*reports):
            field_name, first, second = first_difference(*reports) or ("", "", "")
            raise PeerViolationError("S0 and S1", f"tell different outcomes: {field_name} is {first!r} and {second!r}")
        if isinstance(self._state, protocol.Submitted):
            self._step(protocol.Finish())
        report = reports[0]
        counted = not report.aborted and self.name in report.clients
        self._settle_session(config.epoch, counted)
        reason = report.aborted or report.excluded.get(self.name, "") or ("" if counted else "not submitted in time")
        return ClientOutcome(number=report.number, counted=counted, reason=reason, clients=report.clients)

    # ---- entering

    async def _enter(self, phase: Phase) -> RoundConfig:
        """Be in an open round of a phase: the present one, or the first after the last submission."""
        while True:
            config = await self._enter_next()
            if config.phase == phase:
                for entry in config.union:  # all of them: which a client looks at must not show
                    await self._union_of(config, entry.name)
                return config
            if phase == "main":
                raise MisuseError(f"round {config.number} finds the union first: call `unite` with this client's rows")
            if self.task.selection == "fixed":
                raise MisuseError("the union of this session has been found; retrieve and submit rows that are in it")
            self._state = protocol.Outside(config.number)

    async def _enter_next(self) -> RoundConfig:
        match self._state:
            case protocol.Inside(config=config) | protocol.Holding(config=config):
                return config
            case (
                protocol.Submitted(config=config)
                | protocol.Submitting(config=config)
                | protocol.Retrieving(config=config)
            ):
                self._state = protocol.Outside(config.number)
            case protocol.Over(number=number):
                self._state = protocol.Outside(number)
            case protocol.HalfEntered(after=after):
                self._state = protocol.Outside(after)
        self._grove = None
        if self.task.selection == "fixed" and self._candidate is not None:
            await self._learn_outcome()  # whether its trees are a session now
        while True:
            after = self._state.after if isinstance(self._state, protocol.Outside | protocol.HalfEntered) else 0
            behind = (0, 1)
            if isinstance(self._state, protocol.HalfEntered):
                behind = (1 - self._state.server,) * 2
                after = self._state.config.number - 1
            for server in dict.fromkeys(behind):
                opened = await self._ask(server, Enter(after), NOTHING, Opened)
                config = RoundConfig.parse(opened.message.config, f"S{server}")
                self._check_config(server, config)
                self._step(protocol.Announced(server, config))
                if isinstance(self._state, protocol.Inside):
                    return self._state.config

    def _check_config(self, server: int, config: RoundConfig) -> None:
        if config.task != self.task:
            raise MisuseError(_task_difference(server, self.task, config.task))
        if self._session is not None and config.session != self._session.number:
            raise PeerViolationError(
                f"S{server}",
                f"announces the seed of round {config.session}, this session's is of round {self._session.number}; "
                "`forget_session` begins a new one",
            )
        pinned = tuple(identity.keys for identity in self.setup.servers)
        if config.servers != pinned:
            raise PeerViolationError(f"S{server}", "announces a round with other server keys than the pinned ones")

    async def _named(self, config: RoundConfig, index: int, rows: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """The names of rows in this round: their ranks in its union, where it renames."""
        if not config.union:
            return rows
        name = self.task.sparse(index).name
        union = await self._union_of(config, name)
        outside = rows[~np.isin(rows, union)]
        if len(outside):
            raise MisuseError(f"block {name!r}: row {outside[0]} is not in this round's union of {len(union)} rows")
        return np.searchsorted(union, rows).astype(np.uint32) if config.renamed else rows

    async def _union_of(self, config: RoundConfig, name: str) -> npt.NDArray[np.uint32]:
        """The union of one block, downloaded once and checked against what both servers announced."""
        announced = next(entry for entry in config.union if entry.name == name)
        if announced.digest not in self._unions:
            block = self.task.block(name)
            content = await self._download(config, name)
            if not isinstance(block, Sparse) or not same(
                digest(Domain.UNION, name.encode(), content), announced.digest
            ):
                raise PeerViolationError(
                    f"S{config.carrier(self.name)}", f"sent a union of {name!r} that is not the announced one"
                )
            current = {entry.digest for entry in config.union}
            self._unions = {key: rows for key, rows in self._unions.items() if key in current}
            self._unions[announced.digest] = unpack_union(content, block.rows, f"S{config.carrier(self.name)}")
        return self._unions[announced.digest]

    # ---- retrieving

    async def _retrieve_sparse(
        self, config: RoundConfig, wanted: Mapping[int, npt.NDArray[np.uint32]]
    ) -> dict[int, npt.NDArray[Any]]:
        if self._session is not None:
            grove, answers = self._session.grove, await self._recall(config, self._session, wanted)
        else:
            grove, answers = await self._query(config, wanted)
        self._grove = grove
        names = {index: block.name for index, block in self.task.sparse_blocks()}
        self.deferred = {names[index]: rows for index, rows in grove.deferred.items() if len(rows)}
        found = await self.setup.lane.run(partial(read_answers, config, grove, answers))
        return {index: found[index][_places(grove.rows[index], rows)] for index, rows in wanted.items()}

    async def _query(
        self, config: RoundConfig, wanted: Mapping[int, Any]
    ) -> tuple[Grove, tuple[memoryview, memoryview]]:
        """Plant trees at the wanted rows and have them answered.

        A number that this client has used in this round before it was started anew is passed over.
        """
        while True:
            self._step(protocol.Ask())
            query = self._state.query if isinstance(self._state, protocol.Retrieving) else 0
            try:
                return await self._query_as(config, wanted, query)
            except RequestDeniedError as error:
                if error.reason != "conflict":
                    raise
                self._state, self._grove = protocol.Holding(config, query), None

    async def _query_as(
        self, config: RoundConfig, wanted: Mapping[int, Any], query: int
    ) -> tuple[Grove, tuple[memoryview, memoryview]]:
        seeds = MasterSeeds.fresh(self.setup.randomness)
        grove = await self.setup.lane.run(partial(plant, config, wanted, seeds, self.setup.randomness))
        part = await self.setup.lane.run(partial(retrieval_part, config, grove))
        announced = public_digest(part)
        commitments = seeds.commitments(config.round_id(), self.name)

        async def ask(server: int) -> memoryview:
            message = Retrieve(
                round_id=config.round_id(),
                query=query,
                seed=seeds.msk[server],
                commitments=commitments,
                public_digest=announced,
            )
            bulk = part if config.carrier(self.name) == server else NOTHING
            return await self._answer(server, message, bulk)

        return grove, await self._both(ask)

    async def _recall(
        self, config: RoundConfig, session: _Session, wanted: Mapping[int, Any]
    ) -> tuple[memoryview, memoryview]:
        """Have the session's trees answered again."""
        for index, rows in wanted.items():
            new = rows[~np.isin(rows, session.grove.rows[index])]
            if len(new):
                raise MisuseError(
                    f"block {self.task.sparse(index).name!r}: row {new[0]} is not among the session's rows, and the "
                    "task's selection is fixed; start a new session (`forget_session`) to select other rows"
                )
        self._step(protocol.Recollect())
        return await self._both(lambda server: self._answer(server, Recall(config.round_id()), NOTHING))

    async def _answer(self, server: int, message: Retrieve | Recall, bulk: Any) -> memoryview:
        answer = await self._ask(server, message, bulk, Answer)
        self._step(protocol.Answered(server, answer.message.query))
        return answer.bulk

    async def _download(self, config: RoundConfig, name: str) -> memoryview:
        """A dense block, or the union of a sparse one, from the carrier."""
        message = Download(round_id=config.round_id(), block=name)
        return (await self._ask(config.carrier(self.name), message, NOTHING, Block)).bulk

    async def _download_dense(self, config: RoundConfig, name: str) -> npt.NDArray[Any]:
        content = await self._download(config, name)
        model = config.block_model(name)
        if not same(digest(Domain.MODEL, name.encode(), model.dtype.encode(), content), model.digest):
            raise PeerViolationError(
                f"S{config.carrier(self.name)}", f"sent a block {name!r} that is not the announced one"
            )
        return np.frombuffer(content, dtype=model.dtype).copy()

    # ---- submitting

    async def _submit(
        self, config: RoundConfig, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements]
    ) -> SubmissionReceipt:
        trees, grove = await self._trees_for(config, sparse)
        run = self.setup.lane.run
        part = await run(partial(submission_part, config, self.name, grove, sparse, trees))
        carrier = config.carrier(self.name)
        shares = await run(partial(dense_shares, config, grove, carrier, dense))
        draft = _Draft(
            client=self.name,
            config=config,
            grove=grove,
            trees=trees,
            query=self._state.query if isinstance(self._state, protocol.Holding) and trees is Trees.RETRIEVAL else 0,
            commitments=self._session.commitments
            if self._session
            else grove.seeds.commitments(config.round_id(), self.name),
            public_digest=public_digest(part),
            dense_digest=dense_digest(shares, grove.seeds.msk[carrier]),
        )
        tree = await run(lambda: grove.digest)
        name = submission_digest(
            config.round_id(),
            self.setup.identity.public.digest(),
            draft.public_digest,
            tree,
            draft.commitments,
            draft.dense_digest,
        )
        self._step(protocol.Submit(name))
        self._last = (config, name)
        self._candidate = _Session(config.session, grove, draft.commitments)
        kind = session_protocol.Hinted if trees is Trees.SESSION else session_protocol.Brought
        self._standing = session_protocol.step(self._standing, kind(config.epoch, draft.public_digest), self.name)
        before = self.bytes_sent

        async def send(server: int) -> bytes:
            bulk = (part, shares) if server == carrier else (NOTHING,)
            receipt = (await self._ask(server, draft.message(server), bulk, Receipt)).message
            key = self.setup.servers[server].statement
            if not verify(
                key, receipt.signature, Domain.RECEIPT, config.round_id(), self.name.encode(), receipt.digest
            ):
                raise PeerViolationError(f"S{server}", "signed its receipt with another key than the pinned one")
            self._step(protocol.Receipted(server, receipt.digest))
            return bytes(receipt.signature)

        first, second = await self._both(send)
        return SubmissionReceipt(config.number, name, (first, second), self.bytes_sent - before)

    async def _trees_for(self, config: RoundConfig, sparse: Mapping[int, SparseUpdate]) -> tuple[Trees, Grove]:
        """Which trees a submission rides on: decided by the task and by what went before, never by its rows."""
        if self._session is not None:
            return Trees.SESSION, self._session.grove
        if isinstance(self._state, protocol.Holding) and self.task.updates == "retrieved" and self._grove is not None:
            return Trees.RETRIEVAL, self._grove
        return Trees.OWN, await self._plant_for(config, sparse)

    async def _plant_for(self, config: RoundConfig, sparse: Mapping[int, SparseUpdate]) -> Grove:
        """Trees of its own for a submission that rides on none."""
        rows = {index: rows for index, (rows, _) in sparse.items()}
        seeds = MasterSeeds.fresh(self.setup.randomness)
        return await self.setup.lane.run(partial(plant, config, rows, seeds, self.setup.randomness))

    async def _outcome_of(self, config: RoundConfig, server: int) -> RoundReport:
        finished = await self._ask(server, AskOutcome(config.round_id()), NOTHING, Finished)
        key = self.setup.servers[server].statement
        if not verify(key, finished.message.signature, Domain.OUTCOME, bytes(finished.bulk)):
            raise PeerViolationError(f"S{server}", "signed the outcome with another key than the pinned one")
        report = RoundReport.parse(finished.bulk, self.task.max_clients, f"S{server}")
        if report.round_id != config.round_id():
            raise PeerViolationError(f"S{server}", "answered with another round's outcome")
        return report

    # ---- asking

    async def _ask(self, server: int, message: Message, bulk: Any, expected: type[Message]) -> Received:
        """Send one request to one server and return its reply.

        Raises:
            RoundClosedError: the round is gone.
            RequestDeniedError: the server refused for another reason.
            PeerViolationError: the reply is of another kind than expected.
        """
        parts: tuple[Buffer, ...] = bulk if isinstance(bulk, tuple) else (bulk,)
        self.setup.watch(self.name, f"S{server}", message, sum(len(part) for part in parts))
        received = decode(await self._lines[server].request(*encode(message, *parts)), FromServer, f"S{server}")
        match received.message:
            case Refused(reason="round-closed", explanation=explanation):
                raise RoundClosedError(f"S{server}: {explanation}")
            case Refused(reason=reason, explanation=explanation):
                raise RequestDeniedError(server, reason, explanation)
            case reply if isinstance(reply, expected):
                return received
            case reply:
                raise PeerViolationError(f"S{server}", f"answered {type(message).__name__} with {type(reply).__name__}")

    async def _both(self, ask: Callable[[int], Awaitable[ResultT]]) -> tuple[ResultT, ResultT]:
        """Ask both servers at once; the first failure ends both, and a round that is gone is left."""
        results: dict[int, ResultT] = {}

        async def one(server: int) -> None:
            results[server] = await ask(server)

        try:
            async with trio.open_nursery() as nursery:
                for server in (0, 1):
                    nursery.start_soon(one, server)
        except BaseExceptionGroup as group:
            error = _first_reason(group)
            if isinstance(error, RoundClosedError):
                self._step(protocol.RoundGone())
            raise error from None
        return results[0], results[1]

    def _step(self, event: Any) -> None:
        self._state = protocol.step(self._state, event)

    def _reply_limit(self) -> int:
        """The longest reply that makes sense; exact sizes are checked where a reply is read."""
        widest = {index: 8 * block.width for index, block in self.task.sparse_blocks()}
        blocks = max(8 * block.weights for block in self.task.blocks)
        return bulk_overhead() + max(answer_bytes(self.task, widest), blocks, 3 * ENTRY_BYTES * self.task.max_clients)

    # ---- connecting

    async def _dial(self, server: int) -> Channel:
        shown = voucher(self.setup.token, server) if self.setup.token else NO_VOUCHER
        settings = HandshakeSettings(
            private_key=self.setup.identity.channel_secret,
            role=Role.CLIENT,
            kind=self.setup.kind,
            randomness=self.setup.randomness,
            payload=Credentials.of(self.setup.identity, self.task.digest(), shown).encode(),
        )
        return await self.setup.transport.dial(
            self.setup.addresses[server], self.setup.servers[server].channel, settings
        )

    async def _connect(self, server: int) -> Channel:
        """Connect to a server and check that it runs the same task."""
        channel = await self._dial(server)
        try:
            self.setup.watch(self.name, f"S{server}", AskTask(), 0)
            await channel.send(*encode(AskTask()))
            reply = decode(await channel.receive(self._reply_limit()), FromServer, f"S{server}").message
            if not isinstance(reply, TaskIs):
                raise PeerViolationError(f"S{server}", f"answered AskTask with {type(reply).__name__}")
            if reply.task != self.task.canonical():
                raise MisuseError(_task_difference(server, self.task, Task.parse(reply.task, f"S{server}")))
        except BaseException:
            await channel.aclose()
            raise
        return channel


def _same_ending(first: RoundReport, second: RoundReport) -> bool:
    """Whether two servers tell the same of a round; why it was aborted, each tells in its own words."""
    if first.aborted and second.aborted:
        return first == msgspec.structs.replace(second, aborted=first.aborted)
    return first == second


def _first_reason(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of a group that tells most: a refusal or violation, not a connection that broke because of it."""
    leaves = [_first_reason(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return min(leaves, key=lambda error: (isinstance(error, ChannelError), isinstance(error, trio.Cancelled)))


def _task_difference(server: int, ours: Task, theirs: Task) -> str:
    field_name, mine, other = first_difference(ours, theirs) or ("", "", "")
    return f"S{server} runs another task: {field_name} is {other!r} there and {mine!r} here; use the servers' task file"


def _places(rows: npt.NDArray[np.uint32], wanted: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    """Where each wanted row stands among the selected ones."""
    order = np.argsort(rows)
    return np.asarray(order[np.searchsorted(rows, wanted, sorter=order)])
