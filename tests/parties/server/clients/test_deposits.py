"""Bulk that is taken in: what is put under which name, and what is refused before anything is put."""

import msgspec
import numpy as np
import pytest

from fsl_async.config import describe_model
from fsl_async.derivation import dense_digest
from fsl_async.digests import DIGEST_BYTES
from fsl_async.ring import Ring
from fsl_async.task import Sparse, Task
from fsl_async.wire.messages import Hint
from fsl_async.wire.public_part import Layout, Trees, dense_bytes
from parties.compute import InlineLane, ThreadLane
from parties.server.clients.deposits import Deposit, Depositor, Wanted
from parties.server.replies import RequestRefusedError
from parties.storage.blobs.memory import MemoryBlobs
from tests.support.hand_made import name_of, retrieval, submission
from tests.support.machine_scenes import config_of
from tests.support.shop import TASK, model

CLIENT = "anna"


PACKED = Task(  # 99 trees, four rows to a leaf: the last byte of the selection hints is half full
    name="packed",
    blocks=(Sparse("items", rows=300, select=7),),
    ring=Ring(32, fraction_bits=12),
    security="semi-honest",
    min_clients=2,
    max_clients=4,
)


def config_for(task, arrays=None):
    return config_of(1, task=task, model=describe_model(task, arrays or model()))


@pytest.fixture
def config():
    return config_for(TASK)


def of_carrier(config, request):
    carrier = config.carrier(CLIENT)
    return request.messages[carrier], memoryview(request.bulk[carrier])


def desk(lane=None):
    blobs = MemoryBlobs()
    return blobs, Depositor(blobs, lane or InlineLane(), lambda name, part: None)


async def content_of(blobs):
    return {name: bytes(await blobs.read(name)) for name in await blobs.names("")}


async def test_a_submission_s_bulk_lies_under_its_digests(config):
    message, bulk = of_carrier(config, submission(config, CLIENT))
    wanted = Wanted.of(config, CLIENT, message, message.seed)
    assert wanted.size == len(bulk)
    blobs, depositor = desk(ThreadLane(1))
    deposit = await depositor.take(wanted, bulk)
    layout = Layout.submission(config.shape, Trees.OWN)
    assert deposit.part == message.public_digest
    assert deposit.dense == bytes(bulk[: layout.size][-DIGEST_BYTES:])
    folder = f"round-{config.number:08}"
    assert await content_of(blobs) == {
        f"{folder}/parts/anna/submit-0/{message.public_digest.hex()}": bytes(bulk[: layout.size]),
        f"{folder}/dense/anna/{deposit.dense.hex()}": bytes(bulk[layout.size :]),
    }
    assert await depositor.take(wanted, bulk) == deposit  # a repeat


async def test_a_retrieval_s_bulk_lies_under_its_digest(config):
    message, bulk = of_carrier(config, retrieval(config, CLIENT, 1))
    blobs, depositor = desk()
    deposit = await depositor.take(Wanted.of(config, CLIENT, message, message.seed), bulk)
    assert deposit.part == name_of(Layout.retrieval(config.shape), bulk)
    assert list(await content_of(blobs)) == [
        f"round-{config.number:08}/parts/anna/retrieve-1/{message.public_digest.hex()}"
    ]


async def test_a_hint_s_bulk_is_taken_as_a_submission_s_is(config):
    message, bulk = of_carrier(config, submission(config, CLIENT))
    layout, size = Layout.submission(config.shape, Trees.SESSION), dense_bytes(config.shape)
    share = bytes(bulk[-size:])
    part = memoryview(bytes(layout.size - DIGEST_BYTES) + dense_digest(share, message.seed))
    hint = Hint(message.round_id, bytes(DIGEST_BYTES), name_of(layout, part))
    blobs, depositor = desk()
    deposit = await depositor.take(Wanted.of(config, CLIENT, hint, message.seed), memoryview(bytes(part) + share))
    assert deposit == Deposit(hint.public_digest, b"", dense_digest(share, message.seed))
    assert len(await blobs.names("")) == 2
    other = msgspec.structs.replace(hint, public_digest=bytes(DIGEST_BYTES))
    blobs, depositor = desk()
    await depositor.take(Wanted.of(config, CLIENT, other, message.seed), memoryview(bytes(part) + share))
    assert await blobs.names("") == []


async def test_another_part_than_was_announced_is_named_and_not_put(config):
    message, bulk = of_carrier(config, submission(config, CLIENT))
    other = memoryview(bytearray(bulk))
    other[Layout.submission(config.shape, Trees.OWN).pieces[1].start] ^= 1
    blobs, depositor = desk()
    deposit = await depositor.take(Wanted.of(config, CLIENT, message, message.seed), other)
    assert deposit.part != message.public_digest
    assert await blobs.names("") == []


async def is_refused(config, message, came, why):
    """Bulk that is not taken, and of which nothing is put."""
    blobs, depositor = desk()
    with pytest.raises(RequestRefusedError, match=why):
        await depositor.take(Wanted.of(config, CLIENT, message, message.seed), memoryview(came))
    assert await blobs.names("") == []


@pytest.mark.parametrize("cut", [0, 1, -1])
async def test_another_size_is_refused_with_the_numbers(config, cut):
    message, bulk = of_carrier(config, submission(config, CLIENT))
    came = bytes(bulk[:cut]) if cut <= 0 else bytes(bulk) + b"x"
    await is_refused(config, message, came, f"expected from you; {len(came)} came")


async def test_a_dense_share_that_is_not_the_one_announced_is_refused(config):
    message, bulk = of_carrier(config, submission(config, CLIENT))
    other = bytearray(bulk)
    other[-1] ^= 1
    await is_refused(config, message, other, "dense share does not match")


async def test_padding_that_is_not_zero_is_refused():
    config = config_for(PACKED, {"items": np.zeros((300, 1))})
    layout = Layout.retrieval(config.shape)
    message, bulk = of_carrier(config, retrieval(config, CLIENT, 1))
    packed = next(piece.stop for piece in layout.pieces if piece.kind == "select") - 1
    other = bytearray(bulk)
    other[packed] |= 0x80
    await is_refused(config, message, other, "padding behind the bits of its select must be zero")
