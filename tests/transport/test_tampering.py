"""One small conversation, cut or altered at every single byte: nothing wrong is ever accepted."""

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from fsl_async.errors import ChannelError
from tests.support.cases import MANY
from tests.transport.endpoints import NO_FAULT, Fault, TappedNetwork, key_pair, settings_of
from transport import ChannelClosedError, HandshakeError, Role
from transport.testing.case import ALICE, LARGE, SERVER, STRANGER, Lab

QUESTION, ANSWER = b"the question", b"the answer"
HANDSHAKE_SENT = 8 + 48 + 1_088
SAME_SERVER, SAME_CLIENT = key_pair("server"), key_pair("alice")
"""The same in every run, so that what a fault has done can be seen again."""


@dataclass
class Account:
    """What the two ends of a conversation accepted."""

    admitted: bool = False
    question: list[bytes] = field(default_factory=list)
    answer: list[bytes] = field(default_factory=list)
    closed_in_order: list[str] = field(default_factory=list)
    sent: bytes = b""
    received: bytes = b""


def converse(fault: Fault = NO_FAULT) -> Account:
    """Runs the conversation under a virtual clock and gives up on it after a virtual minute."""
    account = Account()
    network = TappedNetwork(fault)

    async def handler(channel):
        account.admitted = True
        account.question.append(bytes(await channel.receive(LARGE)))
        await channel.send(ANSWER)
        await end_of(channel, "server")

    async def end_of(channel, side):
        try:
            await channel.announced()
        except ChannelClosedError:
            account.closed_in_order.append(side)

    async def client(lab):
        settings = settings_of(SAME_CLIENT, payload=b"alice's own name")
        try:
            async with await lab.transport.dial("s0", SAME_SERVER.public, settings) as channel:
                await channel.send(QUESTION)
                account.answer.append(bytes(await channel.receive(LARGE)))
        except ChannelError:
            pass

    async def main():
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                lab = Lab(network, "s0", nursery)
                await lab.serve(handler, settings=settings_of(SAME_SERVER, Role.SERVER_0, payload=b"this is S0"))
                await client(lab)
                await trio.sleep(60)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    account.sent, account.received = bytes(network.taps[0].sent), bytes(network.taps[0].received)
    return account


HONEST = converse()
EVERY_BYTE = [(True, place) for place in range(len(HONEST.sent))] + [
    (False, place) for place in range(len(HONEST.received))
]
TRIED = EVERY_BYTE if MANY > 1 else EVERY_BYTE[::3]


def test_the_honest_conversation():
    assert HONEST.question == [QUESTION]
    assert HONEST.answer == [ANSWER]
    assert HONEST.closed_in_order == ["server"]
    assert len(HONEST.sent) < 1_500
    assert len(HONEST.received) < 2_500
    assert converse() == HONEST, "the same randomness gives the same bytes"


def check(account: Account, fault: Fault) -> None:
    """Only true messages were accepted, and none that lay beyond the fault."""
    place = f"{'sent' if fault.outgoing else 'received'} byte {fault.place}, bit {fault.bit}"
    assert account.question in ([], [QUESTION]), place
    assert account.answer in ([], [ANSWER]), place
    if fault.outgoing:
        assert account.closed_in_order == [], place
        assert account.admitted == (fault.place >= HANDSHAKE_SENT), place
        closing = len(HONEST.sent) - 19
        assert account.question == ([QUESTION] if fault.place >= closing else []), place
    else:
        assert account.answer == [], place


@pytest.mark.slow
def test_a_cut_at_every_third_byte_or_at_every_one():
    for outgoing, place in TRIED:
        fault = Fault(outgoing, place)
        closing = len(HONEST.received) - 19
        account = converse(fault)
        if not outgoing and place >= closing:
            continue  # the client has left already when the server's CLOSE would come
        check(account, fault)


@pytest.mark.slow
def test_a_flipped_bit_in_every_third_byte_or_in_every_one():
    for outgoing, place in TRIED:
        fault = Fault(outgoing, place, bit=1 << place % 8)
        check(converse(fault), fault)


def test_every_bit_of_both_preambles_is_bound():
    """One flip turns a client into a server, or S0 into S1: only the prologue notices."""
    for outgoing in (True, False):
        for place in range(8):
            for bit in range(8):
                fault = Fault(outgoing, place, 1 << bit)
                check(converse(fault), fault)


def record(pair, payload):
    """The bytes of a dial, sent and received."""
    network = TappedNetwork()

    async def main():
        async with trio.open_nursery() as nursery:
            lab = Lab(network, "s0", nursery)
            await lab.serve()
            with suppress(HandshakeError):
                await lab.dial(pair, payload=payload)
            nursery.cancel_scope.cancel()

    trio.run(main)
    return bytes(network.taps[0].sent), bytes(network.taps[0].received)


def test_nothing_shows_who_the_client_is():
    sent, received = record(ALICE, b"alice's own name")
    for wire in (sent, received):
        for secret in (ALICE.public, ALICE.private, SERVER.public, b"alice", b"name", b"this is S0", b"welcome"):
            assert secret not in wire
            assert secret[:6] not in wire or len(secret) < 6


def test_admitted_and_refused_clients_look_alike():
    shapes = {
        tuple(len(wire) for wire in record(pair, payload))
        for pair, payload in ((ALICE, b""), (ALICE, b"a much longer name than that" * 30), (STRANGER, b"x"))
    }
    assert len(shapes) == 1


def test_a_stranger_learns_the_same_nothing_from_any_failure():
    """Whatever is wrong with the first message, the server closes after its own preamble, with the same bytes."""
    first = HONEST.sent[: 8 + 48]
    answers = set()
    for altered in (first[:8] + bytes(48), first[:-1] + b"x", first[:8] + b"\x01" + bytes(47)):
        answers.add(answer_to(altered))
    assert answers == {HONEST.received[:8]}


def answer_to(opening: bytes) -> bytes:
    async def main():
        async with trio.open_nursery() as nursery:
            lab = Lab(TappedNetwork(), "s0", nursery)
            await lab.serve()
            stream = await lab.transport.connect("s0")
            await stream.send_all(opening)
            answer = b""
            while more := await stream.receive_some():
                answer += more
            nursery.cancel_scope.cancel()
            return answer

    return trio.run(main)


def test_a_recorded_client_cannot_be_replayed():
    """The server's fresh ephemeral key makes yesterday's third message worthless."""
    network = TappedNetwork()
    admitted = []

    async def main():
        async with trio.open_nursery() as nursery:
            lab = Lab(network, "s0", nursery)
            await lab.serve(lambda channel: remember(channel))
            await lab.dial()
            stream = await network.connect("s0")
            await stream.send_all(bytes(network.taps[0].sent))
            while await stream.receive_some():
                pass
            nursery.cancel_scope.cancel()

    async def remember(channel):
        admitted.append(channel.peer_key)
        await trio.sleep_forever()

    trio.run(main)
    assert admitted == [ALICE.public]
