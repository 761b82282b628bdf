"""Conversations between two parties: who is let in, what ends a conversation, and what ends the party."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from fsl_async import Message, MessageSet, MisuseError, PeerViolationError
from fsl_async.errors import StorageError
from parties import Host, MemoryStore, MessageChannel, Peer
from parties.peers import dial_peer, serve_peers
from parties.testing import SeededSource
from parties.watch import Note
from transport import KeyPair, MemoryNetwork, RefusedError, Transport
from transport.errors import ConnectionLostError, UnreachableError


class Word(Message, frozen=True, tag="word"):
    text: str


WORDS = MessageSet("words 1", Word, most_bulk=5)
ANN, BOB, EVE = (KeyPair.generate(SeededSource(1, name)) for name in ("ann", "bob", "eve"))
TO_ANN, TO_BOB = Peer("ann", ANN.public, "ann"), Peer("bob", BOB.public)
PATIENCE = 60.0


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(steady=True)


def host(name: str, network: Transport, watch: Callable[[Note], None] = lambda note: None) -> Host:
    made = Host.deployed(name, network, MemoryStore(), lambda told: None)
    return Host(**{**vars(made), "watch": watch})


async def echo(channel: MessageChannel) -> None:
    while True:
        message, bulk = await channel.receive()
        await channel.send(message, bytes(bulk))


async def silent(channel: MessageChannel) -> None:
    await trio.sleep_forever()


async def serve(
    network: Transport, converse: Callable[[MessageChannel], Awaitable[None]], task_status=trio.TASK_STATUS_IGNORED
) -> None:
    await serve_peers(host("ann", network), ANN, "ann", [TO_BOB], WORDS, converse, task_status=task_status)


# ---- conversations


async def test_messages_go_there_and_back_and_are_seen_by_who_watches(network) -> None:
    heard, seen = [], []

    async def ask(channel: MessageChannel) -> None:
        await channel.send(Word("hello"), b"bu", b"lk")
        heard.append((channel.peer, *(await channel.receive())))

    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, echo)
        await dial_peer(host("bob", network, seen.append), BOB, TO_ANN, WORDS, ask)
        nursery.cancel_scope.cancel()
    assert heard == [("ann", Word("hello"), b"bulk")]
    assert seen == [Note("bob", "ann", Word("hello"), 4)]


async def test_a_peer_that_does_not_listen_yet_is_dialled_until_it_does(network, autojump_clock) -> None:
    met = trio.Event()

    async def meet(channel: MessageChannel) -> None:
        met.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial_peer, host("bob", network), BOB, TO_ANN, WORDS, meet)
        await trio.sleep(10)
        assert not met.is_set()
        await nursery.start(serve, network, silent)
        await met.wait()
        nursery.cancel_scope.cancel()


async def test_a_conversation_that_is_lost_is_begun_anew(network, autojump_clock) -> None:
    conversations = 0

    async def lose_twice(channel: MessageChannel) -> None:
        nonlocal conversations
        conversations += 1
        if conversations < 3:
            async with trio.open_nursery() as nursery:  # in a group of its own, as it comes out of a nursery
                nursery.start_soon(lose)

    async def lose() -> None:
        raise ConnectionLostError("the cable")

    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, silent)
        await dial_peer(host("bob", network), BOB, TO_ANN, WORDS, lose_twice)
        nursery.cancel_scope.cancel()
    assert conversations == 3


async def test_a_newer_conversation_with_a_peer_ends_the_older(network, autojump_clock) -> None:
    running: list[int] = []
    begun = 0

    async def count(channel: MessageChannel) -> None:
        nonlocal begun
        begun += 1
        running.append(number := begun)
        try:
            await trio.sleep_forever()
        finally:
            running.remove(number)

    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, count)
        for _ in range(2):
            nursery.start_soon(dial_peer, host("bob", network), BOB, TO_ANN, WORDS, silent)
            await trio.sleep(5)
        assert running == [2]
        nursery.cancel_scope.cancel()


# ---- who is let in


@pytest.mark.parametrize(
    ("keys", "messages", "error", "reason"),
    [
        (EVE, WORDS, RefusedError, "ann does not know this key"),
        (BOB, MessageSet("words 2", Word), PeerViolationError, "ann: speaks b'words 1', not 'words 2'"),
    ],
    ids=["a stranger", "another version"],
)
async def test_who_is_not_let_in_is_told_why_and_gives_up(keys, messages, error, reason, network) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, silent)
        with pytest.raises(error, match=reason):
            await dial_peer(host("bob", network), keys, TO_ANN, messages, silent)
        nursery.cancel_scope.cancel()


async def test_two_peers_have_two_keys_and_two_names(network) -> None:
    for other, same in ((Peer("ben", BOB.public), "key"), (Peer(TO_BOB.name, EVE.public), "name")):
        with pytest.raises(MisuseError, match=f"two peers have the same {same}"):
            await serve_peers(host("ann", network), ANN, "ann", [TO_BOB, other], WORDS, silent)


async def test_an_address_that_is_taken_is_named(network) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, silent)
        with pytest.raises(UnreachableError, match="there is already a listener at 'ann'"):
            await serve(network, silent)
        nursery.cancel_scope.cancel()


# ---- what ends a party


class Foreign(Message, frozen=True, tag="foreign"):
    pass


async def speak_otherwise(channel: MessageChannel) -> None:
    channel._messages = MessageSet("words 1", Foreign | Word, most_bulk=50)
    await channel.send(Foreign())
    await trio.sleep_forever()


async def carry_too_much(channel: MessageChannel) -> None:
    channel._messages = MessageSet("words 1", Word, most_bulk=50)
    await channel.send(Word("hello"), b"123456")
    await trio.sleep_forever()


@pytest.mark.parametrize(
    ("converse", "reason"),
    [
        (speak_otherwise, "bob: sent a message that cannot be read"),
        (carry_too_much, "bob: sent 6 bytes of bulk; 5 are"),
    ],
)
async def test_a_violation_ends_who_listens(converse, reason, network, autojump_clock) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(PeerViolationError, match=reason)), trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, network, echo)
            nursery.start_soon(dial_peer, host("bob", network), BOB, TO_ANN, WORDS, converse)


async def test_an_own_error_ends_who_dials_and_who_listens(network, autojump_clock) -> None:
    async def fail(channel: MessageChannel) -> None:
        raise StorageError("the disk is gone")

    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, silent)
        with pytest.raises(StorageError, match="the disk is gone"):
            await dial_peer(host("bob", network), BOB, TO_ANN, WORDS, fail)
        nursery.cancel_scope.cancel()
    with pytest.RaisesGroup(pytest.RaisesExc(StorageError, match="the disk is gone")), trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, network, fail)
            nursery.start_soon(dial_peer, host("bob", network), BOB, TO_ANN, WORDS, silent)


async def test_what_the_union_has_not_is_not_sent(network) -> None:
    async def misuse(channel: MessageChannel) -> None:
        await channel.send(Foreign())

    async with trio.open_nursery() as nursery:
        await nursery.start(serve, network, silent)
        with pytest.raises(MisuseError, match="Foreign is no message of 'words 1'"):
            await dial_peer(host("bob", network), BOB, TO_ANN, WORDS, misuse)
        nursery.cancel_scope.cancel()
