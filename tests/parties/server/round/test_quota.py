"""How much one client may ask of a round: the numbers, what happens above them, and that nobody else feels it."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import trio
import trio.testing

from fsl_async.errors import ChannelError, PeerViolationError, leaves
from fsl_async.wire.messages import Answer, Block, Download, Forward, Receipt, Refused
from parties.server.replies import AbuseError, RequestRefusedError
from parties.server.round.places import LIMITS, REFUSALS_BORNE, Counted, RoundQuota
from tests.support.hand_made import Request, added_by, ask, connected, post, reply, retrieval, submission
from tests.support.shop import Shop, all_take_part, plain_sum, with_fields
from transport import ChannelClosedError, Limits, RefusedError


@pytest.fixture
async def shop(nursery):
    return await Shop.in_memory(nursery).open()


async def honest(shop, **others):
    """Two honest clients in the open round; it counts them exactly, and besides only `others`, with these values."""
    async with shop.client("anna") as anna, shop.client("ben") as ben:
        await all_take_part(anna, ben)
    outcome = await shop.finish_round()
    assert outcome.clients == tuple(sorted(("anna", "ben", *others)))
    for block, expected in plain_sum(("anna", "ben")).items():
        total = expected + sum(added_by(value)[block] for value in others.values())
        np.testing.assert_array_equal(outcome.update[block], total)
    assert shop.failures == []
    return outcome


async def carried(shop, prefix="mallory"):
    """The open round, and a client whose public part S0 carries in it: S0 alone can be asked then."""
    config = (await shop.servers[0].next_round(0)).config
    name = next(f"{prefix}_{number}" for number in range(100) if config.carrier(f"{prefix}_{number}") == 0)
    return config, shop.client(name)


def is_limit(message, *words):
    assert isinstance(message, Refused), message
    assert message.reason == "limit"
    for word in words:
        assert word in message.explanation
    return True


# ---- the counters


def outcome_of(allowance, name, kind, reason=None):
    """What becomes of one request that ends as told: "done", or the reason of its refusal, or "abuse"."""
    try:
        with allowance.request(name, kind):
            if reason is not None:
                raise RequestRefusedError.because(reason, "no")
    except RequestRefusedError as error:
        return error.message.reason
    except AbuseError as error:
        return "abuse" if is_limit(error.message) else ""
    return "done"


@pytest.fixture
def allowance() -> RoundQuota:
    return RoundQuota(retrievals=8)


@pytest.mark.parametrize(("kind", "limit"), [(Counted.ATTEMPT, 10), (Counted.RETRIEVAL, 8), (Counted.DOWNLOAD, 16)])
def test_requests_up_to_the_limit_are_carried_out_and_no_more(allowance, kind, limit):
    outcomes = [outcome_of(allowance, "mallory", kind) for _ in range(limit + 5)]
    assert outcomes == ["done"] * limit + ["limit"] * 3 + ["abuse"] * 2
    assert outcome_of(allowance, "anna", kind) == "done"


@pytest.mark.parametrize(("reason", "limit"), [("conflict", 3), ("malformed", 10)])
def test_the_fourth_conflict_is_one_too_many_and_other_refusals_are_attempts(allowance, reason, limit):
    outcomes = [outcome_of(allowance, "mallory", Counted.ATTEMPT, reason) for _ in range(limit + 5)]
    assert outcomes == [reason] * limit + ["limit"] * 3 + ["abuse"] * 2


def test_kinds_are_counted_apart_and_patience_together(allowance):
    for kind in (Counted.ATTEMPT, Counted.RETRIEVAL):
        for _ in range(LIMITS.get(kind, 8)):
            assert outcome_of(allowance, "mallory", kind) == "done"
    kinds = [Counted.ATTEMPT, Counted.RETRIEVAL, Counted.ATTEMPT, Counted.RETRIEVAL]
    assert [outcome_of(allowance, "mallory", kind) for kind in kinds] == ["limit", "limit", "limit", "abuse"]


def test_each_block_has_a_count_of_its_own(allowance):
    for block in ("head", "items"):
        for _ in range(16):
            allowance.count("mallory", Counted.DOWNLOAD, block)
    for block in ("head", "items"):
        with pytest.raises(RequestRefusedError, match="at most 16 downloads of one block"):
            allowance.request("mallory", Counted.DOWNLOAD, block).__enter__()


def test_the_task_says_how_often_a_client_may_retrieve_and_a_refusal_names_the_number():
    allowance = RoundQuota(retrievals=2)
    assert [outcome_of(allowance, "anna", Counted.RETRIEVAL) for _ in range(3)] == ["done", "done", "limit"]
    with pytest.raises(RequestRefusedError, match=r"at most 2 attempts to .* again in the next round, which opens"):
        allowance.request("anna", Counted.RETRIEVAL).__enter__()


# ---- over channels


async def test_the_same_submission_ten_times_gets_one_receipt_and_the_eleventh_a_refusal(shop, autojump_clock):
    config, mallory = await carried(shop)
    request = submission(config, mallory.name)
    async with connected(mallory, 0) as channel:
        receipts = [await ask(channel, request, 0) for _ in range(10)]
        assert all(isinstance(receipt, Receipt) for receipt in receipts)
        assert all(first == second for first, second in pairwise(receipts))
        is_limit(await ask(channel, request, 0), "10 submission attempts")
    async with connected(mallory, 1) as other:
        assert isinstance(await ask(other, request, 1), Receipt)  # each server counts for itself
    await honest(shop, **{mallory.name: 1})


async def test_other_submissions_after_the_accepted_one_are_conflicts_and_then_too_many(shop, autojump_clock):
    config, mallory = await carried(shop)
    accepted = submission(config, mallory.name, 1)
    async with connected(mallory, 0) as channel:
        assert isinstance(await ask(channel, accepted, 0), Receipt)
        for value in (2, 3, 4):
            answer = await ask(channel, submission(config, mallory.name, value), 0)
            assert (answer.reason, type(answer)) == ("conflict", Refused)
        is_limit(await ask(channel, submission(config, mallory.name, 5), 0), "at most 3 contradicting requests")
    async with connected(mallory, 1) as channel:
        assert isinstance(await ask(channel, accepted, 1), Receipt)
    await honest(shop, **{mallory.name: 1})  # the first submission, and no later one


async def test_faulty_retrievals_count_as_attempts_and_the_refusal_says_so(shop, autojump_clock):
    config, mallory = await carried(shop)
    request = retrieval(config, mallory.name, 1)
    faulty = Request(tuple(msgspec.structs.replace(each, query=9) for each in request.messages), request.bulk)
    async with connected(mallory, 0) as channel:
        for _ in range(8):
            assert (await ask(channel, faulty, 0)).reason == "malformed"
        is_limit(await ask(channel, request, 0), "at most 8 attempts to retrieve")
        is_limit(await ask(channel, request, 0), "refused ones included")


async def test_a_block_is_downloaded_so_often_and_unknown_ones_cost_no_memory(shop, autojump_clock):
    config, mallory = await carried(shop)
    request = Request((Download(round_id=config.round_id(), block="head"),) * 2, (b"", b""))
    async with connected(mallory, 0) as channel:
        for _ in range(16):
            assert isinstance(await ask(channel, request, 0), Block)
        is_limit(await ask(channel, request, 0), "16 downloads of one block")
    async with connected(mallory, 1) as channel:
        for number in range(16):
            unknown = Request((Download(round_id=config.round_id(), block=f"no {number}"),) * 2, (b"", b""))
            assert (await ask(channel, unknown, 1)).reason == "malformed"
        is_limit(await ask(channel, unknown, 1), "16 downloads of one block")
    await honest(shop)


async def test_requests_that_break_off_are_counted_and_those_that_come_are_not(shop, autojump_clock):
    config, mallory = await carried(shop)
    request = submission(config, mallory.name)
    async with connected(mallory, 0) as channel:
        assert isinstance(await ask(channel, request, 0), Receipt)
    begin = partial(shop.servers[0].requests.begin, mallory.name, request.messages[0], len(request.bulk[0]))
    for _ in range(20):
        with pytest.raises(ChannelError):
            async with begin():
                raise ChannelError("lost")
    with pytest.raises(RequestRefusedError, match="at most 20 requests that broke off"):
        await begin().__aenter__()


async def test_who_goes_on_loses_the_connection_and_every_later_one_in_this_round(shop, autojump_clock):
    config, mallory = await carried(shop)
    request = retrieval(config, mallory.name)
    async with connected(mallory, 0) as channel:
        for _ in range(8):
            assert isinstance(await ask(channel, request, 0), Answer)
        for _ in range(REFUSALS_BORNE):
            is_limit(await ask(channel, request, 0))
        is_limit(await ask(channel, request, 0))  # the last answer, and then the end
        with pytest.raises(ChannelClosedError):
            await channel.receive(10**6)
    for _ in range(3):
        async with connected(mallory, 0) as channel:
            is_limit(await ask(channel, request, 0))
            with pytest.raises(ChannelClosedError):
                await channel.receive(10**6)
    await honest(shop)
    first, second = [await server.next_round(1) for server in shop.servers]
    assert first.config == second.config
    request = retrieval(first.config, mallory.name)
    async with connected(mallory, 0) as left, connected(mallory, 1) as right:  # a new round, a new count
        await post(left, request, 0)
        await post(right, request, 1)
        assert {type(await reply(left)), type(await reply(right))} == {Answer}
    await honest(shop)


@pytest.mark.parametrize("seed", range(5))
async def test_of_two_submissions_at_once_one_is_accepted(shop, autojump_clock, seed):
    config, mallory = await carried(shop, f"mallory_{seed}")
    answers = []

    async def rush(value):
        async with connected(mallory, 0) as channel:
            answers.append(await ask(channel, submission(config, mallory.name, value), 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rush, 1)
        nursery.start_soon(rush, 2)
    assert sorted(type(answer).__name__ for answer in answers) == ["Receipt", "Refused"]
    assert {answer.reason for answer in answers if isinstance(answer, Refused)} == {"conflict"}
    outcome = await honest(shop)
    assert outcome.excluded == {mallory.name: "only_s0"}


async def test_connections_of_one_key_share_its_counts(shop, autojump_clock):
    config, mallory = await carried(shop)
    request = retrieval(config, mallory.name)
    answers = []

    async def rush():
        async with connected(mallory, 0) as channel:
            answers.extend([await ask(channel, request, 0) for _ in range(3)])

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(rush)
    assert sorted(type(answer).__name__ for answer in answers) == ["Answer"] * 8 + ["Refused"]
    await honest(shop)


async def test_a_fifth_connection_with_one_key_is_refused_with_the_number(nursery):
    shop = Shop.in_memory(nursery)
    made = shop.setup_of
    shop.setup_of = lambda index: replace(made(index), limits=Limits())
    await shop.open()
    mallory = shop.client("mallory")
    async with connected(mallory, 0), connected(mallory, 0), connected(mallory, 0), connected(mallory, 0):
        with pytest.raises(RefusedError, match="4 connections with this key are open already"):
            async with connected(mallory, 0):
                pytest.fail("a fifth is open")
        await honest(shop)
    async with connected(mallory, 0):
        pass  # there is room again


# ---- the peer, which is not trusted either


@pytest.mark.parametrize("query", [0, 9, 2**40])
async def test_a_forward_beyond_the_numbers_is_a_violation(nursery, query, autojump_clock):
    """Else the peer could make a server keep any number of parts for one client."""
    shop = await Shop.meddled(nursery, outgoing=with_fields(Forward, query=query)).open()
    config = (await shop.servers[0].next_round(0)).config
    name = next(f"anna {number}" for number in range(100) if config.carrier(f"anna {number}") == 1)
    await shop.servers[1].next_round(0)
    async with connected(shop.client(name), 1) as channel, connected(shop.client(name), 0) as end:
        await post(channel, retrieval(config, name), 1)
        with trio.fail_after(60), pytest.raises(ChannelError):
            await end.receive(10**6)  # S0 stops
    await trio.testing.wait_all_tasks_blocked()
    (violation,) = leaves(shop.failures[0])
    assert isinstance(violation, PeerViolationError)
    assert f"forwards a retrieve numbered {query}" in str(violation)
