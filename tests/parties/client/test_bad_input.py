"""Bad input, from callers and over the wire: a clear error, and the round that is open goes on without a loss."""

import random
import re
from contextlib import suppress

import msgspec
import numpy as np
import pytest
import trio

from fsl_async.errors import MisuseError, PeerViolationError, leaves
from fsl_async.ring import RingIntegers
from fsl_async.wire.messages import Hint
from parties import RequestDeniedError, simulate
from tests.support.shop import (
    HEAD,
    ROWS,
    SELECT,
    TASK,
    WIDTH,
    Basket,
    Shop,
    honest_round,
    meddled,
    model,
    take_part,
    with_fields,
)
from transport.preamble import MAGIC

LARGEST = TASK.largest_value
FITTING = (np.array([1, 2]), np.zeros((2, WIDTH)))

BAD_RETRIEVALS = {
    "no names of blocks": ([1, 2], "names of blocks expected, as .*, got list"),
    "row too high": ({"items": [3, ROWS]}, rf"'items': row {ROWS} is outside 0 to {ROWS - 1}"),
    "row negative": ({"items": [-1]}, rf"row -1 is outside 0 to {ROWS - 1}"),
    "row twice": ({"items": [4, 9, 4]}, "row 4 is selected twice"),
    "too many rows": ({"items": list(range(SELECT + 1))}, rf"{SELECT + 1} rows selected, the task allows {SELECT}"),
    "rows are floats": ({"items": [1.0, 2.0]}, "integer rows expected, got float64"),
    "rows are words": ({"items": ["one"]}, "integer rows expected"),
    "rows are a matrix": ({"items": [[1, 2], [3, 4]]}, r"integer rows expected, got int64 \(2, 2\)"),
    "rows are ragged": ({"items": [[1], [2, 3]]}, "'items'"),
    "rows are nothing": ({"items": None}, "integer rows expected"),
    "rows are booleans": ({"items": [True]}, r"integer rows expected, got bool \(1,\)"),
    "a row that is no list": ({"items": 5}, r"integer rows expected, got int64 \(\)"),
    "row far too high": ({"items": [2**40]}, f"row {2**40} is outside"),
    "unknown block": ({"itmes": [1]}, r"has no block 'itmes'; it has \['items', 'head'\]"),
    "rows of a dense block": ({"head": [1]}, "'head' is dense: it has no rows"),
    "a good block beside a bad one": ({"items": [1], "tail": ...}, "has no block 'tail'"),
}

BAD_UPDATES = {
    "no names of blocks": (([1], [[0.0]]), "names of blocks expected, as .*, got tuple"),
    "not a number": ({"items": ([1], [[0.0, np.nan, 0.0]])}, r"nan at \[0, 1\] is not a finite number"),
    "infinite": ({"head": np.array([0, 0, np.inf, 0, 0])}, r"inf at \[2\] is not a finite number"),
    "too large": (
        {"items": ([1], [[0.0, 0.0, 2 * LARGEST]])},
        rf"{re.escape(str(2 * LARGEST))} at \[0, 2\] does not fit; the largest is {LARGEST:.17g}".replace("+", r"\+"),
    ),
    "too small": ({"head": np.full(HEAD, -2 * LARGEST)}, rf"-{re.escape(str(2 * LARGEST))} at \[0\] does not fit"),
    "integer too large": ({"head": np.full(HEAD, 2**62)}, rf"{2**62} at \[0\] does not fit; the largest is"),
    "too large for a double": ({"head": [1e308] * HEAD}, r"1e\+308 at \[0\] does not fit"),
    "rows without values": ({"items": [1, 2]}, r"'items' is sparse: a pair \(rows, values\) expected"),
    "no values": ({"items": ([1, 2], [])}, r"values of shape \(2, 3\) expected for 2 rows, got \(0,\)"),
    "too few values": ({"items": ([1, 2], np.zeros((1, WIDTH)))}, r"shape \(2, 3\) expected for 2 rows, got \(1, 3\)"),
    "too narrow": ({"items": ([1, 2], np.zeros((2, 1)))}, r"shape \(2, 3\) expected"),
    "transposed": ({"items": ([1, 2], np.zeros((WIDTH, 2)))}, r"shape \(2, 3\) expected"),
    "ragged values": ({"items": ([1, 2], [[0.0], [0.0, 1.0]])}, "'items'"),
    "rows for a dense block": ({"head": FITTING}, "'head'"),
    "dense of another size": ({"head": np.zeros(HEAD + 1)}, rf"'head': {HEAD} values expected, got shape \(6,\)"),
    "dense as a matrix": ({"head": np.zeros((1, HEAD))}, r"got shape \(1, 5\)"),
    "complex values": ({"head": np.zeros(HEAD, complex)}, "expected floats or integers, got dtype complex128"),
    "words for values": ({"head": ["a"] * HEAD}, "expected floats or integers"),
    "nothing for values": ({"head": [None] * HEAD}, "'head'"),
    "unknown block": ({"tail": np.zeros(HEAD)}, "has no block 'tail'"),
    "row too high": ({"items": ([ROWS], np.zeros((1, WIDTH)))}, rf"row {ROWS} is outside"),
    "row twice": ({"items": ([1, 1], np.zeros((2, WIDTH)))}, "row 1 is selected twice"),
    "a good block beside a bad one": ({"items": FITTING, "head": [np.nan] * HEAD}, "nan"),
}


# ---- what a caller does wrong


async def test_bad_retrievals_and_updates_are_refused_before_anything_is_sent_and_a_good_one_goes_on():
    async with simulate(TASK, model(), seed=1) as network, network.client("carol") as carol:
        before = len(network.transcript)
        for call, cases in ((carol.retrieve, BAD_RETRIEVALS), (carol.submit, BAD_UPDATES)):
            for case, (words, pattern) in cases.items():
                try:
                    await call(words)
                except MisuseError as error:
                    assert re.search(pattern, str(error)), case  # noqa: PT017 - which case it is stands beside it
                else:
                    pytest.fail(f"{case}: not refused")
                assert len(network.transcript) == before, case
        await take_part(carol)
        await honest_round(network, "carol")


async def test_an_update_of_a_row_that_was_not_retrieved_is_refused_by_name():
    async with simulate(TASK, model(), seed=3) as network, network.client("carol") as carol:
        basket = Basket("carol")
        await carol.retrieve({"items": basket.rows})
        missing = next(row for row in range(ROWS) if row not in basket.rows)
        with pytest.raises(MisuseError, match=rf"row {missing} was not retrieved in this round"):
            await carol.submit({"items": ([missing], np.ones((1, WIDTH)))})
        await carol.submit(basket.update)
        await honest_round(network, "carol")


@pytest.mark.parametrize("largest", [LARGEST, int(LARGEST), RingIntegers(TASK.largest_integer)], ids=type)
async def test_the_largest_value_is_summed_exactly_by_as_many_as_allowed(largest, network):
    kind, most = (RingIntegers, TASK.largest_integer) if isinstance(largest, RingIntegers) else (np.array, largest)
    names = [f"client {number}" for number in range(TASK.max_clients)]
    for name in names:
        async with network.client(name) as client:
            await client.submit({"items": ([0, 1], kind(np.array([[most] * WIDTH, [-most] * WIDTH])))})
    outcome = await network.finish_round()
    expected = len(names) * int(most * (1 if kind is RingIntegers else 2**16))
    assert set(outcome.elements["items"][0].tolist()) == {expected}
    assert set(outcome.elements["items"][1].tolist()) == {-expected}


@pytest.mark.parametrize(
    ("broken", "pattern"),
    [
        ({"items": model()["items"]}, r"blocks \['head', 'items'\] expected, got \['items'\]"),
        ({**model(), "items": np.zeros((ROWS, 1))}, rf"shape \({ROWS}, {WIDTH}\) expected, got \({ROWS}, 1\)"),
        ({**model(), "head": np.zeros(HEAD, complex)}, "dtype complex128 is not one of"),
        ({**model(), "tail": np.zeros(1)}, r"got \['head', 'items', 'tail'\]"),
    ],
    ids=["missing", "shape", "dtype", "unknown"],
)
async def test_a_model_that_does_not_fit_the_task_is_refused(broken, pattern):
    with pytest.raises(MisuseError, match=pattern):
        async with simulate(TASK, broken, seed=7):
            pytest.fail("the simulation started")


# ---- what a client does wrong over the wire


@pytest.mark.parametrize(
    ("announced", "says"),
    [(b"", "length >= 32"), (bytes(32), "the public part that you sent does not have the digest that you announced")],
    ids=["none", "another"],
)
async def test_a_hint_announces_its_part_as_a_submission_does(announced, says, autojump_clock):
    fixed, hook = msgspec.structs.replace(TASK, selection="fixed"), with_fields(Hint, public_digest=announced)
    async with (
        simulate(fixed, model(), seed=8) as network,
        meddled(network.client("mallory"), outgoing=hook) as mallory,
    ):
        await take_part(mallory)
        await honest_round(network, "mallory")
        with pytest.raises(RequestDeniedError, match=says):
            await take_part(mallory)


@pytest.fixture(params=["memory", "tcp"])
async def shop(nursery, request):
    """Two servers, on either transport."""
    return await (Shop if request.param == "tcp" else Shop.in_memory)(nursery).open()


@pytest.mark.parametrize("length", [0, 1, 4, 8, 9, 60, 1200, 70_000])
async def test_random_bytes_at_the_port_disturb_nobody(shop, length):
    draw = random.Random(length)
    for server in (0, 1):
        for prefix in (b"", MAGIC, MAGIC + b"\0\2\1\1"):
            async with await shop.transports[server].connect(shop.addresses[server]) as stream:
                await send_quietly(stream, prefix + draw.randbytes(length))
    await honest_round(shop)
    assert shop.failures == []


async def send_quietly(stream, data):
    with suppress(trio.BrokenResourceError):  # the server had enough
        await stream.send_all(data)


# ---- servers that do not belong together


async def test_servers_with_unequal_models_both_end_with_the_digests(nursery):
    for attempt in range(10):
        other = model() | {"head": model()["head"] + attempt + 1}
        shop = Shop.in_memory(nursery, models=(model(), other))
        await shop.open()
        with trio.fail_after(5):
            await shop.all_failed.wait()
        for failure in shop.failures:
            (violation,) = leaves(failure)
            assert isinstance(violation, PeerViolationError)
            assert re.search(r"holds another model: [0-9a-f]{16} there, [0-9a-f]{16} here", str(violation))
        assert {leaf.peer for failure in shop.failures for leaf in leaves(failure)} == {"S0", "S1"}


async def test_servers_with_different_tasks_do_not_work_together(nursery):
    shop = Shop.in_memory(nursery)
    await shop.open_one(0)
    shop.task = msgspec.structs.replace(TASK, min_clients=3)
    await shop.open_one(1)
    with trio.fail_after(5):
        await shop.failed.wait()
    (misuse,) = leaves(shop.failures[0])
    assert isinstance(misuse, MisuseError)
    assert "S0 serves another task: its digest is" in str(misuse)
