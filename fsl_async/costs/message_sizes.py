"""What a round will cost: bytes on every channel and AES blocks on every machine, from public parameters alone.

Rules: bulk sizes come from `public_part` and `geometry`, and the length of a message from encoding one of the same
shape, so that a change of the wire changes the prediction with it; nothing depends on data, clock or machine; no kernel
is loaded. The caller adds what a transport puts around a message, because this package knows no transport.

AES blocks are counted as the kernels use them, without the padding of vectors: a node of a tree costs each party that
expands it one; a leaf one for every 16 bytes of payload, and two where its tree is proved.

A `Task` here is the one that a round works on, `RoundConfig.shape`: in a union round, and after one, it differs from
the task that was agreed.

Source: design §6 to §8 and §14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Literal

import msgpack
import msgspec

from fsl_async.bin_count import FAILURE_BITS, bins_of_round, scale, small_set_log2_failure
from fsl_async.bounds import private_bytes, verifier_bytes
from fsl_async.config import BlockModel, Draw, RoundConfig, ServerKeys
from fsl_async.digests import DIGEST_BYTES, KEY_BYTES
from fsl_async.geometry import BLOCK_BYTES, Forest, geometry_of
from fsl_async.options.taking_part import size_of
from fsl_async.server.batch import cell_bytes
from fsl_async.task import Dense, Sparse, Task
from fsl_async.union import UnionBlock, shape_of_round
from fsl_async.wire.answer import AnswerLayout
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import (
    Answer,
    AskedList,
    AskOutcome,
    AskPieces,
    Block,
    Commitment,
    Conclusion,
    Download,
    Enter,
    Finished,
    Forward,
    Hint,
    Message,
    Opened,
    Proofs,
    Recall,
    Receipt,
    Retrieve,
    RosterList,
    RowCounts,
    Share,
    SharePiece,
    Submit,
    TossCommitment,
    TossReveal,
)
from fsl_async.wire.peer_lists import pack_digests, pack_names
from fsl_async.wire.pieces import list_bytes, parts_of, spans_of
from fsl_async.wire.public_part import Layout, Trees, counts_bytes, dense_bytes, forests_of

KEY = bytes(KEY_BYTES)
DIGEST = bytes(DIGEST_BYTES)
SIGNATURE = bytes(64)


@dataclass(frozen=True)
class Setting:
    """What the sizes of a round depend on, besides its task.

    Attributes:
        clients: the names of all that take part; the first is the one whose costs are told.
        dtype: the model's, as in a round's configuration: f2, f4, f8, …
        number: the round's.
        statement_bytes: the statement that a client is given at the end of the round, without a union.
    """

    clients: tuple[str, ...]
    dtype: str = "f4"
    number: int = 1
    statement_bytes: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of one of the model's weights."""
        return int(self.dtype[1:])


@dataclass(frozen=True)
class Shape:
    """The trees of one sparse block.

    Attributes:
        bins: B, of all segments.
        bin_size: Θ.
        depth: levels of every tree.
        positions: positions that a leaf covers.
        log2_failure: the chance that a row finds no bin, as its logarithm; -inf where that cannot happen.
    """

    bins: int
    bin_size: int
    depth: int
    positions: int
    log2_failure: float

    @property
    def stretch(self) -> int:
        """By positions, then by depth: it never rises with the selection, and while it stays more rows cost more."""
        return 64 * self.positions + self.depth


def shape_of(task: Task, block: Sparse) -> Shape:
    """The trees of a block, and the larger of the two chances of failure by which their number is chosen."""
    forest = geometry_of(task, block).bins
    return Shape(
        forest.trees, forest.bin_size, forest.depth, forest.positions, _log2_failure(block.select, block.rows, forest)
    )


def _log2_failure(select: int, rows: int, forest: Forest) -> float:
    if forest.bins == rows:
        return -math.inf  # every row has a bin of its own in every segment
    fitted = -FAILURE_BITS - 240 * (forest.trees / select - scale(select))
    return max(fitted, small_set_log2_failure(select, forest.bins))


# ---- messages


@dataclass(frozen=True)
class Traffic:
    """Lengths of messages in bytes, as the codec makes them.

    Attributes:
        up: what one client sends to both servers together.
        down: what it receives from both.
        link: what the servers send each other on account of it.
    """

    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    link: tuple[int, ...] = ()

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.up + other.up, self.down + other.down, self.link + other.link)


def message_bytes(message: Message, bulk: int = 0) -> int:
    """The length of a message with that many bytes of bulk data."""
    return sum(map(len, encode(message))) + bulk


def specimen_config(task: Task, setting: Setting, *, union: tuple[UnionBlock, ...] = ()) -> RoundConfig:
    """A configuration of the same length as that of a main round, aligned on that union if there is one."""
    keys = ServerKeys(channel=DIGEST, statement=DIGEST)
    model = tuple(BlockModel(block.name, setting.dtype, DIGEST) for block in task.model_blocks)
    bins = bins_of_round(task, union, model)
    moved_plainly = shape_of_round(task, task.protocol, union, bins).plain_blocks()
    return RoundConfig(
        task=task,
        number=setting.number,
        session=setting.number,
        hash_seed=DIGEST,
        toss=(DIGEST, DIGEST),
        servers=(keys, keys),
        model=model,
        bins=bins,
        union=union,
        plain=tuple(BlockModel(block.name, setting.dtype, DIGEST) for _, block in moved_plainly),
        protocol=task.protocol,
        found=DIGEST if task.protocol == "psu" and setting.number > 1 else b"",
        sample=_specimen_draw(task, len(setting.clients)),
    )


def _specimen_draw(task: Task, clients: int) -> Draw | None:
    """A draw of about so many clients, in a task that draws who takes part."""
    if task.sample is None:
        return None
    asked = _asked(task.sample, clients)
    size = size_of(task.sample, asked, task.max_clients)
    return Draw(asked, size if size >= max(1, task.quorum) else 0, DIGEST)


def _asked(sample: float, clients: int) -> int:
    """How many have asked where about so many were drawn."""
    return math.ceil(clients / sample) if isinstance(sample, float) else max(clients, sample)


def entering(config: RoundConfig, *, known: bool) -> Traffic:
    """A client enters a round, and names the last one that it knows, if there was one: both servers' configurations."""
    enter = message_bytes(Enter(config.number - 1, DIGEST if known else b""))
    opened = message_bytes(Opened(config.canonical()))
    return Traffic(up=(enter,) * 2, down=(opened,) * 2)


def retrieval(task: Task, setting: Setting) -> Traffic:
    """A retrieval, which brings trees."""
    part = Layout.retrieval(task).size
    request = Retrieve(round_id=DIGEST, query=1, seed=KEY, commitments=(DIGEST, DIGEST), public_digest=DIGEST)
    return Traffic(
        up=(message_bytes(request, part), message_bytes(request)),
        down=_answers(task, setting),
        link=_forwarded("retrieve", part, setting),
    )


def recall(task: Task, setting: Setting) -> Traffic:
    """A retrieval of a session's rows, whose trees the servers have."""
    return Traffic(up=(message_bytes(Recall(DIGEST, DIGEST)),) * 2, down=_answers(task, setting))


def download(name: str, size: int, *, union: bool = False, whole: bool = False) -> Traffic:
    """A block that needs no trees, all rows of a sparse one, or its union, is fetched from the carrier."""
    parts = [slice(0, size)] if union else parts_of(size)
    request = partial(Download, round_id=DIGEST, block=name, union=union, whole=whole)
    reply = Block(round_id=DIGEST, block=name)
    return Traffic(
        up=tuple(message_bytes(request(part=number)) for number, _ in enumerate(parts)),
        down=tuple(message_bytes(reply, part.stop - part.start) for part in parts),
    )


def fetching(task: Task, setting: Setting, *, recalled: bool = False) -> Traffic:
    """A client has rows of its own and all that needs no trees; the trees are there already where it recalls them."""
    downloads = (
        download(block.name, block.weights * setting.weight_bytes)
        for block in task.model_blocks
        if isinstance(block, Dense)
    )
    planted = (recall if recalled else retrieval)(task, setting) if any(task.sparse_blocks()) else Traffic()
    return sum(downloads, planted)


def fetching_whole(task: Task, setting: Setting) -> Traffic:
    """A client has all blocks whole."""
    downloads = (
        download(block.name, block.weights * setting.weight_bytes, whole=isinstance(block, Sparse))
        for block in task.model_blocks
    )
    return sum(downloads, Traffic())


def submission(task: Task, trees: Trees, setting: Setting) -> Traffic:
    """A submission whose trees come from `trees`, with the dense blocks' shares and the proof of a bound."""
    part = Layout.submission(task, trees).size
    request = _request(task, trees)
    receipt = message_bytes(Receipt(round_id=DIGEST, digest=DIGEST, signature=SIGNATURE))
    return Traffic(
        up=(message_bytes(request, part + dense_bytes(task) + private_bytes(task)), message_bytes(request)),
        down=(receipt,) * 2,
        link=_forwarded("submit", part, setting),
    )


def outcome(setting: Setting, *, union: tuple[UnionBlock, ...] = ()) -> Traffic:
    """A client is told how the round ended, and after a union round what it found."""
    found = sum(len(msgpack.packb(msgspec.to_builtins(entry, builtin_types=(bytes,)))) for entry in union)
    finished = message_bytes(Finished(round_id=DIGEST, signature=SIGNATURE), setting.statement_bytes + found)
    return Traffic(up=(message_bytes(AskOutcome(DIGEST)),) * 2, down=(finished,) * 2)


def _answers(task: Task, setting: Setting) -> tuple[int, int]:
    """Both servers' answers: one row for every tree, and the tags."""
    row_bytes = {index: block.width * setting.weight_bytes for index, block in task.sparse_blocks()}
    answer = message_bytes(Answer(round_id=DIGEST, query=1), AnswerLayout.of(task, row_bytes).size)
    return answer, answer


def _request(task: Task, trees: Trees) -> Submit | Hint:
    bound = DIGEST if private_bytes(task) else b""
    if trees is Trees.SESSION:
        return Hint(DIGEST, DIGEST, DIGEST, bound)
    return Submit(
        round_id=DIGEST,
        query=1 if trees is Trees.RETRIEVAL else 0,
        seed=KEY,
        commitments=(DIGEST, DIGEST),
        public_digest=DIGEST,
        bound_digest=bound,
    )


def _forwarded(purpose: Literal["retrieve", "submit"], part: int, setting: Setting) -> tuple[int, ...]:
    """The carrier forwards a public part; an empty one too, because the other server waits for it."""
    query = 1 if purpose == "retrieve" else 0
    return (message_bytes(Forward(round_id=DIGEST, client=setting.clients[0], purpose=purpose, query=query), part),)


def toss_messages(number: int) -> tuple[int, ...]:
    """What both servers send each other to open a round, without repetitions."""
    each = (
        message_bytes(TossCommitment(number=number, commitment=DIGEST, model=DIGEST)),
        message_bytes(TossReveal(number=number, seed=DIGEST, nonce=DIGEST)),
    )
    return each * 2


def opening_messages(task: Task, setting: Setting) -> tuple[int, ...]:
    """What both servers send each other before a round opens: the toss, and where clients are drawn, who has asked."""
    tossed = toss_messages(setting.number)
    if task.sample is None:
        return tossed
    asked = islice(cycle(setting.clients), _asked(task.sample, len(setting.clients)))
    return tossed + (message_bytes(AskedList(number=setting.number), len(pack_names(asked))),) * 2


def round_messages(task: Task, setting: Setting) -> tuple[int, ...]:
    """What both servers send each other once per round, after the toss, without what clients cause.

    Where contributors are counted, as many bytes as if every row were opened: there are no more.
    """
    entries = len(pack_digests(dict.fromkeys(setting.clients, DIGEST)))
    proofs = len(pack_digests(dict.fromkeys(setting.clients, DIGEST + bytes(verifier_bytes(task)))))
    each = (
        message_bytes(RosterList(DIGEST), entries),
        *((message_bytes(Proofs(DIGEST), proofs),) if task.verified else ()),
        *((message_bytes(RowCounts(DIGEST), counts_bytes(task)),) if task.min_contributors is not None else ()),
        message_bytes(Commitment(DIGEST, DIGEST)),
        message_bytes(Share(DIGEST, DIGEST), list_bytes(task)),
        *_piece_messages(task),
        message_bytes(Conclusion(DIGEST, DIGEST)),
    )
    return each * 2


def _piece_messages(task: Task) -> Iterator[int]:
    """A server asks for the pieces of the other's share once, and each is a message."""
    spans = spans_of(task)
    if spans:
        yield message_bytes(AskPieces(DIGEST, 0))
    for place, span in enumerate(spans):
        yield message_bytes(SharePiece(DIGEST, place), span.size(task))


# ---- work


@dataclass(frozen=True)
class Work:
    """What is computed for one client.

    Attributes:
        client: AES blocks by the client.
        server: AES blocks by each server.
        read_rows: rows of the model's tables that each server reads for it.
        read_bytes: bytes of those rows.
    """

    client: int = 0
    server: int = 0
    read_rows: int = 0
    read_bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.client + other.client,
            self.server + other.server,
            self.read_rows + other.read_rows,
            self.read_bytes + other.read_bytes,
        )


def inner_nodes(leaves: int) -> int:
    """Nodes above the leaves of a tree of the least depth with so many, none of them without a leaf under it."""
    return sum(-(-leaves // 2**below) for below in range(1, (leaves - 1).bit_length() + 1))


def tree_work(task: Task) -> Work:
    """A client makes all trees of a task: both servers' roots, and both their nodes on each level."""
    return Work(client=sum(forest.trees * (2 + 2 * forest.depth) for _, forest in forests_of(task)))


def retrieval_work(task: Task, setting: Setting) -> Work:
    """Trees become selection bits, and every row is read once in each segment."""
    total = Work()
    for key, forest in forests_of(task):
        shares = forest.positions > 1  # else the control bits select
        block = task.sparse(key.block)
        rows = forest.segments * block.rows
        total += Work(
            client=2 * forest.trees * shares,
            server=forest.trees * (_walk(forest) + shares * forest.leaves),
            read_rows=rows,
            read_bytes=rows * block.width * setting.weight_bytes,
        )
    return total


def submission_work(task: Task, trees: Trees) -> Work:
    """Hints and proofs are made; trees become shares, and proofs in the same walk; dense shares are expanded."""
    proved = task.verified and trees is not Trees.SESSION
    mask = -(-dense_bytes(task) // BLOCK_BYTES)
    total = Work(client=mask, server=mask)
    for _, forest in forests_of(task):
        server = forest.trees * (_walk(forest) + forest.leaves * forest.planes)
        client = 2 * forest.trees * forest.planes
        if proved:
            server += forest.leaves * (forest.trees + 2)  # masks and keys of the leaves are the same for all trees
            client += 2 * forest.trees + forest.leaves
        total += Work(client=client, server=server)
    return total


def _walk(forest: Forest) -> int:
    """Blocks to expand one tree: its root from the master seed, then every node."""
    return 1 + inner_nodes(forest.leaves)


def folded_bytes(task: Task) -> int:
    """Bytes of accumulators that a server folds to rows at the end of a round, or has as rows already."""
    return cell_bytes(task) + dense_bytes(task)


def laid_out_rows(task: Task) -> int:
    """Rows of the model, once for each segment, that a server permutes before it can answer retrievals."""
    return sum(geometry_of(task, block).bins.segments * block.rows for _, block in task.sparse_blocks())
