"""The task: its blocks, ring and rules, on which all parties agree before the first message.

Rules: a task is immutable and checked when it is made, so no other module checks it again; its canonical bytes, and so
its digest, are a function of its fields alone; nothing in it depends on a client's data.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgpack
import msgspec

from fsl_async.blocks import Binned as Binned
from fsl_async.blocks import Block as Block
from fsl_async.blocks import Dense as Dense
from fsl_async.blocks import Plain as Plain
from fsl_async.blocks import Sparse as Sparse
from fsl_async.digests import Domain, digest
from fsl_async.errors import PeerViolationError
from fsl_async.options import protecting, running, summing, taking_part
from fsl_async.options.fields import ProtocolName as ProtocolName
from fsl_async.options.fields import TaskFields
from fsl_async.options.taking_part import LARGEST_CLIENTS as LARGEST_CLIENTS
from fsl_async.wire.codec import UNREADABLE

_TOPICS: Final = {
    "who takes part": taking_part.FIELDS,
    "what is summed": summing.FIELDS,
    "what protects": protecting.FIELDS,
    "what runs": running.FIELDS,
}


class Task(TaskFields, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A federated learning task as all parties agree on it.

        task = Task(
            name="shop",
            blocks=[Sparse("items", rows=10_000, width=8, select=50), Dense("head", size=32)],
            ring=Ring(64, fraction_bits=24),
            min_clients=2,
            max_clients=100,
        )
        task.largest_value      # the largest absolute value of one update of one weight

    A task that only retrieves has rounds without submissions, and so without a minimum of clients; a task that only
    finds unions has no model. Neither has updates, and so no ring of its own:

        Task(name="lookup", protocol="psr", blocks=[Sparse("items", rows=10_000, width=8, select=50)], retrievals=20)
        Task(name="seen", protocol="psu", blocks=[Sparse("items", rows=10_000, select=50)], min_clients=5)

    Most tasks set the first six. The others go by four topics: who takes part (`sample` to `participants`), what is
    summed (`largest` to `optimizer`), what protects (`security` to `privacy`), what runs (`protocol` to `alignment`).

    Args:
        name: what the task is called.
        blocks: the model's blocks, in the order in which they travel; where only unions are found, sparse ones, whose
            width says nothing.
        ring: the ring of all updates; none in a task without updates.
        min_clients: a round with fewer is aborted before anything is revealed; 16 if it is not given. A task that only
            retrieves has none.
        max_clients: no more are admitted; bounds the largest value so that a sum cannot wrap.
        apply: what servers add to the model: the "sum"; the "mean" over the counted clients; the "weighted-mean", which
            is the sum divided by the sum of `weights`; the "row-mean", of each row over the clients that contribute to
            it, and of dense blocks over all; or a function of one's own, kept as "module:function" (see
            docs/server-rules.md).
        sample: how many take part in a round, drawn at random of the clients that ask: a whole number (all of them
            where fewer ask), or a fraction above 0 and at most 1 of them, rounded up. None: everybody.
        retrievals: how often a client may retrieve in one round, 8 if it is not given; one more is refused until the
            next round opens. A server needs memory for the trees of all of them.
        participants: what clients learn of each other: "count", how many were counted; or "names", also who.
        largest: the largest absolute value of one client's update of one weight; by default as large as the ring
            allows. A round whose sum exceeds what its clients can have contributed is refused, so the smaller this is,
            the less harm a wrong share does.
        weights: the name of a Dense block of size 1, in which each client submits its weight (how many examples it has,
            say). Their sum divides; the model has no such block.
        optimizer: `Sgd`, `Momentum` or `Adam`, the server's; None adds what `apply` says as it is.
        security: "verified" against malicious clients; or "semi-honest".
        bound: the largest L2 norm of one client's whole update, in all blocks together, in the values' units; the
            servers count only clients that have proved theirs (docs/bounds.md). None: nothing is proved.
        bound_proof: how it is proved: "exact"; or "projected", of constant size, for any ring and larger bounds, but
            an update up to twice the bound may pass.
        largest_weight: the most that one client weighs, where clients are weighed in a task with a bound: both servers
            count only who has proved a weight from 0 to that, and the mean divides by no less than that. None where
            nothing is proved: there one client with a weight below 0 can move the mean as far as it likes.
        min_contributors: a row is opened only if at least so many trees of the counted clients stand on it; of rows
            with fewer nothing is opened, and the sum is 0 there. None: every row is opened. A client counts once for
            each row that it selects, whether it updates it or not. With `apply="row-mean"` it is 1 if it is not given:
            contributors are counted, and every row that somebody selects is opened.
        lying_clients: how many clients that lie together `min_contributors` withstands. One of them counts up to 3 + σ
            times for a row, so `min_contributors` is at least lying_clients · (3 + σ) + 2: a row that only one honest
            client has then stays closed (docs/bounds.md). 0: every client is trusted to keep the protocol.
        privacy: `Privacy`, the noise that each server adds to its share of every sum, and the budget that all rounds
            have together; it needs a `bound`. A block of `weights` is a part of what is bounded, and gets noise, too.
        protocol: what its rounds run: "ssa", retrievals and submissions, which are summed; "psr", retrievals alone,
            until the round's time is over; or "psu", unions alone (which reveals them).
        selection: "adaptive", rows may change every round; or "fixed", one tree per session and a hint per round.
        updates: "retrieved", updated rows are among the retrieved ones and share their tree; or "any", a tree of their
            own.
        alignment: "all" rows; or "union", a private set union first (which reveals the union).

    Raises:
        MisuseError: a field is out of its range, or the fields contradict each other.

    Warns:
        UserWarning: the noise is so much that nothing is learnt of a block's rows.
    """

    def __post_init__(self) -> None:
        running.check(self)
        taking_part.check(self)
        summing.check(self)
        protecting.check(self)

    def __repr__(self) -> str:
        """What differs from the defaults, a line for each topic."""
        defaults = {field.name: field.default for field in msgspec.structs.fields(self)}
        lines = [f"Task({self.name!r}", f"  blocks: {', '.join(map(repr, self.blocks))}"]
        for topic, fields in _TOPICS.items():
            said = {name: getattr(self, name) for name in fields if name not in ("name", "blocks")}
            shown = [f"{name}={value!r}" for name, value in said.items() if value != defaults[name]]
            lines += [f"  {topic}: {', '.join(shown)}"] if shown else []
        return "\n".join(lines) + ")"

    def carrying(self, *blocks: Block) -> Task:
        """The same settings for a round that carries these blocks and applies nothing to a model."""
        apply = self.apply if self.rule == "row-mean" else "sum"  # what else makes one contributor enough
        return msgspec.structs.replace(
            self, blocks=blocks, apply=apply, weights=None, largest_weight=None, optimizer=None
        )

    def canonical(self) -> bytes:
        """The bytes of this task in digests and in a round's configuration."""
        return bytes(msgpack.packb(msgspec.to_builtins(self)))

    @staticmethod
    def parse(data: bytes, source: str) -> Task:
        """Read canonical bytes that come from `source`.

        Raises:
            PeerViolationError: the bytes are not a task.
        """
        try:
            plain = msgpack.unpackb(data, max_array_len=64, max_map_len=32, max_str_len=256, max_ext_len=0)
            task = msgspec.convert(plain, Task)
        except UNREADABLE as error:
            raise PeerViolationError(source, f"sent a task that cannot be read: {error}") from error
        if task.canonical() != data:
            raise PeerViolationError(source, "sent a task that is not in canonical form")
        return task

    def digest(self) -> bytes:
        """BLAKE2b-256 of the canonical bytes."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        """Every key of a round is derived from it."""
        return digest(Domain.TASK, self.canonical())
