"""Malicious clients for trials: each takes part like an honest one, except in one thing.

    malformed trees                     those of `tests.system.security.malformations`, in tasks with verified security
    different data for each server      commitments, bound digests, announced parts; a submission to one of them alone
    false proofs of a bound             another element, salt or digest, in tasks with a bound
    false weights                       below 0, or above the largest, in tasks with a bound that weigh their clients
    more than one submission            a second content, the same again and again
    no message at all                   random bytes on a channel that was honestly made

A submission that must be kept out of every sum is noted in `spoiled`, by round. Any other may be counted or not; honest
clients' digits must come out exactly in both cases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import msgspec
import numpy as np

from fsl_async import Task
from fsl_async.bounds import private_digest
from fsl_async.client.upload import SparseUpdate
from fsl_async.config import RoundConfig
from fsl_async.derivation import binding, dense_digest, public_digest, submission_digest, tree_digest
from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import ChannelError, FslError
from fsl_async.protocols import client as protocol
from fsl_async.protocols.entry import Leave
from fsl_async.ring import Elements, RingIntegers
from fsl_async.wire.messages import Receipt
from fsl_async.wire.public_part import SALT_BYTES, Layout, Trees, dense_bytes, forests_of
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.client.submission import Draft
from parties.client.submitting import Submitter
from parties.errors import RoundClosedError
from parties.outcome import SubmissionReceipt
from parties.testing.trials import Member
from tests.system.security.forgeries import Forgery, Grown, Malformation, Workshop, round_of
from tests.system.security.malformations import MALFORMATIONS

ATTEMPTS = 20
LONGEST_ANSWER = 2**20
REPEATS = 15
"""More often than a server takes one client's submissions in a round."""
BITS = 100
"""Tries to flip a bit that matters: after a union of a few rows most bins have none, and what is said there is idle."""


Sent: TypeAlias = Iterator[tuple[int, Draft]]
Spoil: TypeAlias = Callable[["_Spoiler", Draft], Sent]
"""What is sent in place of a draft: to which server which one, in this order."""
Weigh: TypeAlias = Callable[[int], int] | None


class Villain(Member):
    """A malicious client in place of an honest member; its ledger binds nobody."""

    name_of_villainy: str

    @staticmethod
    def in_place_of(member: Member, villainy: str) -> Villain:
        """Whoever does what an honest member would do, but for one thing."""
        member.__class__ = Villain
        assert isinstance(member, Villain)
        member.name_of_villainy = villainy
        return member

    def make(self, setup: ClientSetup) -> Client:
        """The client of one life; what it sends is in no ledger."""
        return _Spoiler(setup, self)

    async def live(self, client: Client) -> None:
        """Take part in round after round; a server that refuses it does not stop it."""
        while True:
            with suppress(RoundClosedError):
                await self._take_part(client)


class _Spoiler(Client):
    """Spoils each of its submissions, whole and well made, before it leaves."""

    def __init__(self, setup: ClientSetup, villain: Villain) -> None:
        super().__init__(setup)
        self.chance = np.random.default_rng(list(setup.randomness(16)))
        villainy, deliver = VILLAINIES[villain.name_of_villainy], partial(self._deliver, villain)
        self._actor.submitter = _SpoiledSubmissions(self._actor.submitter, deliver, villainy.weight)

    async def _deliver(self, villain: Villain, draft: Draft) -> SubmissionReceipt:
        villainy = VILLAINIES[villain.name_of_villainy]
        if villainy.must_not_count:
            villain.spoiled.add(draft.config.round_id())
        here = self._actor.participation
        here.round = protocol.outside(draft.config.number)
        await here.settle(draft.summary(), Leave(), counted=False)
        here.forget_session()
        if villainy.babbles:
            await self._babble()
        for server, spoiled in villainy.spoil(self, draft):
            try:
                await self._actor.requests.ask(server, spoiled.message(server), spoiled.bulk(server), Receipt)
            except (RoundClosedError, ChannelError):
                break
            except FslError:
                continue  # refused; on with it
        raise RoundClosedError("done")

    async def _babble(self) -> None:
        """Send random bytes where messages belong, until the server has had enough."""
        for server in (0, 1):
            with suppress(ChannelError):
                async with await self._actor.requests._dial(server) as channel:
                    await channel.send(self.chance.bytes(int(self.chance.integers(1, 3000))))
                    await channel.receive(LONGEST_ANSWER)


class _SpoiledSubmissions(Submitter):
    """Submissions with trees of their own, delivered in another way."""

    def __init__(
        self, honest: Submitter, deliver: Callable[[Draft], Awaitable[SubmissionReceipt]], weight: Weigh
    ) -> None:
        self.__dict__.update(vars(honest))
        self._deliver = deliver
        self._weight = weight

    async def submit(
        self, config: RoundConfig, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements], mark: bytes
    ) -> SubmissionReceipt:
        self._participation.forget_session()  # the trees of a retrieval, too, are on the servers already
        task = config.shape
        if self._weight is not None and task.largest_weight:
            place = next(index for index, block in task.dense_blocks() if block.name == task.weights)
            weight = RingIntegers(np.array([self._weight(task.largest_weight_integer)], dtype=object))
            dense = {**dense, place: task.ring.encode(weight, 2 ** (task.ring.bits - 1) - 1, "a false weight")}
        return await super().submit(config, sparse, dense, mark)

    async def deliver(self, draft: Draft) -> SubmissionReceipt:
        return await self._deliver(draft)


class Villainy(msgspec.Struct, frozen=True):
    """One thing that a malicious client does otherwise.

    Attributes:
        spoil: what it sends.
        must_not_count: whether nobody may be counted who does that.
        verified: whether it takes a task whose submissions are proved, for the servers to see it.
        dense: whether it takes a dense block.
        counted: whether it takes a task that counts contributors.
        bounded: whether it takes a task with a bound.
        weight: from the largest weight to the one that it has, in units of the ring; it takes a task that proves them.
        babbles: whether it also sends what is no message.
    """

    spoil: Spoil
    must_not_count: bool = True
    verified: bool = False
    dense: bool = False
    counted: bool = False
    bounded: bool = False
    weight: Weigh = None
    babbles: bool = False


# ---- malformed trees


def _malformed(malformation: Malformation) -> Spoil:
    def spoil(client: _Spoiler, draft: Draft) -> Sent:
        for forgery in _unsound(client, draft, malformation):
            spoiled = _bound(client, draft, forgery)
            yield from ((server, spoiled) for server in (0, 1))

    return spoil


def _unsound(client: _Spoiler, draft: Draft, malformation: Malformation) -> list[Forgery]:
    """A forgery of a draft whose trees or proofs are wrong: of this kind if there is one, else by a single bit.

    None where nothing is found that matters: after an empty union there is no row for a tree to reach.
    """
    workshop = Workshop(draft.config.shape, int(client.chance.integers(2**32)))
    workshop.config, workshop.earlier = draft.config, round_of(draft.config.shape, draft.config.number + 1)
    for kind in (*[malformation] * ATTEMPTS, *[_A_BIT] * BITS):
        try:
            forgery = kind.spoil(_forgery(draft), workshop)
        except ValueError:
            continue  # these trees are too low for it
        if not forgery.sound():
            return [forgery]
    return []


_A_BIT = next(kind for kind in MALFORMATIONS if kind.name == "a bit of a tag correction flipped")


def _forgery(draft: Draft) -> Forgery:
    shape = draft.config.shape
    pieces = Layout.submission(shape, Trees.OWN).split(memoryview(bytes(draft.part)))
    grown = {key: Grown.read(forest, pieces[key, "tree"], pieces[key, "proof"]) for key, forest in forests_of(shape)}
    return Forgery(draft.config, draft.client, draft.header.seeds, grown, bytes(draft.part))


def _bound(client: _Spoiler, draft: Draft, forgery: Forgery) -> Draft:
    """The draft that a forgery makes, all its digests right."""
    part, tree = bytearray(forgery.public_part()), forgery.tree_digest()
    header, carrier = draft.header, draft.config.carrier(draft.client)
    dense, private = _own_bulk(draft)
    if dense:
        part[-DIGEST_BYTES:] = dense_digest(dense, forgery.msk[carrier])
    public = public_digest(forgery.layout, part, tree)
    of_bound = private_digest(private, forgery.msk[carrier]) if private else b""
    identity = client.setup.identity.public.digest()
    bind = binding(draft.config.round_id(), identity, public, tree, forgery.commitments)
    header = msgspec.structs.replace(
        header,
        digest=submission_digest(bind, of_bound),
        seeds=forgery.msk,
        commitments=forgery.commitments,
        public_digest=public,
        bound_digest=of_bound,
    )
    return replace(draft, header=header, part=bytes(part))


def _own_bulk(draft: Draft) -> tuple[memoryview, memoryview]:
    """What the carrier alone gets: the dense share, and the private part of the bound's proof."""
    shares, size = memoryview(draft.shares), dense_bytes(draft.config.shape)
    return shares[:size], shares[size:]


# ---- false proofs of a bound


def _where_bounded(spoil: Spoil) -> Spoil:
    """In a round that finds a union nothing is bounded: there another part is announced."""
    return lambda client, draft: (spoil if draft.header.bound_digest else _another_part_announced)(client, draft)


def _another_element(client: _Spoiler, draft: Draft) -> Sent:
    """One bit of the proof is another, and its digest right: no server can see it alone."""
    yield from ((server, _other_private(client, draft)) for server in (0, 1))


def _of_another_salt(client: _Spoiler, draft: Draft) -> Sent:
    """The masks are others than the proof was made for, and the hints."""
    spoiled = _of_salt(draft, client.chance.bytes(SALT_BYTES))
    yield from ((server, spoiled) for server in (0, 1))


def _other_private(client: _Spoiler, draft: Draft) -> Draft:
    dense, private = _own_bulk(draft)
    changed = bytearray(private)
    changed[-32] ^= 1  # the lowest bits of the last element, which stays below the prime
    of_bound = private_digest(changed, draft.header.seeds[draft.config.carrier(draft.client)])
    return replace(_with_header(draft, bound_digest=of_bound), shares=bytes(dense) + bytes(changed))


# ---- false counts


def _false_count(client: _Spoiler, draft: Draft) -> Sent:
    """One tree counts twice, or not at all: a hint's last element is another."""
    shape, layout = draft.config.shape, Layout.submission(draft.config.shape, draft.header.trees)
    part, size = bytearray(draft.part), shape.ring.element_bytes
    piece = next(piece for piece in layout.pieces if piece.kind == "hint")
    forest = dict(forests_of(shape))[piece.key]
    tree = int(client.chance.integers(forest.trees))
    at = piece.start + ((tree + 1) * forest.payload_elements - 1) * size
    count = int.from_bytes(part[at : at + size], "little") + 1
    part[at : at + size] = (count % 2 ** (8 * size)).to_bytes(size, "little")
    public = public_digest(layout, part, tree_digest(layout, part))
    spoiled = replace(_with_header(draft, public_digest=public), part=bytes(part))
    yield from ((server, spoiled) for server in (0, 1))


# ---- other words to each server


def _other_commitments(client: _Spoiler, draft: Draft) -> Sent:
    """Each server sees its own commitment right, and another one for the other server."""
    for server in (0, 1):
        commitments = list(draft.header.commitments)
        commitments[1 - server] = client.chance.bytes(DIGEST_BYTES)
        yield server, _with_header(draft, commitments=tuple(commitments))


def _another_dense_share(client: _Spoiler, draft: Draft) -> Sent:
    """The share is not that whose digest stands in the public part; where a union is found there is none."""
    if not draft.shares:
        yield from _another_part_announced(client, draft)
        return
    shares = bytearray(draft.shares)
    shares[0] ^= 1
    yield from ((server, replace(draft, shares=bytes(shares))) for server in (0, 1))


def _another_digest(field: str, client: _Spoiler, draft: Draft) -> Sent:
    """To the other server than the one that gets the bytes."""
    carrier = draft.config.carrier(draft.client)
    yield carrier, draft
    yield 1 - carrier, _with_header(draft, **{field: client.chance.bytes(DIGEST_BYTES)})


_another_part_announced, _another_bound_digest = (
    partial(_another_digest, field) for field in ("public_digest", "bound_digest")
)


def _anothers_seeds(client: _Spoiler, draft: Draft) -> Sent:
    """Seeds that are committed to in somebody else's name."""
    other = replace(_forgery(draft), client="somebody else") if draft.config.task.verified else None
    commitments = other.commitments if other else tuple(reversed(draft.header.commitments))
    yield from ((server, _with_header(draft, commitments=commitments)) for server in (0, 1))


def _one_server_alone(client: _Spoiler, draft: Draft) -> Sent:
    yield int(client.chance.integers(2)), draft


def _with_header(draft: Draft, **fields: object) -> Draft:
    return replace(draft, header=msgspec.structs.replace(draft.header, **fields))


# ---- more than one submission


def _as_it_is(client: _Spoiler, draft: Draft) -> Sent:
    yield from ((server, draft) for server in (0, 1))


def _two_contents(client: _Spoiler, draft: Draft) -> Sent:
    """To both servers one after the other, in opposite orders."""
    changed = _of_salt(draft, client.chance.bytes(SALT_BYTES))
    first, second = client.chance.permutation(2)
    yield int(first), draft
    yield int(second), changed
    yield int(first), changed
    yield int(second), draft


def _of_salt(draft: Draft, salt: bytes) -> Draft:
    """The draft with another salt, which its public digest covers."""
    layout, part = Layout.submission(draft.config.shape, draft.header.trees), salt + bytes(draft.part)[SALT_BYTES:]
    public = public_digest(layout, part, tree_digest(layout, part))
    return replace(_with_header(draft, public_digest=public), part=part)


def _again_and_again(client: _Spoiler, draft: Draft) -> Sent:
    for _ in range(REPEATS):
        yield from ((server, draft) for server in (0, 1))


VILLAINIES: dict[str, Villainy] = {
    **{kind.name: Villainy(_malformed(kind), verified=True) for kind in MALFORMATIONS},
    "a tree that does not count once": Villainy(_false_count, counted=True),
    "other commitments to each server": Villainy(_other_commitments),
    "a dense share of another digest": Villainy(_another_dense_share, dense=True),
    "another element in the proof of a bound": Villainy(_where_bounded(_another_element), bounded=True),
    "another salt of the proof of a bound": Villainy(_where_bounded(_of_another_salt), bounded=True),
    "another digest of a bound's proof to one server": Villainy(_where_bounded(_another_bound_digest), bounded=True),
    "a weight just below 0": Villainy(_where_bounded(_as_it_is), bounded=True, weight=lambda most: -1),
    "a weight far below 0": Villainy(_where_bounded(_as_it_is), bounded=True, weight=lambda most: -3 * most),
    "a weight above the largest": Villainy(_where_bounded(_as_it_is), bounded=True, weight=lambda most: most + 1),
    "another part announced than sent": Villainy(_another_part_announced),
    "seeds committed to in another's name": Villainy(_anothers_seeds),
    "a submission to one server alone": Villainy(_one_server_alone),
    "two contents in one round": Villainy(_two_contents, must_not_count=False),
    "random bytes in place of messages": Villainy(_as_it_is, must_not_count=False, babbles=True),
    "the same again and again": Villainy(_again_and_again, must_not_count=False),
}


FALSE_WEIGHTS = tuple(name for name, villainy in VILLAINIES.items() if villainy.weight is not None)


def villainies(task: Task) -> Iterator[str]:
    """Those that a task has room for."""
    for name, villainy in VILLAINIES.items():
        fits = (task.verified or not villainy.verified) and (any(task.dense_blocks()) or not villainy.dense)
        fits &= task.bound is not None or not villainy.bounded
        fits &= task.largest_weight is not None or villainy.weight is None
        if fits and (task.min_contributors is not None or not villainy.counted):
            yield name
