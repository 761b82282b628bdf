"""docs/wire-refusals.json: the pages name every rule that is broken there, and our own parties refuse every case."""

import json
import re
import runpy
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgpack
import msgspec
import pytest
import trio
from trio.testing import memory_stream_pair

from fsl_async import PeerViolationError, Task
from fsl_async.bounds import check_answer, terms_of
from fsl_async.client.upload import read_answers
from fsl_async.config import RoundConfig
from fsl_async.errors import FslError
from fsl_async.protocols import entry, epochs, ssa, toss
from fsl_async.protocols.psr import client as retrieving
from fsl_async.protocols.reconciliation import Agreed, compare
from fsl_async.protocols.ssa import client as submitting
from fsl_async.protocols.ssa.states import Terms
from fsl_async.ring import Ring
from fsl_async.union import unpack_union
from fsl_async.wire import messages
from fsl_async.wire.codec import Message, Received, decode
from fsl_async.wire.peer_lists import read_marks, unpack_digests, unpack_names
from fsl_async.wire.pieces import piece_digest, spans_of
from fsl_async.wire.public_part import Layout
from parties.client.downloads import Downloads
from parties.client.entering import Announcements
from parties.client.outcomes import check_receipt, learn_outcome, signed_statement
from parties.client.requests import _expect
from parties.client.session import NoSession, TreeSession
from parties.compute import InlineLane
from parties.identity.registry import Registry
from parties.server.admission import Enrolment, ListOnly
from parties.server.clients.deposits import Depositor, Wanted, examine
from parties.server.peer.forwarding import objection
from parties.server.replies import RequestRefusedError
from parties.server.round.aggregating import Aggregation
from parties.server.round.records import RoundRecords
from parties.server.round.shares import ArrivingShare
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Rounds
from parties.storage.blobs.memory import MemoryBlobs
from parties.storage.store import MemoryStore
from tests import ROOT
from tests.support.hand_made import Request, ask, connected, post, reply, retrieval, submission
from tests.support.shop import TASK, Shop
from tests.support.wire_page import CLIENT, SERVERS, VECTORS, of, pad
from tests.test_wire_page import DOCS, fields_of, read_message
from transport import Channel, ChannelClosedError, HandshakeSettings, Kind, Refusal, Role
from transport.errors import AuthenticationError, ConnectionLostError, RecordError
from transport.handshake import initiate, respond
from transport.noise import CipherState, HandshakeState, KeyPair
from transport.preamble import PREAMBLE_SIZE
from transport.records import Announced, Closed, NeedData, RecordReader, RecordWriter
from transport.wire import Wire

REFUSED, ENDS, CLOSED, ACCEPTED = "refuses", "`malformed`, ends", "closes", "may accept"


@cache
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate_wire_refusals.py"))


CASES = json.loads((DOCS / "wire-refusals.json").read_text(encoding="utf-8"))
PAGES = CLIENT + SERVERS + (ROOT / "docs" / "wire" / "task.md").read_text(encoding="utf-8")


def test_the_library_makes_these_cases():
    made = generator()["text"]()
    assert made == (DOCS / "wire-refusals.json").read_text(encoding="utf-8"), "`make docs` writes the file again"


def test_every_rule_of_the_pages_has_a_case_and_every_case_a_rule():
    tables = re.findall(r"^\| rule \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", PAGES, flags=re.MULTILINE)
    rows = [re.fullmatch(r"\| `([a-z-]+)` \| (.*) \| (.*) \|", line) for table in tables for line in table.splitlines()]
    named = [(row[1], row[3].split("; ")) for row in rows]
    assert len({rule for rule, _ in named}) == len(named), "a rule is named once"
    assert {rule: set(does) for rule, does in named} == {
        rule: {case["does"] for case in CASES if case["rule"] == rule} for rule in {case["rule"] for case in CASES}
    }


def test_who_compares_what_it_read_with_its_one_encoding_refuses_the_others():
    forms = ("head-order", "head-once", "head-shortest")
    others = [case["bytes"] for case in CASES if case["rule"] in forms]
    assert len(others) == 9
    right = [case["bytes"] for case in VECTORS["messages"].values()]
    for came in [*right, *others]:
        head, bulk = read_message(of(came))
        again = msgpack.packb({field: head.get(field, b"") for field in ["type", *fields_of(head["type"])]}) + bulk
        assert (again == of(came)) == (came in right)


def unless(error: type[Exception] | tuple[type[Exception], ...], does: str, read: Callable[[], Any]) -> str:
    """What a reader does with a case: `does`, where it raises that error."""
    try:
        read()
    except error:
        return does
    return ACCEPTED


# ---- connections


def settings(role: Role, name: str) -> HandshakeSettings:
    """Of a party of "noise" in the examples, whose ephemeral key is the one there."""
    private, ephemeral = (
        of(VECTORS["noise"][f"{name} private"]),
        VECTORS["noise"]["ephemeral private"][name == "server"],
    )
    return HandshakeSettings(
        private, role, Kind.LIVE, lambda size: of(ephemeral), of(VECTORS["verified"]["task digest"])
    )


DIALLER, LISTENER = settings(Role.CLIENT, "client"), settings(Role.SERVER_0, "server")
SERVER_KEY = KeyPair.from_private(LISTENER.private_key).public


async def admit(key: bytes, payload: bytes) -> bytes:
    return b"alice"


async def to_listener(*sent: bytes, awaited: tuple[int, ...] = ()) -> tuple[str, bytes]:
    """What a listener does, and the bytes that it answers, to a dialler that sends this and awaits so much between."""
    ours, theirs = memory_stream_pair()
    wire, did, answered = Wire(ours), [], b""

    async def listen() -> None:
        try:
            await respond(Wire(theirs), LISTENER, admit)
            did.append(ACCEPTED)
        except FslError:
            did.append(CLOSED)
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        for content, size in zip(sent, (*awaited, 0), strict=False):
            await wire.send(content)
            with suppress(ConnectionLostError):
                answered += await wire.receive_exactly(size)
        while data := await wire.receive_some(10_000, 1):
            answered += data
    return did[0], answered


async def to_dialler(*sent: bytes) -> str:
    """What a dialler does with a listener's preamble, second message and first record's plaintext."""
    ours, theirs = memory_stream_pair()
    wire = Wire(ours)

    async def listen() -> None:
        noise = HandshakeState(
            KeyPair.from_private(LISTENER.private_key), None, of(VECTORS["preamble"]["prologue"]), LISTENER.randomness
        )
        with suppress(FslError):
            await wire.receive_exactly(PREAMBLE_SIZE)
            await wire.send(sent[0])
            noise.read_message(await wire.receive_exactly(48))
            if len(sent) > 1:
                await wire.send(sent[1])
            if len(sent) > 2:
                assert noise.write_message(pad(of(VECTORS["verified"]["task digest"]), 1_024)) == sent[1]
                noise.read_message(await wire.receive_exactly(1_088))
                await wire.send(b"".join(RecordWriter(noise.split()[0]).message([sent[2]])))
        await ours.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        try:
            channel = await initiate(Wire(theirs), SERVER_KEY, DIALLER)
            await channel.aclose()
            return ACCEPTED
        except FslError:
            return REFUSED if len(sent) > 2 else CLOSED
        finally:
            nursery.cancel_scope.cancel()
    raise AssertionError


async def read_preamble_as_a_listener(case: dict[str, Any]) -> str:
    does, answered = await to_listener(of(case["bytes"]))
    known = of(case["bytes"])[:4] == of(VECTORS["preamble"]["client"])[:4]
    assert answered == (of(VECTORS["preamble"]["server"]) if known else b"")
    return does


async def read_preamble_as_a_dialler(case: dict[str, Any]) -> str:
    return await to_dialler(of(case["bytes"]))


async def read_handshake(case: dict[str, Any]) -> str:
    """Messages 1 and 3, as a listener reads them."""
    sent = [*map(of, case["messages"])]
    does, answered = await to_listener(of(VECTORS["preamble"]["client"]), *sent, awaited=(8, 1_072))
    if "payload" not in case:
        assert len(answered) == (8 if len(sent) == 1 else 8 + 1_072)
        return does
    assert does == CLOSED
    prologue = of(VECTORS["preamble"]["prologue"])
    noise = HandshakeState(KeyPair.from_private(DIALLER.private_key), SERVER_KEY, prologue, DIALLER.randomness)
    assert noise.write_message(b"") == sent[0]
    noise.read_message(answered[8 : 8 + 1_072])
    assert noise.write_message(of(case["payload"])) == sent[1]
    reader = RecordReader(noise.split()[1])
    reader.feed(answered[8 + 1_072 :])
    event = reader.next_event()
    assert isinstance(event, Announced)
    assert b"badly padded" in event.body
    return f"verdict {event.body[0]}"


async def read_second(case: dict[str, Any]) -> str:
    return await to_dialler(of(VECTORS["preamble"]["server"]), *map(of, case["messages"]))


async def read_first_record(case: dict[str, Any]) -> str:
    return await to_dialler(of(VECTORS["preamble"]["server"]), *map(of, case["messages"]), of(case["plaintext"]))


async def read_records(case: dict[str, Any]) -> str:
    key = of(VECTORS["records"]["key"])
    cipher, stream = CipherState(key), of(case.get("stream", ""))
    for plaintext in case.get("plaintexts", ()):
        ciphertext = cipher.encrypt(b"", of(plaintext["bytes"]) + bytes(plaintext["then zeros"]))
        stream += len(ciphertext).to_bytes(2, "big") + ciphertext
    reader = RecordReader(CipherState(key))
    reader.feed(stream)
    try:
        while not isinstance(event := reader.next_event(), Closed | NeedData):
            content, taken = event.body.ljust(event.total, b"\0"), len(event.body)
            while taken < event.total and (size := reader.take(content, taken)):
                taken += size
        reader.feed_end()
    except RecordError:
        return ENDS
    except (AuthenticationError, ConnectionLostError):
        return CLOSED
    return ACCEPTED


# ---- messages


def reader_of(union: Any) -> Callable[[dict[str, Any]], Awaitable[str]]:
    async def read(case: dict[str, Any]) -> str:
        came = of(case["bytes"]) + bytes(case.get("zeros", 0))
        return unless(PeerViolationError, ENDS, lambda: decode(came, union, "whoever sent it"))

    return read


async def read_credentials(case: dict[str, Any]) -> str:
    known, task = Registry(), of(VECTORS["verified"]["task digest"])
    known.add(generator()["identity"]("alice").public)
    answer = await Enrolment("S0", task, known, ListOnly(), MemoryStore()).admit(of(case["channel"]), of(case["bytes"]))
    return "verdict 2" if isinstance(answer, Refusal) else ACCEPTED


async def read_public_part(case: dict[str, Any]) -> str:
    shape = RoundConfig.parse(of(case["configuration"]), "S0").shape
    try:
        examine(shape, Layout.retrieval(shape), memoryview(of(case["bytes"])))
    except RequestRefusedError as refusal:
        return f"`{refusal.message.reason}`"
    return ACCEPTED


async def read_private_part(case: dict[str, Any]) -> str:
    made = VECTORS["bounds"]["exact"]
    config = RoundConfig.parse(of(made["configuration"]), "S0")
    head = decode(of(made["heads to S0 and S1"][made["carrier"]]), messages.FromClient, "alice").message
    head = msgspec.structs.replace(head, bound_digest=of(case["digest"]))
    bulk = of(made["submission"]["part"]) + of(made["submission"]["dense share"]) + of(case["bytes"])
    try:
        wanted = Wanted.of(config, "alice", head, of(case["seed"]))
        await Depositor(MemoryBlobs(), InlineLane(), lambda name, part: None).take(wanted, memoryview(bulk))
    except RequestRefusedError as refusal:
        return f"`{refusal.message.reason}`"
    return ACCEPTED


# ---- what a client reads


def asking(*replies: Received[Any]) -> Any:
    """In the place of a client's requests: S0 and S1 answer as told, whatever is asked."""

    async def ask(server: int, *words: Any) -> Received[Any]:
        return replies[server]

    async def both(ask_one: Callable[[int], Awaitable[Any]]) -> tuple[Any, Any]:
        return await ask_one(0), await ask_one(1)

    return SimpleNamespace(ask=ask, both=both)


def verified() -> RoundConfig:
    return RoundConfig.parse(of(VECTORS["verified"]["configuration"]), "S0")


def setup_of(config: RoundConfig) -> Any:
    servers = tuple(SimpleNamespace(keys=keys, statement=keys.statement) for keys in config.servers)
    return SimpleNamespace(task=config.task, servers=servers, identity=SimpleNamespace(name="alice"), lane=InlineLane())


async def refused_by(work: Awaitable[Any]) -> str:
    try:
        await work
    except FslError:
        return REFUSED
    return ACCEPTED


async def read_announcement(case: dict[str, Any]) -> str:
    known, begun, session = verified(), verified(), NoSession()
    if "session" in case:
        begun = RoundConfig.parse(of(case["session"]), "S0")
        session = TreeSession(epochs.Established(5, 5, b""), SimpleNamespace(config=begun), (b"", b""))
    opened = messages.Opened(of(case["config"]), case.get("strange", False), case.get("drawn", True))
    requests = asking(Received(opened, memoryview(b"")), Received(messages.Opened(b""), memoryview(b"")))
    last = RoundConfig.parse(of(case["known"]), "S0") if "known" in case else None
    announcements = Announcements(setup_of(begun if "session" in case else known), requests)
    return await refused_by(announcements.announced(0, case["after"], session, last))


async def read_both_announcements(case: dict[str, Any]) -> str:
    state: entry.Entry = entry.Outside(4)
    configs = [RoundConfig.parse(of(config), "S0") for config in case["configs"]]
    first, second = (entry.Announced(server, configs[server], case["drawn"][server]) for server in (0, 1))
    state = entry.step(state, first)
    return unless(PeerViolationError, REFUSED, lambda: entry.step(state, second))


async def read_both_answers(case: dict[str, Any]) -> str:
    trees = generator()["MADE"]["_planted"](verified())
    first, second = (memoryview(of(answer)) for answer in case["answers"])
    return unless(FslError, REFUSED, lambda: read_answers(verified(), trees, (first, second)))


async def read_reply(case: dict[str, Any]) -> str:
    asked = messages.Retrieve(
        round_id=bytes(32), query=1, seed=bytes(16), commitments=(bytes(32), bytes(32)), public_digest=bytes(32)
    )

    def read() -> None:
        received = decode(of(case["bytes"]), messages.FromServer, "S0")
        answer = _expect(0, asked, received, messages.Answer).message
        state = retrieving.step(retrieving.Away(), retrieving.Entered(retrieving.ClientTerms(5, 8)))
        retrieving.step(
            retrieving.step(state, retrieving.Ask()), retrieving.Answered(0, retrieving.query_named(answer.query))
        )

    return unless(PeerViolationError, REFUSED, read)


async def read_block(case: dict[str, Any]) -> str:
    sent = Received(messages.Block(round_id=bytes(32), block="head"), memoryview(of(case["bytes"])))
    downloads = Downloads(setup_of(verified()), asking(sent, sent), SimpleNamespace())
    return await refused_by(downloads.whole(verified(), "head"))


async def read_receipt(case: dict[str, Any]) -> str:
    receipt = decode(of(case["bytes"]), messages.FromServer, "S0").message

    def read() -> None:
        check_receipt(setup_of(verified()), 0, receipt)
        submitting.step(submitting.Drafted(of(case["submission"])), submitting.Receipted(0, receipt.digest))

    return unless(PeerViolationError, REFUSED, read)


def finished(case: dict[str, Any], statement: str, signature: str) -> Received[messages.Finished]:
    told = messages.Finished(round_id=of(case["round_id"]), signature=of(signature))
    return Received(told, memoryview(of(statement)))


async def read_statement(case: dict[str, Any]) -> str:
    requests = asking(finished(case, case["bytes"], case["signature"]))
    return await refused_by(signed_statement(setup_of(verified()), requests, of(case["round_id"]), 0))


async def read_both_statements(case: dict[str, Any]) -> str:
    told = [finished(case, *each) for each in zip(case["statements"], case["signatures"], strict=True)]
    last = SimpleNamespace(config=verified(), digest=of(case["submission"]))
    return await refused_by(learn_outcome(setup_of(verified()), asking(*told), last))


async def read_union(case: dict[str, Any]) -> str:
    return unless(PeerViolationError, REFUSED, lambda: unpack_union(of(case["bytes"]), 40, "S0"))


async def read_task(case: dict[str, Any]) -> str:
    return unless(PeerViolationError, REFUSED, lambda: Task.parse(of(case["bytes"]), "S0"))


# ---- what a server reads of the other one


def reader_of_list(unpack: Callable[[bytes, int, str], Any]) -> Callable[[dict[str, Any]], Awaitable[str]]:
    async def read(case: dict[str, Any]) -> str:
        return unless(PeerViolationError, REFUSED, lambda: unpack(of(case["bytes"]), 10, "S1"))

    return read


async def read_forward(case: dict[str, Any]) -> str:
    message = messages.Forward(
        round_id=verified().round_id(), client=case["client"], purpose=case["purpose"], query=case["query"]
    )
    drawn = SimpleNamespace(is_drawn=lambda client: case["drawn"] is None or client in case["drawn"])
    run = SimpleNamespace(config=verified(), server=1, start=drawn)
    return REFUSED if objection(run, message, case["size"]) else ACCEPTED


async def read_known(case: dict[str, Any]) -> str:
    ours, theirs = (decode(of(case[each]), messages.FromPeer, "S1").message for each in ("ours", "theirs"))
    return ACCEPTED if isinstance(compare(ours, theirs), Agreed) else "`conflict`, ends"


async def read_toss(case: dict[str, Any]) -> str:
    made = VECTORS["toss"]
    model, halves, nonces = generator()["fixed"]("model"), [*map(of, made["halves"])], [*map(of, made["nonces"])]
    commitment = of(case.get("commitment", made["commitments"][1]))
    if "number" in case:
        fake = SimpleNamespace(number=5, _setup=SimpleNamespace(peer_name="S1", name="S0"))
        said = messages.TossCommitment(number=case["number"], commitment=commitment, model=model)
        return await refused_by(RoundSequence.take_toss(fake, said))
    state: toss.Toss = toss.Committing(toss.Half(0, 5, model, halves[0], nonces[0]))
    if case["reveal"] or "commitment" in case:
        state = toss.step(state, toss.PeerTossCommitment(of(made["commitments"][1]), model), "S1")
    event: Any = toss.PeerTossCommitment(commitment, of(case["model"]) if "model" in case else model)
    if case["reveal"]:
        event = toss.PeerTossReveal(of(case["seed"]), nonces[1])
    return unless(PeerViolationError, REFUSED, lambda: toss.step(state, event, "S1"))


NAMED = {"alice": bytes(32), "bob": bytes(32)}
STATES = {
    "Open": ssa.Open(),
    "Rostered": ssa.Rostered({}, NAMED, {}, {"roster": ssa.PeerRoster(NAMED).content()}),
    "Proved": ssa.Proved({}, NAMED, {}, NAMED, {}),
    "Revealed": ssa.Revealed(NAMED, {}, bytes(32), bytes(32), bytes(32), {}),
    "Concluded": ssa.Concluded(bytes(32), bytes(32), bytes(32), {}),
}
EVENTS = {
    "PeerRoster": ssa.PeerRoster({"alice": bytes(32)}),
    "PeerProofs": ssa.PeerProofs({"alice": bytes(32)}),
    "PeerShare": ssa.PeerShare(bytes(32), bytes(32)),
    "PeerConclusion": ssa.PeerConclusion(b"\1" * 32),
    "PeerAbort": ssa.PeerAbort(""),
}
TERMS = Terms(round_id=bytes(32), server=0, minimum=2, verified=True, contributors=True)


async def read_in_state(case: dict[str, Any]) -> str:
    state, event = STATES[case["state"]], EVENTS[case["event"]]
    return unless(PeerViolationError, REFUSED, lambda: ssa.step(state, event, TERMS))


async def read_of_round(case: dict[str, Any]) -> str:
    """In a round of submissions with a sample that counts contributors."""
    round_id = bytes(32)
    message, bulk, state = {
        "share": (messages.Share(round_id, bytes(32)), b"", STATES["Proved"]),
        "ask-pieces": (messages.AskPieces(round_id, 0), b"", STATES["Proved"]),
        "ask-pieces twice": (messages.AskPieces(round_id, 0), b"", STATES["Revealed"]),
        "row-counts": (messages.RowCounts(round_id), b"", STATES["Proved"]),
        "roster": (messages.RosterList(round_id), msgspec.msgpack.encode([["alice", bytes(32)]]), ssa.Open()),
        "closing": (messages.Closing(round_id), b"", ssa.Open()),
    }[case["message"]]

    async def sent_before(share: bytes, first: int) -> bool:
        return False

    async def unpacked(unpack: Callable[[], Any], bulk: memoryview) -> Any:
        return unpack()

    start = SimpleNamespace(config=verified(), is_drawn=lambda client: False)
    round_ = SimpleNamespace(terms=TERMS, state=state, _start=start, _unpacked=unpacked)
    round_._outbox = SimpleNamespace(send_pieces=sent_before)
    round_._send_pieces = lambda first: Aggregation._send_pieces(round_, first)
    round_._read_counts = lambda bulk: Aggregation._read_counts(round_, bulk)
    return await refused_by(Aggregation.read(round_, message, memoryview(bulk)))


async def arriving(count: int) -> tuple[ArrivingShare, list[bytes]]:
    """A share of the round "verified" of which the list has come, and its pieces."""

    async def held(pieces: tuple[bytes, ...]) -> int:
        return 0

    shape = verified().shape
    pieces = [bytes(span.size(shape)) for span in spans_of(shape)]
    share = ArrivingShare("S1", shape, SimpleNamespace(held=held), InlineLane(), [].append)
    if count:
        await share.begin(share.listed(bytes(32), b"".join(map(piece_digest, pieces)), spans_of(shape)))
    return share, pieces


async def read_list_of_share(case: dict[str, Any]) -> str:
    share, _ = await arriving(0)
    return unless(
        PeerViolationError, REFUSED, lambda: share.listed(bytes(32), of(case["bytes"]), spans_of(verified().shape))
    )


async def read_piece(case: dict[str, Any]) -> str:
    share, pieces = await arriving(2)
    piece = pieces[0][: len(pieces[0]) + case.get("size", 0)]
    return await refused_by(share.take(case["place"], memoryview(piece[:-1] + b"\1")))


async def read_round_id(case: dict[str, Any]) -> str:
    fake = SimpleNamespace(number=5, _rounds=SimpleNamespace(is_past=lambda round_id: False))
    fake._setup = SimpleNamespace(peer_name="S1")
    return unless(PeerViolationError, REFUSED, lambda: RoundSequence.check_known(fake, of(case["round_id"])))


# ---- requests


class Asker:
    """Sends one case's request, with a client of its own, in the open round of a shop."""

    def __init__(self, shop: Shop, case: dict[str, Any], name: str) -> None:
        self.case = case
        self.name = name
        self.client = shop.client(name)
        self.config = shop.servers[0].rounds.running.config
        self.server = self.config.carrier(name) ^ (case.get("to") == "the other server")

    def made(self, like: str) -> Request:
        """A sound request, to both servers."""
        round_id, other = self.config.round_id(), bytes(32)
        match like:
            case "retrieve":
                return retrieval(self.config, self.name)
            case "submit" if self.config.protocol == "ssa":
                return submission(self.config, self.name)
            case "submit":
                message: Message = messages.Submit(
                    round_id=round_id, query=0, seed=other[:16], commitments=(other, other), public_digest=other
                )
            case "download":
                message = messages.Download(round_id=round_id, block="head")
            case "recall":
                message = messages.Recall(round_id, other)
            case "hint":
                message = messages.Hint(round_id, other, other)
            case "ask-outcome":
                message = messages.AskOutcome(round_id)
        return Request((message, message), (b"", b""))

    def changed(self, request: Request) -> Request:
        """The same, with what is wrong with it."""
        found, bulk = [], []
        for message, content in zip(request.messages, request.bulk, strict=True):
            for field, value in self.case.get("head", {}).items():
                is_bytes = isinstance(getattr(message, field), bytes)
                message = msgspec.structs.replace(message, **{field: of(value) if is_bytes else value})
            if field := self.case.get("flipped"):
                value = getattr(message, field)
                message = msgspec.structs.replace(message, **{field: bytes([value[0] ^ 1]) + value[1:]})
            found.append(message)
            bulk.append(BULK[self.case.get("bulk", "as it is")](content))
        if "to" in self.case:
            bulk = bulk[::-1]
        return Request((found[0], found[1]), (bulk[0], bulk[1]))

    async def does(self) -> str:
        """What the server does with it."""
        if "role" in self.case:
            async with connected(self.client, 0, role=Role(self.case["role"])) as channel:
                return f"`{(await reply(channel)).reason}`{', ends' if await has_ended(channel) else ''}"
        request = self.made(self.case["like"])
        async with connected(self.client, self.server) as here, connected(self.client, 1 - self.server) as there:
            both = (there, here) if self.server else (here, there)
            if before := self.case.get("after"):
                earlier = request if before == "the same" else self.made(before)
                assert not [each for each in await asked(both, earlier) if isinstance(each, messages.Refused)]
            if self.case["does"] == ACCEPTED:
                for _ in range(2 if self.case.get("ahead") else 1):
                    await post(here, request, self.server)
                replies = [*await asked(both, request), *[await reply(here) for _ in range("ahead" in self.case)]]
                return "refused" if any(isinstance(each, messages.Refused) for each in replies) else ACCEPTED
            for _ in range(self.case.get("times", 1)):
                told = await ask(here, self.changed(request), self.server)
                assert isinstance(told, messages.Refused)
            return f"`{told.reason}`{', ends' if await has_ended(here) else ''}"


BULK: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda bulk: bulk,
    "none": lambda bulk: b"",
    "one byte more": lambda bulk: bulk and bulk + b"\0",
    "one byte less": lambda bulk: bulk[:-1],
    "5,000 bytes more": lambda bulk: bulk + bytes(5_000),
    "last bit flipped": lambda bulk: bulk and bulk[:-1] + bytes([bulk[-1] ^ 128]),
}


async def asked(channels: tuple[Channel, Channel], request: Request) -> list[Message]:
    """Both servers' replies to a request, which both have before either is waited for."""
    for server, channel in enumerate(channels):
        await post(channel, request, server)
    return [await reply(channel) for channel in channels]


async def has_ended(channel: Channel) -> bool:
    """Whether the server has said CLOSE."""
    with trio.move_on_after(1):
        try:
            await reply(channel)
        except ChannelClosedError:
            return True
    return False


REQUESTS = [case for case in CASES if case["reads"] == "a request"]


@pytest.mark.parametrize("task", [{}, {"updates": "any"}, {"protocol": "psr"}], ids=str)
async def test_a_request_that_breaks_a_rule_is_refused_as_the_page_says(nursery, autojump_clock, task):
    plain = {"ring": Ring(64), "min_clients": None} if "protocol" in task else {}
    shop = Shop.in_memory(nursery, task=msgspec.structs.replace(TASK, max_clients=100, **task, **plain))
    await shop.open()
    for server in shop.servers:
        await server.next_round(0)
    for number, case in enumerate(case for case in REQUESTS if case.get("task", {}) == task):
        assert await Asker(shop, case, f"client_{number}").does() == case["does"], (case["rule"], case["case"])
    assert shop.failures == []


async def read_counts(case: dict[str, Any]) -> str:
    fake = SimpleNamespace(_config=verified())
    return unless(PeerViolationError, REFUSED, lambda: RoundRecords.counts_name(fake, of(case["bytes"]), "S1"))


async def read_answer_to_a_bound(case: dict[str, Any]) -> str:
    terms = terms_of(RoundConfig.parse(of(VECTORS["bounds"]["exact"]["configuration"]), "S0").shape)
    return unless(PeerViolationError, REFUSED, lambda: check_answer(terms, of(case["bytes"]), "S1"))


async def read_for_others(case: dict[str, Any]) -> str:
    run = SimpleNamespace(round_id=bytes(32), start=SimpleNamespace(is_drawn=lambda client: False))
    try:
        Rounds.open_round(SimpleNamespace(running=run), bytes(32), "alice")
    except RequestRefusedError as refusal:
        return f"`{refusal.message.reason}`"
    return ACCEPTED


READERS: dict[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
    "preamble, as a listener": read_preamble_as_a_listener,
    "preamble, as a dialler": read_preamble_as_a_dialler,
    "message 1": read_handshake,
    "message 2": read_second,
    "message 3": read_handshake,
    "the first record": read_first_record,
    "records": read_records,
    "a client's message": reader_of(messages.FromClient),
    "a server's message": reader_of(messages.FromServer),
    "a message between servers": reader_of(messages.FromPeer),
    "credentials": read_credentials,
    "a public part": read_public_part,
    "a private part": read_private_part,
    "an announcement": read_announcement,
    "both announcements": read_both_announcements,
    "answers": read_both_answers,
    "a reply to query 1": read_reply,
    "a block": read_block,
    "a receipt": read_receipt,
    "a statement": read_statement,
    "both statements": read_both_statements,
    "a union of 40 rows": read_union,
    "a task": read_task,
    "packed names": reader_of_list(unpack_names),
    "a packed list": reader_of_list(unpack_digests),
    "marks": reader_of_list(read_marks),
    "forward": read_forward,
    "known": read_known,
    "toss": read_toss,
    "a round's state": read_in_state,
    "a round's message": read_of_round,
    "a share's list": read_list_of_share,
    "a piece": read_piece,
    "a round's name": read_round_id,
    "counts of contributors": read_counts,
    "a bound's answer": read_answer_to_a_bound,
    "a request to a round for others": read_for_others,
}


MADE, BOTH = VECTORS["verified"], VECTORS["statements"]
SOUND: dict[str, dict[str, Any]] = {
    "credentials": {"bytes": BOTH["credentials"], "channel": BOTH["channel key"]},
    "an announcement": {"config": MADE["configuration"], "after": 4},
    "both announcements": {"configs": [MADE["configuration"]] * 2, "drawn": [True, True]},
    "answers": {"answers": MADE["retrieval"]["answers"]},
    "a block": {"bytes": MADE["model"]["head"]},
    "a statement": {
        "round_id": BOTH["round id"],
        "bytes": BOTH["statement"],
        "signature": BOTH["statement's signature"],
    },
    "a public part": {
        "configuration": VECTORS["semi-honest"]["configuration"],
        "bytes": VECTORS["semi-honest"]["retrieval"]["part"],
    },
    "a private part": {
        "bytes": VECTORS["bounds"]["exact"]["submission"]["private part"],
        "digest": VECTORS["bounds"]["exact"]["submission"]["bound digest"],
        "seed": VECTORS["bounds"]["exact"]["master seeds"][VECTORS["bounds"]["exact"]["carrier"]],
    },
    "toss": {"reveal": False},
}
"""Of some kinds what breaks no rule; what is right of the others is in tests/test_wire_page.py, or a round's."""


async def test_what_breaks_no_rule_is_taken():
    for reads, case in SOUND.items():
        assert await READERS[reads](case) == ACCEPTED, reads


@pytest.mark.parametrize("reads", READERS)
async def test_what_breaks_a_rule_is_refused_as_the_page_says(reads):
    for case in [case for case in CASES if case["reads"] == reads]:
        assert await READERS[reads](case) == case["does"], (case["rule"], case["case"])
