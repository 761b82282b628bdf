"""What a client sends: the public parts built from its trees, and the answers turned back into rows.

Rules: the public parts have the sizes that `public_part.Layout` implies, whatever the rows; every tree gets a hint; a
session makes at most one hint per epoch, and a resend is the same bytes. If a client breaks that rule all the same (it
was started again from a copy of its store), no mask hides two payloads: conversion keys and dense masks depend on the
submission's salt, and that on all that it hides.

Source: paper §"Basic Protocols" and §"Updatable Distributed Point Function"; design §6, §8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.client.planting import ClientTrees, ForestTrees
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest, dense_mask, public_schedule, tag_keys
from fsl_async.digests import Buffer, Domain, digest
from fsl_async.errors import MisuseError, PeerViolationError, WrongAnswerError
from fsl_async.geometry import Forest, RowNumbers
from fsl_async.ring import Elements
from fsl_async.task import Dense, Task
from fsl_async.wire.answer import AnswerLayout
from fsl_async.wire.public_part import SALT_BYTES, ForestKey, Layout, Trees, forests_of

SparseUpdate = tuple[RowNumbers, Elements]
Payloads = Mapping[int, Elements]
Bytes = npt.NDArray[np.uint8]


def retrieval_part(config: RoundConfig, client_trees: ClientTrees) -> memoryview:
    """The public part of a retrieval: trees and selection hints."""
    return _fill(
        Layout.retrieval(config.shape), {**_tree_pieces(config, client_trees), **_select_pieces(config, client_trees)}
    )


def submission_bulk(
    config: RoundConfig,
    client: str,
    client_trees: ClientTrees,
    updates: Mapping[int, SparseUpdate],
    trees: Trees,
    dense: Payloads = MappingProxyType({}),
    plain: Payloads = MappingProxyType({}),
    fresh: bytes = b"",
) -> tuple[memoryview, bytes]:
    """A submission's public part, and the carrier's share of the blocks without trees.

    The share is the update minus the mask that the other server expands; it is empty where every block has trees.

    Args:
        config: the round.
        client: who submits; the proofs are bound to the name.
        client_trees: the client's trees.
        updates: by sparse block, rows of the trees and their elements (rows, width).
        trees: where the servers get the trees from.
        dense: elements of dense blocks, by their index; a block left out is zero.
        plain: elements of blocks that move plainly, by their index, as `plain_elements` returns them.
        fresh: random bytes on which the salt depends as well, where a proof of the task's bound needs a fresh one.

    Raises:
        MisuseError: an updated row is not among the trees' rows, or was deferred.
    """
    payloads, elements = _payloads(config.shape, client_trees, updates), _dense(config.shape, dense, plain)
    salt = _salt(config, client_trees, [*payloads.values(), elements], fresh)
    carrier, msk = config.carrier(client), client_trees.seeds.msk
    share = b""
    if len(elements):
        mask = dense_mask(config.shape, msk[1 - carrier], config.epoch, salt)
        share = np.ascontiguousarray(config.shape.ring.subtract(elements, mask)).tobytes()
    pieces: Pieces = {(None, "salt"): salt, (None, "dense"): dense_digest(share, msk[carrier])}
    pieces |= _hint_pieces(config, client_trees, payloads, salt)
    if trees is Trees.OWN:
        pieces |= _tree_pieces(config, client_trees)
    if config.shape.verified and trees is not Trees.SESSION:
        pieces |= _proof_pieces(config, client, client_trees)
    return _fill(Layout.submission(config.shape, trees), pieces), share


def update_elements(
    config: RoundConfig,
    client_trees: ClientTrees,
    updates: Mapping[int, SparseUpdate],
    dense: Payloads,
    plain: Payloads = MappingProxyType({}),
) -> dict[str, Elements]:
    """The whole update as the servers hold its shares, of which a bound is proved: by block, in the order of the wire.

    First the payloads of every sparse block's trees, without counts; then the blocks without trees.
    """
    found: dict[str, Elements] = {}
    payloads = _payloads(config.shape, client_trees, updates)
    for index, block in config.shape.sparse_blocks():
        of_block = [payload[:, : block.width] for key, payload in payloads.items() if key.block == index]
        found[block.name] = np.concatenate([payload.reshape(-1, *payload.shape[2:]) for payload in of_block])
    offset, elements = 0, _dense(config.shape, dense, plain)
    for each in (block for block in config.shape.blocks if isinstance(block, Dense)):
        found[each.name] = elements[offset : offset + each.size]
        offset += each.size
    return found


def plain_elements(
    config: RoundConfig,
    client_trees: ClientTrees,
    updates: Mapping[int, SparseUpdate],
    unions: Mapping[str, RowNumbers],
) -> dict[int, Elements]:
    """The elements of every block that moves plainly: each update at its row's rank in the union, zeros elsewhere.

    Args:
        config: the round.
        client_trees: names the rows that may be updated.
        updates: by sparse block, rows as the task names them, all in the union, and their elements (rows, width).
        unions: by sparse block, the rows of the round's union, ascending.

    Raises:
        MisuseError: an updated row is not among the trees' rows.
    """
    flat: dict[int, Elements] = {}
    for index, block in config.shape.plain_blocks():
        elements = config.shape.ring.zeros(block.rows, block.width)
        if index in updates:
            rows, values = updates[index]
            _places_among(client_trees.rows[index], rows, block.name, config.task)
            elements[np.searchsorted(unions[block.name], rows)] = values
        flat[index] = elements.reshape(-1, *elements.shape[2:])
    return flat


def read_answers(
    config: RoundConfig, client_trees: ClientTrees, answers: tuple[memoryview, memoryview]
) -> dict[int, npt.NDArray[Any]]:
    """Combine both servers' answers into the selected rows of each sparse block.

    Returns:
        By block, an array (rows, width) of the model's own dtype, in the order of the trees' rows. Deferred rows are
        zero; `ClientTrees.deferred` names them.

    Raises:
        PeerViolationError: an answer has another size than the task implies.
        WrongAnswerError: a server's answer is not what its model gives; which server's cannot be told.
    """
    task = config.shape
    dtypes = {index: np.dtype(config.block_model(block.name).dtype) for index, block in task.sparse_blocks()}
    row_bytes = {index: block.width * dtypes[index].itemsize for index, block in task.sparse_blocks()}
    layout = AnswerLayout.of(task, row_bytes)
    for server, answer in enumerate(answers):
        if len(answer) != layout.size:
            raise PeerViolationError(f"S{server}", f"answered with {len(answer)} bytes, the task implies {layout.size}")
    both = np.frombuffer(answers[0], dtype=np.uint8), np.frombuffer(answers[1], dtype=np.uint8)
    checks = [_is_authentic(client_trees, layout, index, both) for index in layout.tags]  # all: the time tells of none
    if not all(checks):
        raise WrongAnswerError
    combined = np.bitwise_xor(*both)
    rows = {
        index: np.zeros((len(client_trees.rows[index]), row_bytes[index]), dtype=np.uint8)
        for index, _ in task.sparse_blocks()
    }
    for key, forest in forests_of(task):
        item = client_trees.planted[key].item
        found = combined[layout.rows[key]].reshape(forest.trees, -1)
        rows[key.block][item[item >= 0]] = found[item >= 0]
    return {index: rows[index].view(dtypes[index]) for index, _ in task.sparse_blocks()}


def _is_authentic(client_trees: ClientTrees, layout: AnswerLayout, block: int, answers: tuple[Bytes, Bytes]) -> bool:
    """Whether both answers fit their tags in one block, dummies and stash slots included."""
    forests = [key for key in layout.rows if key.block == block]
    leaves = [client_trees.planted[key].leaves for key in forests]
    keys = np.concatenate([first[:, 1] ^ second[:, 1] for first, second in leaves])
    place = slice(layout.rows[forests[0]].start, layout.rows[forests[-1]].stop)
    first, second = (answer[place].reshape(len(keys), -1) for answer in answers)
    ours, theirs = (answer[layout.tags[block]].copy().view("<u8").astype(np.uint64) for answer in answers)
    return kernels.answers_match(keys, (first, second), (ours, theirs))


Pieces = dict[tuple[ForestKey | None, str], Buffer]


def _fill(layout: Layout, pieces: Pieces) -> memoryview:
    part = np.empty(layout.size, dtype=np.uint8).data  # unlike a bytearray, in huge pages where it is long
    for piece in layout.pieces:
        part[piece.start : piece.stop] = pieces.get((piece.key, piece.kind), b"")
    return part


def _tree_pieces(config: RoundConfig, client_trees: ClientTrees) -> Pieces:
    return {(key, "tree"): client_trees.planted[key].tree.to_bytes() for key, _ in forests_of(config.shape)}


def _select_pieces(config: RoundConfig, client_trees: ClientTrees) -> Pieces:
    return {
        (key, "select"): _select_hints(config, forest, client_trees.planted[key])
        for key, forest in forests_of(config.shape)
    }


def _select_hints(config: RoundConfig, forest: Forest, planted: ForestTrees) -> bytes:
    if forest.positions == 1:
        return b""
    keys = public_schedule(config.tree_key(Domain.SELECT))
    hints = kernels.make_select_hints(keys, *planted.leaves, planted.slots, forest.positions)
    bits = np.unpackbits(hints[:, None], axis=1, count=forest.positions, bitorder="little")
    return np.packbits(bits.reshape(-1), bitorder="little").tobytes()


def _hint_pieces(
    config: RoundConfig, client_trees: ClientTrees, payloads: Mapping[ForestKey, Elements], salt: bytes
) -> Pieces:
    return {
        (key, "hint"): _hints(config, key, forest, client_trees.planted[key], payloads[key], salt)
        for key, forest in forests_of(config.shape)
    }


_UNKNOWN_ROW = {
    "adaptive": "was not retrieved in this round, and the task allows updates of retrieved rows only "
    '(updates="retrieved")',
    "fixed": "is not among the session's rows, and the task's selection is fixed; start a new session "
    "(`forget_session`) to select other rows",
}


def _payloads(task: Task, client_trees: ClientTrees, updates: Mapping[int, SparseUpdate]) -> dict[ForestKey, Elements]:
    """The payload of every tree, forest by forest in the order of the wire."""
    spread = {index: _spread(task, index, client_trees, updates.get(index)) for index, _ in task.sparse_blocks()}
    return {
        key: _payload(task, forest, client_trees.planted[key], spread[key.block]) for key, forest in forests_of(task)
    }


def _spread(task: Task, index: int, client_trees: ClientTrees, update: SparseUpdate | None) -> Elements:
    """One payload row for each of the trees' rows, zero without an update; and a last row of zeros for dummies."""
    block = task.sparse(index)
    planted = client_trees.rows[index]
    payload = task.ring.zeros(len(planted) + 1, block.width)
    if update is None:
        return payload
    rows, elements = update
    places = _places_among(planted, rows, block.name, task)
    deferred = np.isin(rows, client_trees.deferred[index])
    if deferred.any():
        raise MisuseError(f"block {block.name!r}: row {rows[deferred][0]} was deferred; submit it in the next round")
    payload[places] = elements
    return payload


def _places_among(planted: RowNumbers, rows: RowNumbers, name: str, task: Task) -> npt.NDArray[np.intp]:
    """The index of each updated row among those that may be updated."""
    order, asked = np.argsort(planted), np.argsort(rows)
    ascending = planted[order]
    found = np.empty(len(rows), dtype=np.intp)
    found[asked] = np.searchsorted(ascending, rows[asked])  # in order: in any other, most look-ups miss the cache
    known = found < len(planted)
    known[known] = ascending[found[known]] == rows[known]
    if not known.all():
        raise MisuseError(f"block {name!r}: row {rows[~known][0]} {_UNKNOWN_ROW[task.selection]}")
    return np.asarray(order[found])


def _payload(task: Task, forest: Forest, planted: ForestTrees, payload: Elements) -> Elements:
    """The payload of each tree of a forest: (trees, payload elements); a count of 1 at the end where there are any."""
    values = payload[planted.item]  # item -1, a dummy, takes the zero row at the end
    if forest.positions == 1 and not forest.count_elements:
        return values
    elements = task.ring.zeros(forest.trees, forest.payload_elements)
    rows = elements[:, : forest.positions * forest.width]
    rows.reshape(forest.trees, forest.positions, forest.width, *elements.shape[2:])[
        np.arange(forest.trees), planted.slots
    ] = values
    elements[:, forest.positions * forest.width :] = task.ring.one
    return elements


def _salt(config: RoundConfig, client_trees: ClientTrees, hidden: Sequence[Elements], fresh: bytes) -> bytes:
    """A pseudo-random function of all that is hidden, keyed with both master seeds, which no server knows alone."""
    contents = (np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data for elements in hidden)
    key = b"".join(client_trees.seeds.msk)
    return digest(Domain.SALT, config.round_id(), fresh, *contents, key=key)[:SALT_BYTES]


def _dense(task: Task, dense: Payloads, plain: Payloads) -> Elements:
    """The elements of all blocks without trees, in the task's order, zero where there is no update."""
    given = {block.name: dense[index] for index, block in task.dense_blocks() if index in dense}
    given |= {block.name: plain[index] for index, block in task.plain_blocks() if index in plain}
    blocks = [block for block in task.blocks if isinstance(block, Dense)]
    return np.concatenate(
        [task.ring.zeros(0), *(given.get(block.name, task.ring.zeros(block.size)) for block in blocks)]
    )


def _hints(
    config: RoundConfig, key: ForestKey, forest: Forest, planted: ForestTrees, elements: Elements, salt: bytes
) -> memoryview:
    planes = kernels.payload_planes(elements.reshape(forest.trees, -1).view(np.uint8))
    convert = kernels.key_schedule(config.convert_key(key.block, salt))
    hints = kernels.make_hints(convert, *planted.leaves, planes, forest.element_bits)
    return kernels.payload_of_planes(hints, forest.payload_elements * forest.element_bits // 8).reshape(-1).data


def _proof_pieces(config: RoundConfig, client: str, client_trees: ClientTrees) -> Pieces:
    tree = client_trees.digest
    commitments = client_trees.seeds.commitments(config.round_id(), client)
    tag, mask = tag_keys(config, client, tree, commitments)
    pieces: Pieces = {}
    for key, forest in forests_of(config.shape):
        planted = client_trees.planted[key]
        # Enciphered one by one: a look-up by a secret index would show in the caches.
        counters = np.zeros((forest.trees, 2), dtype=np.uint64)
        counters[:, 0] = planted.alphas
        masks = kernels.encrypt_blocks(kernels.key_schedule(mask), counters)
        corrections = kernels.tag_corrections(kernels.key_schedule(tag), *planted.leaves, masks)
        pieces[key, "proof"] = corrections.reshape(-1).view(np.uint8).data
    return pieces
