"""Requests made by hand, and sent to one server alone: what a client can do that does not keep to the rules."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsl_async import kernels
from fsl_async.client import planting
from fsl_async.client.planting import ClientTrees, MasterSeeds, plant
from fsl_async.client.upload import retrieval_part, submission_bulk
from fsl_async.config import RoundConfig
from fsl_async.derivation import public_digest, tree_digest
from fsl_async.digests import Buffer
from fsl_async.geometry import Geometry, RowNumbers
from fsl_async.randomness import Randomness
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import FromServer, Message, Retrieve, Submit
from fsl_async.wire.public_part import Layout, Trees
from parties.client.client import Client
from parties.identity.handshake import Credentials
from parties.identity.tokens import voucher
from tests.support.shop import HEAD, WIDTH
from tests.support.shop import ROWS as SHOP_ROWS
from transport import Channel, HandshakeSettings, Role

ROWS = np.array([3, 5], dtype=np.uint32)


@dataclass(frozen=True)
class Request:
    """One request as both servers get it.

    Attributes:
        messages: to S0 and to S1.
        bulk: to S0 and to S1; one of the two is empty.
    """

    messages: tuple[Message, Message]
    bulk: tuple[bytes, bytes]


def planted(config: RoundConfig) -> ClientTrees:
    """Trees at two rows."""
    return plant(config, {0: ROWS}, MasterSeeds.fresh(os.urandom), os.urandom)


def placed_everywhere(row: int) -> Callable[..., Any]:
    """In place of `planting._place`: who chooses this row and no other plants it in all segments and stash slots."""
    place = planting._place

    def everywhere(
        config: RoundConfig, index: int, geometry: Geometry, rows: RowNumbers, randomness: Randomness
    ) -> Any:
        items, positions, left = place(config, index, geometry, rows, randomness)
        if rows.tolist() != [row]:
            return items, positions, left
        bins = geometry.bins
        for segment in range(bins.segments):
            (spot,) = kernels.Permutation(config.placement_key(index), segment, geometry.rows).forward(rows).tolist()
            column = spot // bins.positions
            tree = segment * bins.bins + column % bins.bins
            items[0][tree], positions[0][tree] = 0, spot - (column - column // bins.bins) * bins.positions
        for slot in range(1, len(items)):
            items[slot][0], positions[slot][0] = 0, row
        return items, positions, left

    return everywhere


def submission(config: RoundConfig, client: str, value: int = 1, trees: ClientTrees | None = None) -> Request:
    """A sound submission of a client called so: the same value in two rows, and in every weight of the head."""
    ring, carrier, client_trees = config.task.ring, config.carrier(client), trees or planted(config)
    most = config.task.largest_integer
    elements = ring.encode(np.full((2, WIDTH), float(value)), most)
    head = {0: ring.encode(np.full(HEAD, float(value)), most)}
    part, share = submission_bulk(config, client, client_trees, {0: (ROWS, elements)}, Trees.OWN, head)
    first, second = (
        Submit(
            round_id=config.round_id(),
            query=0,
            seed=seed,
            commitments=client_trees.seeds.commitments(config.round_id(), client),
            public_digest=name_of(Layout.submission(config.shape, Trees.OWN), part),
        )
        for seed in client_trees.seeds.msk
    )
    return Request((first, second), _to_carrier(carrier, bytes(part) + share))


def retrieval(config: RoundConfig, client: str, query: int = 1, trees: ClientTrees | None = None) -> Request:
    """A sound retrieval of two rows."""
    client_trees = trees or planted(config)
    part = retrieval_part(config, client_trees)
    first, second = (
        Retrieve(
            round_id=config.round_id(),
            query=query,
            seed=seed,
            commitments=client_trees.seeds.commitments(config.round_id(), client),
            public_digest=name_of(Layout.retrieval(config.shape), part),
        )
        for seed in client_trees.seeds.msk
    )
    return Request((first, second), _to_carrier(config.carrier(client), bytes(part)))


def name_of(layout: Layout, part: Buffer) -> bytes:
    """The digest of a public part, as whoever has all of its bytes finds it."""
    return public_digest(layout, part, tree_digest(layout, part))


def _to_carrier(carrier: int, bulk: bytes) -> tuple[bytes, bytes]:
    return (bulk, b"") if carrier == 0 else (b"", bulk)


def added_by(value: int) -> dict[str, np.ndarray]:
    """What `submission` adds to the sum."""
    items = np.zeros((SHOP_ROWS, WIDTH))
    items[ROWS] = value
    return {"items": items, "head": np.full(HEAD, float(value))}


async def post(channel: Channel, request: Request, server: int) -> None:
    """Send one server's half of a request."""
    await channel.send(*encode(request.messages[server], request.bulk[server]))


async def reply(channel: Channel) -> Message:
    """The next message that comes."""
    message: Message = decode(await channel.receive(10**6), FromServer, "the server").message
    return message


async def ask(channel: Channel, request: Request, server: int) -> Message:
    """Send one server's half of a request, and wait for its reply."""
    await post(channel, request, server)
    return await reply(channel)


@asynccontextmanager
async def connected(
    client: Client, server: int, payload: bytes | None = None, role: Role = Role.CLIENT
) -> AsyncIterator[Channel]:
    """A channel to one server with this client's keys, nothing said on it; with a payload of the test's own, or its."""
    setup = client.setup
    shown = voucher(setup.token, setup.task.digest(), server) if setup.token else b""
    said = Credentials.of(setup.identity, setup.task.digest(), shown).encode() if payload is None else payload
    settings = HandshakeSettings(setup.identity.channel_secret, role, setup.kind, setup.randomness, said)
    async with await setup.transport.dial(setup.addresses[server], setup.servers[server].channel, settings) as channel:
        yield channel
