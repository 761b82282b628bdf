"""A door and a core in the hands of a test: who is let in, what is put, what the core hears, and what ends when."""

import pytest
import trio

from fsl_async.config import RoundConfig, ServerKeys, describe_model
from fsl_async.error_groups import sole_error
from fsl_async.errors import ChannelError, MisuseError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.door_messages import (
    Abused,
    AdmitKey,
    Answered,
    Ask,
    Begin,
    Deposited,
    Dismissed,
    Granted,
    Kept,
    Leave,
    Leaving,
    NotYet,
    Offer,
    RoundSettled,
    Taken,
    TurnedAway,
    Wanted,
    Withdraw,
)
from fsl_async.wire.forward_messages import FromKeeper, OfferPart, PartFollows, PartTaken, PartWanted, forwarding
from fsl_async.wire.messages import Answer, AskOutcome, AskTask, Enter, Opened, Recall, Receipt, Refused, TaskIs
from fsl_async.wire.public_part import Layout, Trees
from parties.server.door.core_link import GATHERING
from parties.server.limits import ConversationLimits
from parties.storage.blobs.memory import MemoryBlobs
from parties.storage.store import StoreLostError
from tests.support.hand_core import HandCore, dial, open_door, pair, said
from tests.support.hand_made import ask, name_of, reply, retrieval, submission
from tests.support.machine_scenes import key
from tests.support.shop import TASK, model
from transport import BusyError, Refusal, RefusedError

CONFIG = RoundConfig(
    task=TASK,
    number=1,
    session=1,
    hash_seed=key(1),
    toss=(key(2), key(3)),
    servers=(ServerKeys(key(4), key(5)), ServerKeys(key(6), key(7))),
    model=describe_model(TASK, model()),
)
CARRIED = next(name for name in ("anna", "ben", "carl", "dora") if CONFIG.carrier(name) == 0)


@pytest.fixture
async def core(nursery):
    core = HandCore(nursery)
    await core.open()
    return core


@pytest.fixture
async def door(core):
    door = await open_door(core, TASK)
    await core.open_round(CONFIG)
    await trio.sleep(0.1)
    return door


async def asked(channel, message, bulk=b""):
    await channel.send(*encode(message, bulk))
    return await reply(channel)


# ---- what comes, and what the core hears of it


async def test_a_submission_is_put_before_the_core_hears_that_it_is(core, door, autojump_clock):
    request = submission(CONFIG, CARRIED)
    seen = []

    async def deposited(message):
        seen.extend(await door.setup.blobs.names(""))
        return Answered(message.call), said(Receipt(round_id=CONFIG.round_id(), digest=b"d", signature=b"s"))

    core.answers[Deposited] = deposited
    async with await dial(core, CARRIED) as channel:
        receipt = await ask(channel, request, 0)
    assert receipt == Receipt(round_id=CONFIG.round_id(), digest=b"d", signature=b"s")
    digest = request.messages[0].public_digest
    folder = f"round-00000001/{{}}/{CARRIED}"
    assert seen == sorted(
        [
            f"{folder.format('parts')}/submit-0/{digest.hex()}",
            f"{folder.format('dense')}/{request.messages[0].dense_digest.hex()}",
        ]
    )
    await trio.sleep(1)
    admitted, begin, deposited_, leave = core.heard
    assert (admitted.key, begin.visit, leave) == (pair(CARRIED).public, admitted.call, Leave(admitted.call))
    assert (begin.size, deposited_.call, deposited_.part) == (len(request.bulk[0]), begin.call, digest)
    assert door.visitors == door.requests.count == 0


async def test_many_clients_share_one_channel_to_the_core(core, door, autojump_clock):
    release = trio.Event()

    async def begun(message):
        await release.wait()
        return Answered(message.call), said(Refused(reason="round-closed", explanation=str(message.visit)))

    core.answers[Begin] = begun
    replies = {}

    async def client(name):
        async with await dial(core, name) as channel:
            replies[name] = await ask(channel, submission(CONFIG, name), 1 - CONFIG.carrier(name) and 0)

    async with trio.open_nursery() as nursery:
        for name in ("anna", "ben", "carl", "dora"):
            nursery.start_soon(client, name)
        await trio.sleep(1)
        assert len(core.of(Begin)) == 4
        release.set()
    visits = {core.names[message.key]: str(message.call) for message in core.of(AdmitKey)}
    assert {name: answer.explanation for name, answer in replies.items()} == visits


async def test_what_is_said_within_a_moment_leaves_together_and_what_is_said_alone_at_once(core, door, autojump_clock):
    for number in range(1, 6):
        door.core.post(Leave(number))
        await trio.sleep(GATHERING / 2.5)
    await trio.sleep(2 * GATHERING)
    assert core.bundles == [[Leave(1)], [Leave(2), Leave(3)], [Leave(4), Leave(5)]]
    door.core.post(Leave(6))
    for _ in range(20):
        await trio.lowlevel.checkpoint()
    assert core.bundles[-1] == [Leave(6)]


async def test_the_task_is_told_without_the_core(core, door, autojump_clock):
    async with await dial(core, "anna") as channel:
        assert await asked(channel, AskTask()) == TaskIs(TASK.canonical())
    assert core.of(Ask) == []


async def test_who_waits_for_a_round_is_held_here_and_asked_for_again_when_one_opens(core, door, autojump_clock):
    answer = {"now": lambda message: (NotYet(message.call), b"")}
    core.answers[Ask] = lambda message: answer["now"](message)
    async with await dial(core, "anna") as channel:
        await channel.send(*encode(Enter(after=1)))
        await trio.sleep(20)
        assert len(core.of(Ask)) == 1
        await core.say(RoundSettled(CONFIG.round_id()))
        await trio.sleep(1)
        assert len(core.of(Ask)) == 1
        answer["now"] = lambda message: (Answered(message.call), said(Opened(b"a configuration")))
        await core.open_round(CONFIG)
        assert await reply(channel) == Opened(b"a configuration")
    assert len(core.of(Ask)) == 2


async def test_who_waits_for_an_outcome_is_asked_for_again_when_a_round_is_over(core, door, autojump_clock):
    core.answers[Ask] = lambda message: (NotYet(message.call), b"")
    async with await dial(core, "anna") as channel:
        await channel.send(*encode(AskOutcome(CONFIG.round_id())))
        await trio.sleep(1)
        core.answers[Ask] = lambda message: (Answered(message.call), said(TaskIs(b"settled")))
        await core.say(RoundSettled(CONFIG.round_id()))
        assert await reply(channel) == TaskIs(b"settled")


async def test_a_client_that_leaves_while_it_waits_is_forgotten(core, door, autojump_clock):
    core.answers[Ask] = lambda message: (NotYet(message.call), b"")
    async with await dial(core, "anna") as channel:
        await channel.send(*encode(Enter(after=1)))
        await trio.sleep(1)
        assert door.visitors == 1
    await trio.sleep(1)
    assert door.visitors == 0
    assert core.heard[-1] == Leave(core.of(AdmitKey)[0].call)


# ---- what is refused


async def test_bulk_that_is_not_what_was_granted_is_withdrawn_and_its_client_told(core, door, autojump_clock):
    request = submission(CONFIG, CARRIED)
    bulk = bytearray(request.bulk[0])
    bulk[-1] ^= 1
    async with await dial(core, CARRIED) as channel:
        refused = await asked(channel, request.messages[0], bytes(bulk))
        assert (refused.reason, refused.explanation) == ("malformed", "the dense share does not match its digest")
        await trio.sleep(1)
        assert core.heard[-1] == Withdraw(call=core.of(Begin)[0].call, why="refused")
        assert isinstance(await ask(channel, request, 0), Receipt)


async def test_a_part_with_another_digest_is_named_to_the_core_and_not_put(core, door, autojump_clock):
    request = submission(CONFIG, CARRIED)
    bulk = bytearray(request.bulk[0])
    bulk[0] ^= 1
    async with await dial(core, CARRIED) as channel:
        await asked(channel, request.messages[0], bytes(bulk))
    assert core.of(Deposited)[0].part != request.messages[0].public_digest
    assert await door.setup.blobs.names("") == []


async def test_a_client_that_breaks_off_is_told_of(core, door, autojump_clock):
    request = submission(CONFIG, CARRIED)
    parts = encode(request.messages[0], request.bulk[0])
    hold = trio.Event()

    async def begun(message):
        await hold.wait()

    core.answers[Begin] = begun
    channel = await dial(core, CARRIED)
    await channel.send(*parts)
    await trio.sleep(1)
    core.channel and await core.say(Dismissed(core.of(AdmitKey)[0].call, "not on the list any more"))
    await trio.sleep(1)
    assert core.heard[-2:] == [
        Withdraw(call=core.of(Begin)[0].call, why="broken-off"),
        Leave(core.of(AdmitKey)[0].call),
    ]
    with pytest.raises(ChannelError):
        await reply(channel)


async def test_a_client_beyond_its_limits_hears_so_and_is_gone(core, door, autojump_clock):
    core.answers[Begin] = lambda message: (
        Abused(message.call),
        said(Refused(reason="limit", explanation="too much")),
    )
    async with await dial(core, CARRIED) as channel:
        assert (await ask(channel, submission(CONFIG, CARRIED), 0)).reason == "limit"
        with pytest.raises(ChannelError):
            await reply(channel)
    await trio.testing.wait_all_tasks_blocked()
    assert door.visitors == 0


@pytest.mark.parametrize(("kind", "error"), [("refused", RefusedError), ("no-place", BusyError)])
async def test_whom_the_core_turns_away_is_told_why(core, door, autojump_clock, kind, error):
    core.answers[AdmitKey] = lambda message: (TurnedAway(call=message.call, kind=kind, reason="no"), b"")
    with pytest.raises(error) as caught:
        await dial(core, "mallory")
    assert caught.value.reason == "no"
    assert door.visitors == 0


# ---- ends and beginnings


async def test_without_its_core_a_door_takes_nobody_in_and_keeps_nobody(core, door, autojump_clock):
    core.answers[Ask] = lambda message: (NotYet(message.call), b"")
    channel = await dial(core, "anna")
    await channel.send(*encode(Enter(after=1)))
    await trio.sleep(1)
    core.running.cancel()
    with pytest.raises(ChannelError):
        await reply(channel)
    with pytest.raises(BusyError, match="S0 is not there at present"):
        await dial(core, "anna")
    core.running = trio.CancelScope()
    await core.open()
    await trio.sleep(10)
    async with await dial(core, "anna") as channel:
        assert await asked(channel, AskTask()) == TaskIs(TASK.canonical())


async def test_a_call_that_the_core_has_taken_with_it_is_not_acknowledged(core, door, autojump_clock):
    core.answers[Deposited] = lambda message: None
    channel, request = await dial(core, CARRIED), submission(CONFIG, CARRIED)
    await channel.send(*encode(request.messages[0], request.bulk[0]))
    await trio.sleep(1)
    await core.restart()
    with pytest.raises(ChannelError):
        await reply(channel)


async def test_a_core_that_refuses_the_door_ends_it_with_the_reason(core):
    core.refusal = Refusal("its release is 1, mine is 2: start doors with the server's release")
    with pytest.raises(MisuseError, match="S0 does not take this door: its release is 1, mine is 2"):
        await open_door(core, TASK)


async def test_a_core_that_is_about_to_stop_takes_nobody_in(core, door, autojump_clock):
    await core.say(Leaving("S0 is about to stop"))
    await trio.sleep(1)
    with pytest.raises(BusyError) as caught:
        await dial(core, "anna")
    assert caught.value.reason == "S0 is about to stop"


async def test_a_door_that_winds_up_finishes_what_is_under_way(core, door, autojump_clock, nursery):
    release = trio.Event()

    async def deposited(message):
        await release.wait()
        return Answered(message.call), said(Receipt(round_id=CONFIG.round_id(), digest=b"d", signature=b"s"))

    core.answers[Deposited] = deposited
    async with await dial(core, CARRIED) as channel:
        nursery.start_soon(channel.send, *encode(submission(CONFIG, CARRIED).messages[1]))
        await reply(channel)
        request = submission(CONFIG, CARRIED)
        await channel.send(*encode(request.messages[0], request.bulk[0]))
        await trio.sleep(1)
        ended = trio.Event()

        async def end():
            await door.wind_up(60)
            ended.set()

        nursery.start_soon(end)
        await trio.sleep(1)
        assert not ended.is_set()
        with pytest.raises(BusyError, match="another one"):
            await dial(core, "zoe")
        release.set()
        assert isinstance(await reply(channel), Receipt)
        await trio.sleep(1)
        assert ended.is_set()


# ---- what the other server forwards

NOT_CARRIED = next(name for name in ("anna", "ben", "carl", "dora") if CONFIG.carrier(name) == 1)


async def offered(core, part, digest):
    """A link of the other server's, on which a part has been offered that is wanted."""
    core.answers[Offer] = lambda asked: (Wanted(asked.call), b"")
    core.answers[Kept] = lambda kept: (Taken(kept.call), b"")
    link = await dial(core, "S1", forwarding(TASK.digest()))
    offer = OfferPart(
        number=1,
        round_id=CONFIG.round_id(),
        client=NOT_CARRIED,
        purpose="submit",
        query=0,
        part=digest,
        size=len(part),
    )
    await link.send(*encode(offer))
    assert decode(await link.receive(10**5), FromKeeper, "S0").message == PartWanted(1)
    return link


def forwarded_part():
    request = submission(CONFIG, NOT_CARRIED)
    size = Layout.submission(CONFIG.shape, Trees.OWN).size
    return bytearray(request.bulk[1][:size]), request.messages[0].public_digest


async def test_a_part_that_is_forwarded_is_put_before_the_core_hears_that_it_is(core, door, autojump_clock):
    part, digest = forwarded_part()
    async with await offered(core, part, digest) as link:
        await link.send(*encode(PartFollows(1), part))
        assert decode(await link.receive(10**5), FromKeeper, "S0").message == PartTaken(1)
    name = f"round-00000001/parts/{NOT_CARRIED}/submit-0/{digest.hex()}"
    assert await door.setup.blobs.read(name) == part
    assert [(kept.part, kept.call) for kept in core.of(Kept)] == [(digest, core.of(Offer)[0].call)]


async def test_another_part_than_was_offered_is_not_put_and_the_core_hears_what_it_was(core, door, autojump_clock):
    part, digest = forwarded_part()
    async with await offered(core, part, digest) as link:
        part[0] ^= 1
        await link.send(*encode(PartFollows(1), part))
        with pytest.raises(ChannelError):
            await link.receive(10**5)
    (kept,) = core.of(Kept)
    assert kept.part not in (digest, b"")
    assert await door.setup.blobs.names("") == []


FORM = "parties.server.peer.forwarding.wrong_form"
"""Only a retrieval's selection hints can have a wrong form; parts of this task have none."""


async def test_a_forwarded_part_of_no_right_form_is_not_put(core, door, monkeypatch, autojump_clock):
    monkeypatch.setattr(FORM, lambda shape, layout, part: "padding that is not zero")
    part, digest = forwarded_part()
    async with await offered(core, part, digest) as link:
        await link.send(*encode(PartFollows(1), part))
        assert decode(await link.receive(10**5), FromKeeper, "S0").message == PartTaken(1)
    assert [kept.part for kept in core.of(Kept)] == [b""]
    assert await door.setup.blobs.names("") == []


async def test_another_part_of_no_right_form_is_not_taken_for_the_clients(core, door, monkeypatch, autojump_clock):
    """Whoever forwards other bytes than were offered has lied, whatever is wrong with them besides."""
    monkeypatch.setattr(FORM, lambda shape, layout, part: "padding that is not zero")
    part, digest = forwarded_part()
    layout = Layout.submission(CONFIG.shape, Trees.OWN)
    async with await offered(core, part, digest) as link:
        part[layout.pieces[0].stop - 1] ^= 0x80
        await link.send(*encode(PartFollows(1), part))
        with pytest.raises(ChannelError):
            await link.receive(10**5)
    assert [kept.part for kept in core.of(Kept)] == [name_of(layout, part)]
    assert await door.setup.blobs.names("") == []


class StubbornBlobs(MemoryBlobs):
    """Blobs whose put, once begun, ends when it is let go, and cannot be cancelled: as in a thread."""

    def __init__(self):
        super().__init__()
        self.begun, self.go = trio.Event(), trio.Event()

    async def put(self, name, *pieces, durable=True):
        self.begun.set()
        with trio.CancelScope(shield=True):
            await self.go.wait()
            await super().put(name, *pieces, durable=durable)


async def test_a_part_whose_core_is_gone_is_not_told_to_the_next_one(core, autojump_clock):
    """It knows of no such offer, and would take the door for one that says what no door says."""
    blobs = StubbornBlobs()
    await open_door(core, TASK, blobs=blobs)
    await core.open_round(CONFIG)
    await trio.sleep(0.1)
    part, digest = forwarded_part()
    link = await offered(core, part, digest)
    await link.send(*encode(PartFollows(1), part))
    await blobs.begun.wait()
    await core.restart()
    await trio.sleep(5)
    blobs.go.set()
    await trio.sleep(5)
    assert core.of(Kept) == []


async def test_a_door_whose_disk_has_failed_ends(core):
    """So that it is started anew, on another disk: a door that stays would take clients in, and lose them all."""

    class Lost(MemoryBlobs):
        async def put(self, name, *pieces, durable=True):
            raise StoreLostError("the disk failed")

    async def live():
        with sole_error():
            async with trio.open_nursery() as core.nursery:
                await open_door(core, TASK, blobs=Lost())
                await core.open_round(CONFIG)
                channel, request = await dial(core, CARRIED), submission(CONFIG, CARRIED)
                await channel.send(*encode(request.messages[0], request.bulk[0]))
                with trio.fail_after(5):
                    await trio.sleep_forever()

    with pytest.raises(StoreLostError, match="the disk failed"):
        await live()


async def test_a_retrieval_without_room_for_its_answer_puts_nothing(core, autojump_clock):
    """Else a client could have other bytes stored again and again, because what has no room does not count."""
    door = await open_door(core, TASK, conversations=ConversationLimits(queue_seconds=5))
    await core.open_round(CONFIG)
    await trio.sleep(0.1)
    before, reading = retrieval(CONFIG, CARRIED), await dial(core, CARRIED)
    core.answers[Begin] = lambda asked: (
        (Granted(call=asked.call), b"")
        if asked.size
        else (Answered(asked.call), said(Answer(round_id=CONFIG.round_id(), query=0), bytes(10_000_000)))
    )
    core.answers[Deposited] = lambda asked: None
    recall = Recall(round_id=CONFIG.round_id(), session=bytes(32))
    await reading.send(*encode(recall))
    await trio.sleep(1)
    async with await dial(core, CARRIED) as channel:
        with trio.fail_after(1_000):
            refused = await asked(channel, before.messages[0], before.bulk[0])
    assert refused.reason == "busy"
    assert await door.setup.blobs.names("") == []
    assert [withdrawn.why for withdrawn in core.of(Withdraw)] == ["no-room"]
