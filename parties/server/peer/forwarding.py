"""A client's public part on its way from its carrier to the other server: what of it is right.

The carrier is not trusted. It must forward for its own clients alone, under the numbers that requests have, and
exactly as many bytes as the round implies. Parts are kept only for clients that are known here; of those that have not
come themselves yet, for no more than the round has places. What the part says is compared with the client's own word
(see `parties.server.round.assembly`). All of this is judged before the part is kept, because everything that is kept is
read back after a restart.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fsl_async.bin_count import planned
from fsl_async.bounds import verifier_bytes
from fsl_async.task import LARGEST_CLIENTS, ProtocolName, Task
from fsl_async.union import union_task
from fsl_async.wire.codec import CONTROL_LIMIT
from fsl_async.wire.messages import Forward
from fsl_async.wire.peer_lists import LONGEST_PACKED_NAME
from fsl_async.wire.pieces import list_bytes, longest_piece
from fsl_async.wire.public_part import counts_bytes
from parties.compute import ComputeLane
from parties.outcome import ENTRY_BYTES
from parties.server.clients.deposits import named, wrong_form
from parties.server.round.reading import layouts_of
from parties.server.round.run import RoundRun
from parties.server.store_layout import RequestKey

PURPOSES: dict[ProtocolName, tuple[str, ...]] = {
    "ssa": ("retrieve", "submit"),
    "psr": ("retrieve",),
    "psu": ("submit",),
}
"""By what a round runs, what its clients' public parts are for."""

_log = logging.getLogger("parties.server")


@dataclass(frozen=True)
class Forwarded:
    """A client's public part that the peer has forwarded.

    Attributes:
        message: what the peer says of it.
        size: of the part, in bytes.
        part: its digest; none where the part was not looked at.
    """

    message: Forward
    size: int
    part: bytes | None


async def take_in(run: RoundRun, message: Forward, bulk: memoryview, lane: ComputeLane, *, known: bool) -> Forwarded:
    """Keep a public part, to which there is no objection, if it is to be kept.

    Args:
        run: the round.
        message: what the peer says of the part.
        bulk: the part.
        lane: where it is looked through.
        known: whether its client is known here.

    Returns:
        What the actor is to take note of: without a digest where the part is not looked at. That is no violation: a
        client may be known to one server alone, or have found a place there alone, and that must not stop both.

    Raises:
        StorageError: it could not be kept.
    """
    if not has_place(run, message.client, known=known):
        return Forwarded(message, len(bulk), None)
    key, shape = RequestKey(message.client, message.purpose, message.query), run.config.shape
    layout = next(layout for layout in layouts_of(shape, message.purpose) if layout.size == len(bulk))  # all lie alike
    part, wrong = await lane.run_over(len(bulk), lambda: (named(layout, bulk), wrong_form(shape, layout, bulk)))
    name = part.part
    if run.requests.wants(key, name) or run.records.awaits(key, name):
        run.records.note_tree(key, name, part.tree)
        if wrong:
            run.records.note_malformed(key, name, wrong)
        else:
            await run.records.keep_part(key, name, bulk)
    return Forwarded(message, len(bulk), name)


def has_place(run: RoundRun, client: str, *, known: bool) -> bool:
    """Whether a part that the peer forwards for this client is to be looked at; the first that is not is told of."""
    if known and run.requests.has_place(client):
        return True
    if not run.requests.turned_away:
        why = "who is not known here" if not known else "and so many others have not come themselves"
        line = "%s forwards for %r, %s: not kept, not counted; nor is what may follow of this kind in round %d"
        _log.warning(line, run.peer, client, why, run.config.number)
    run.requests.turned_away += 1
    return False


def objection(run: RoundRun, message: Forward, size: int) -> str | None:
    """What is wrong with a public part that the other server sends; none where nothing is."""
    config = run.config
    if config.carrier(message.client) == run.server:
        return f"forwards for {message.client!r}, whose carrier it is not"
    if message.purpose not in PURPOSES[config.protocol]:
        return f"forwards a {message.purpose} in a round of {config.protocol}"
    if not run.start.is_drawn(message.client):
        return f"forwards for {message.client!r}, which was not drawn for this round"
    if message.query not in (range(1, config.task.retrievals + 1) if message.purpose == "retrieve" else (0,)):
        return f"forwards a {message.purpose} numbered {message.query}"
    sizes = {layout.size for layout in layouts_of(config.shape, message.purpose)}
    if size not in sizes:
        return f"forwards a {message.purpose} of {size} bytes, the round implies {sorted(sizes)}"
    return None


def longest_peer_message(task: Task) -> int:
    """Bytes that a message between the servers has at most: aligned rounds are never larger than the task itself."""
    task = planned(task)
    shapes = (task, union_task(task)) if task.finds_unions else (task,)
    parts = {layout.size for shape in shapes for purpose in PURPOSES["ssa"] for layout in layouts_of(shape, purpose)}
    shares = {size for shape in shapes for size in (list_bytes(shape), longest_piece(shape))}
    counts = counts_bytes(task) if task.min_contributors is not None else 0
    names = LONGEST_PACKED_NAME * LARGEST_CLIENTS if task.draws else 0
    lists = (ENTRY_BYTES + verifier_bytes(task)) * task.max_clients
    return CONTROL_LIMIT + max(*parts, *shares, counts, lists, names)
