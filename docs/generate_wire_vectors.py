"""Write docs/wire-vectors.json: examples of what the pages of docs/wire describe, made by the library from fixed seeds.

Run it with the environment's python (`make docs`). tests/test_wire_page.py fails while the file is out of date, and
reads it with decoders of its own, written from the pages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgpack
import msgspec
import numpy as np
import trio

from fsl_async import Dense, Ring, Sparse, Task, derivation
from fsl_async.bin_count import bins_of_round
from fsl_async.client.bound import bound_part
from fsl_async.client.planting import ClientTrees, MasterSeeds, plant
from fsl_async.client.upload import retrieval_part, submission_bulk, update_elements
from fsl_async.config import RoundConfig, describe_model
from fsl_async.digests import Domain, derive_key, digest
from fsl_async.geometry import bin_limits
from fsl_async.kernels import Permutation, hash_blocks, key_schedule, keystream
from fsl_async.merkle import RosterTree, blind_of
from fsl_async.protocols import toss
from fsl_async.protocols.ssa.side_effects import share_commitment
from fsl_async.protocols.ssa.states import Terms
from fsl_async.randomness import SeededSource
from fsl_async.server.aggregation import Aggregate, Claim, Submission
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.union import pack_union
from fsl_async.wire import messages
from fsl_async.wire.codec import encode
from fsl_async.wire.peer_lists import mark_of, pack_digests
from fsl_async.wire.pieces import piece_digest, share_digest, spans_of
from fsl_async.wire.public_part import ALL_ROWS, Layout, Part, Trees, forests_of
from parties import simulate
from parties.identity.handshake import Credentials, served
from parties.identity.keys import Identity
from parties.identity.tokens import voucher
from parties.outcome import Aborted, Done, RoundReport
from parties.statement import Statement
from transport import Channel
from transport.noise import CipherState, HandshakeState, KeyPair
from transport.preamble import PROTOCOL_VERSION, Kind, Preamble, Role, prologue
from transport.records import REKEY_INTERVAL, RecordWriter

FILE = Path(__file__).with_name("wire-vectors.json")

ITEMS, HEAD = Sparse("items", rows=40, select=3, width=2, stash=1), Dense("head", size=3)
VERIFIED = Task(name="vectors", blocks=[ITEMS, HEAD], ring=Ring(64, fraction_bits=8), min_clients=2, max_clients=10)
"""Two blocks, proofs, a stash slot, and leaves of one row."""

FIXED = msgspec.structs.replace(VERIFIED, name="vectors with a session", selection="fixed")
BOUNDED = {
    method: msgspec.structs.replace(VERIFIED, name=f"vectors with a bound, {method}", bound=50, bound_proof=method)
    for method in ("exact", "projected")
}
TWO_BLOCKS = msgspec.structs.replace(
    VERIFIED, name="vectors with two blocks", blocks=[ITEMS, Sparse("tags", rows=9, select=2), HEAD]
)

COUNTED = msgspec.structs.replace(VERIFIED, name="vectors with counts", min_contributors=2, lying_clients=0)
"""The same with a count beside each row, and a leaf over no row."""

SEMI_HONEST = Task(
    name="vectors of four rows a leaf",
    blocks=[Sparse("items", rows=40, select=3)],
    ring=Ring(32),
    security="semi-honest",
    min_clients=2,
    max_clients=10,
)
"""One block whose leaves cover four rows, so that a retrieval has selection hints."""

LIMITED = ((1, 1), (1, 9), (3, 2**32), (4, 40), (15, 100), (16, 2**20), (64, 2**20), (255, 300), (256, 2**20))
LIMITED += ((1_023, 2**20), (1_024, 2**20), (10**6, 2**21))
ROWS = [7, 21, 39]
OPENED = {"items": np.array([7, 39], dtype=np.uint32)}
CLIENT = "alice"


def fixed(name: str, size: int = 32) -> bytes:
    """Bytes that stand for what is drawn."""
    return SeededSource(16, name)(size)


BOTH_COUNTS = (fixed("counts 0"), fixed("counts 1"))
"""Digests of both servers' shares of the counts, in place of those by which other clients' rows are opened."""


EPHEMERAL = (fixed("client's ephemeral"), fixed("server's ephemeral"))
"""Secret keys of both sides of a handshake."""


def identity(name: str) -> Identity:
    """A party's keys."""
    return Identity.generate(name, SeededSource(16, "keys of", name))


TASKS: tuple[dict[str, Any], ...] = (
    {
        "name": "shop",
        "blocks": [{"type": "sparse", "name": "items", "rows": 10_000, "select": 50, "width": 8}],
        "ring": {"bits": 64, "fraction_bits": 24},
    },
    {
        "name": "clicks",
        "blocks": [
            {"type": "sparse", "name": "words", "rows": 2**17, "select": 300, "stash": 1},
            {"type": "dense", "name": "head", "size": 65},
            {"type": "dense", "name": "examples", "size": 1},
        ],
        "ring": {"bits": 128, "fraction_bits": 32},
        "selection": "fixed",
        "updates": "any",
        "max_clients": 70_000,
        "largest": 3,
        "participants": "count",
        "apply": "weighted-mean",
        "weights": "examples",
        "largest_weight": 1,
        "optimizer": {"type": "adam", "rate": 1, "beta2": 0.999},
        "sample": 0.25,
        "bound": 5,
        "bound_proof": "projected",
        "min_contributors": 24,
        "lying_clients": 4,
        "privacy": {"noise": 12.5, "delta": 1e-9, "budget": 8},
    },
)
"""What operators give of a task; the rest are defaults."""


def _task(given: dict[str, Any]) -> dict[str, Any]:
    task = msgspec.convert(given, Task)
    return {"given": given, "canonical": task.canonical(), "digest": task.digest()}


def vectors() -> dict[str, Any]:
    """All examples, by section of the page; bytes as hexadecimal text."""
    return {
        "preamble": _preambles(),
        "noise": _handshake(),
        "marks": _marks(),
        "records": _records(),
        "connection": _connection(),
        "messages": _messages(),
        "lists": _lists(),
        "digests": _digests(),
        "tasks": [_task(given) for given in TASKS],
        "primitives": _primitives(),
        "bins": [
            dict(zip(("k", "m", "least", "most"), (k, m, *bin_limits(Sparse("items", rows=m, select=k))), strict=True))
            for k, m in LIMITED
        ],
        "refused bins": _refused_bins(),
        "permutations": [_permutation(rows) for rows in (1, 2, 3, 40, 1000)],
        "verified": _round(VERIFIED),
        "counted": _round(COUNTED),
        "semi-honest": _round(SEMI_HONEST),
        "two blocks": _round(TWO_BLOCKS),
        "session": _session(),
        "bounds": {method: _bounded(task) for method, task in BOUNDED.items()},
        "fixed point": _fixed_point(),
        "union rounds": _union_rounds(),
        "toss": _toss(),
        "statements": _statements(),
        "lists of clients": _roster_tree(),
        "unions": [
            _union(rows, domain) for rows, domain in (([], 40), ([3, 4, 200], 10_000), (list(range(1, 40)), 40))
        ],
    }


def _preambles() -> dict[str, Any]:
    client, server = (Preamble(PROTOCOL_VERSION, role, Kind.LIVE).encode() for role in (Role.CLIENT, Role.SERVER_0))
    return {"client": client, "server": server, "prologue": prologue(client, server)}


def _handshake() -> dict[str, Any]:
    own, server = fixed("client's key"), fixed("server's key")
    contents = (VERIFIED.digest(), b"credentials")
    sent, client_side, server_side = _shaken(own, server, contents)
    welcome = b"".join(RecordWriter(server_side.split()[0]).message([b"\x01" + _padded(b"alice", 1_023)]))
    return {
        "client private": own,
        "server private": server,
        "ephemeral private": [*EPHEMERAL],
        "contents of the second and third": contents,
        "messages": sent,
        "handshake hash": client_side.handshake_hash,
        "welcome": welcome,
    }


def _shaken(
    own: bytes, server: bytes, contents: tuple[bytes, bytes]
) -> tuple[list[bytes], HandshakeState, HandshakeState]:
    """The three messages of a handshake of two secret keys, and both sides after it."""
    pair, agreed = KeyPair.from_private(server), _preambles()["prologue"]
    client_side = HandshakeState(KeyPair.from_private(own), pair.public, agreed, lambda size: EPHEMERAL[0])
    server_side = HandshakeState(pair, None, agreed, lambda size: EPHEMERAL[1])
    sent = []
    for turn, payload in enumerate((b"", *(_padded(content, 1_024) for content in contents))):
        writer, reader = (server_side, client_side) if turn % 2 else (client_side, server_side)
        sent.append(writer.write_message(payload))
        reader.read_message(sent[-1])
    return sent, client_side, server_side


def _connection() -> dict[str, Any]:
    """Every byte of a connection: a client asks for the task, gives a sign of life, and says CLOSE."""
    alice, server = identity(CLIENT), identity("S0")
    contents = (VERIFIED.digest(), Credentials.of(alice, VERIFIED.digest()).encode())
    sent, client_side, server_side = _shaken(alice.channel_secret, server.channel_secret, contents)
    asking, answering = RecordWriter(client_side.split()[0]), RecordWriter(server_side.split()[0])
    welcome = answering.message([b"\x01" + _padded(CLIENT.encode(), 1_023)])
    request, reply = encode(messages.AskTask()), encode(messages.TaskIs(VERIFIED.canonical()))
    return {
        "name": CLIENT,
        "client's channel key, private": alice.channel_secret,
        "client's statement key, private": alice.statement_secret,
        "server's channel key, private": server.channel_secret,
        "ephemeral keys, private": [*EPHEMERAL],
        "task": VERIFIED.canonical(),
        "client": [
            _preambles()["client"],
            sent[0],
            sent[2],
            *_records_of(asking, request),
            asking.ping(),
            asking.close(),
        ],
        "server": [
            _preambles()["server"],
            sent[1],
            b"".join(welcome),
            *_records_of(answering, reply),
            answering.close(),
        ],
    }


def _records_of(writer: RecordWriter, parts: Any) -> list[bytes]:
    return [bytes(record) for record in writer.message(parts)]


def _marks() -> dict[str, Any]:
    tasks = [VERIFIED.digest(), SEMI_HONEST.digest()]
    return {"tasks": tasks, "payload": served(tasks, SeededSource(16, "marks"))}


def _padded(content: bytes, size: int) -> bytes:
    return (len(content).to_bytes(2, "big") + content).ljust(size, b"\0")


def _records() -> dict[str, Any]:
    key = fixed("record key")
    writer = RecordWriter(CipherState(key))
    stream = b"".join((*writer.message([b"hello"]), writer.ping(), *writer.message([b""])))
    long = RecordWriter(CipherState(key))
    records = [long.ping() for _ in range(REKEY_INTERVAL + 1)]
    return {
        "key": key,
        "stream": stream + writer.close(),
        "1024th and 1025th PING": records[-2] + records[-1],
        "of a message of 70,000 zeros": digest(
            Domain.SIMULATION, b"".join(RecordWriter(CipherState(key)).message([bytes(70_000)]))
        ),
    }


def _messages() -> dict[str, Any]:
    round_id, part = fixed("round"), fixed("digest")
    seed = fixed("seed", 16)
    both = (fixed("c0"), fixed("c1"))
    examples: list[tuple[messages.Message, bytes]] = [
        (messages.AskTask(), b""),
        (messages.Enter(after=3), b""),
        (messages.Enter(after=3, known=round_id), b""),
        (messages.Retrieve(round_id=round_id, query=1, seed=seed, commitments=both, public_digest=part), b"part"),
        (messages.Recall(round_id, both[0]), b""),
        (messages.Download(round_id=round_id, block="head"), b""),
        (messages.Download(round_id=round_id, block="items", union=True), b""),
        (messages.Download(round_id=round_id, block="items", whole=True), b""),
        (messages.Download(round_id=round_id, block="items", whole=True, part=3), b""),
        (
            messages.Submit(
                round_id=round_id,
                query=1,
                seed=seed,
                commitments=both,
                public_digest=part,
            ),
            b"part and share",
        ),
        (messages.Hint(round_id, both[0], part, bound_digest=fixed("bound")), b"part, share and proof"),
        (messages.AskOutcome(round_id), b""),
        (messages.TaskIs(b"task"), b""),
        (messages.Opened(b"configuration"), b""),
        (messages.Answer(round_id=round_id, query=1), b"rows"),
        (messages.Block(round_id=round_id, block="head"), b"block"),
        (messages.Receipt(round_id=round_id, digest=part, signature=part + part), b""),
        (messages.Finished(round_id=round_id, signature=part + part), b"statement"),
        (messages.Refused(reason="busy", explanation="come again", retry_after=5), b""),
        (messages.Known(settled=2, last=round_id, said=9), b""),
        (messages.TossCommitment(number=3, commitment=part, model=round_id), b""),
        (messages.TossReveal(number=3, seed=fixed("half"), nonce=fixed("nonce")), b""),
        (messages.AskedList(number=3), b"names"),
        (messages.HeldParts(round_id), mark_of(CLIENT, "retrieve", 1, part)),
        (messages.Forward(round_id=round_id, client=CLIENT, purpose="retrieve", query=1), b"part"),
        (messages.Closing(round_id), b""),
        (messages.Held(round_id, 3), b""),
        (messages.RosterList(round_id), b"list"),
        (messages.Proofs(round_id), b"list"),
        (messages.RowCounts(round_id), b"counts"),
        (messages.Commitment(round_id, part), b""),
        (messages.Share(round_id, fixed("nonce")), b"digests of pieces"),
        (messages.AskPieces(round_id, 2), b""),
        (messages.SharePiece(round_id, 70_000), b"piece"),
        (messages.Conclusion(round_id, part), b""),
        (messages.Abort(round_id, "too few clients"), b""),
    ]
    return {
        f"{number:02} {type(message).__name__}": {
            "fields": msgspec.to_builtins(message, builtin_types=(bytes,)),
            "bulk": bulk,
            "bytes": b"".join(bytes(piece) for piece in encode(message, *([bulk] if bulk else []))),
        }
        for number, (message, bulk) in enumerate(examples)
    }


def _refused_bins() -> dict[str, bytes]:
    """Configurations that a client refuses, by what they say of the bins of their only sparse block."""
    plain = msgpack.unpackb(_config(VERIFIED).canonical())
    least, most = bin_limits(VERIFIED.sparse(0))
    said = {"too few": [least - 1], "too many": [most + 1], "none in a round without a union": [0]}
    said |= {"no number": [], "two numbers": [least, least], "a number below 0": [-1]}
    return {name: bytes(msgpack.packb(plain | {"bins": bins})) for name, bins in said.items()}


def _lists() -> dict[str, Any]:
    entries = {"bob": fixed("bob's"), "alice": fixed("alice's")}
    packed = pack_digests(entries)
    return {"entries": entries, "packed": packed, "digest": digest(Domain.ROSTER, packed)}


LONG = bytes(range(205)) * 5
"""A part of 1,025 bytes."""


def _digests() -> dict[str, Any]:
    return {
        "tags": {domain.name: domain.value.decode() for domain in Domain},
        "unkeyed": {"tag": "fsl.round", "parts": [b"", b"abc"], "digest": digest(Domain.ROUND, b"", b"abc")},
        "keyed": {
            "tag": "fsl.salt",
            "key": b"key",
            "parts": [b"abc"],
            "digest": digest(Domain.SALT, b"abc", key=b"key"),
        },
        "long": {"tag": "fsl.tree", "parts": [b"abc", LONG], "digest": digest(Domain.TREE, b"abc", LONG)},
        "key": {"tag": "fsl.expand", "parts": [b"abc"], "derived": derive_key(Domain.EXPAND, b"abc")},
    }


def _primitives() -> dict[str, Any]:
    key, block = fixed("aes key", 16), fixed("block", 16)
    blocks = np.frombuffer(block, dtype="<u8").reshape(1, 2).copy()
    return {
        "key": key,
        "block": block,
        "hash": hash_blocks(key_schedule(key), blocks).tobytes(),
        "keystream, nonce 2^32 + 1, two blocks": keystream(key, 2**32 + 1, 2).tobytes(),
    }


def _permutation(rows: int) -> dict[str, Any]:
    key = fixed("permutation", 16)
    shown = np.arange(min(rows, 40), dtype=np.uint32)
    images = [Permutation(key, segment, rows).forward(shown).tolist() for segment in range(3)]
    return {"key": key, "rows": rows, "of the first rows, by segment": images}


def _model(task: Task) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(16)
    model: dict[str, np.ndarray[Any, Any]] = {
        block.name: rng.integers(-99, 99, size=(block.rows, block.width)).astype(np.int32)
        for _, block in task.sparse_blocks()
    }
    return model | {block.name: np.arange(3, dtype=np.float32) for _, block in task.dense_blocks()}


def _config(task: Task) -> RoundConfig:
    servers = (identity("S0").public.keys, identity("S1").public.keys)
    return RoundConfig(
        task=task,
        number=5,
        session=5,
        hash_seed=fixed("hash seed"),
        toss=(fixed("toss 0"), fixed("toss 1")),
        servers=servers,
        model=describe_model(task, _model(task)),
        bins=bins_of_round(task, (), ()),
    )


def _planted(config: RoundConfig) -> ClientTrees:
    return plant(
        config,
        {index: np.array(rows, dtype=np.uint32) for index, rows in _rows(config.task).items()},
        MasterSeeds((fixed("msk 0", 16), fixed("msk 1", 16))),
        SeededSource(16, "placement"),
    )


def _rows(task: Task) -> dict[int, list[int]]:
    return {index: ROWS if block.rows == ITEMS.rows else [0, 8] for index, block in task.sparse_blocks()}


def _round(task: Task) -> dict[str, Any]:
    config = _config(task)
    client_trees = _planted(config)
    forests = [
        {name: getattr(forest, name) for name in ("segments", "bins", "leaves", "positions", "depth", "trees")}
        for _, forest in forests_of(config.shape)
    ]
    return {
        "task": task.canonical(),
        "task digest": task.digest(),
        "configuration": config.canonical(),
        "round id": config.round_id(),
        "keys": {
            "expand": config.tree_key(Domain.EXPAND),
            "select": config.tree_key(Domain.SELECT),
        }
        | {f"placement of block {index}": config.placement_key(index) for index, _ in task.sparse_blocks()},
        "carriers": {name: config.carrier(name) for name in ("alice", "bob", "carol", "dave")},
        "forests": forests,
        "client": CLIENT,
        "rows": ROWS if len(_rows(task)) == 1 else list(_rows(task).values()),
        "master seeds": client_trees.seeds.msk,
        "commitments": client_trees.seeds.commitments(config.round_id(), CLIENT),
        "tree digest": client_trees.digest,
        "positions": _positions(config, client_trees),
        "model": {name: array.tobytes() for name, array in _model(task).items()},
        "retrieval": _retrieval(config, client_trees),
        "submission": _submission(config, client_trees),
    }


def _positions(config: RoundConfig, client_trees: ClientTrees) -> list[list[dict[str, Any]]]:
    """Of every tree of every forest: which row it is planted for, at which leaf and slot, and both servers' leaves."""
    return [
        [
            {
                "row": int(client_trees.rows[key.block][item]) if item >= 0 else None,
                "leaf": int(planted.alphas[tree]),
                "slot": int(planted.slots[tree]),
                "leaves of S0 and S1": [leaves[tree].tobytes() for leaves in planted.leaves],
            }
            for tree, item in enumerate(planted.item)
        ]
        for key, planted in client_trees.planted.items()
    ]


def _retrieval(config: RoundConfig, client_trees: ClientTrees) -> dict[str, Any]:
    part, layout = retrieval_part(config, client_trees), Layout.retrieval(config.shape)
    return {
        "part": part,
        "digest": derivation.public_digest(layout, part, client_trees.digest),
        "answers": [
            _answer(config, server, Query(msk, Part(layout, part))) for server, msk in enumerate(client_trees.seeds.msk)
        ],
    }


def _answer(config: RoundConfig, server: int, query: Query) -> bytes:
    work = PermutedModel(config, server, _model(config.task)).begin([query], 1)
    for job in (*work.selecting, *work.answering):
        job()
    return work.finish().tobytes()


def _submission(
    config: RoundConfig, client_trees: ClientTrees, trees: Trees = Trees.RETRIEVAL, origin: RoundConfig | None = None
) -> dict[str, Any]:
    """What a client makes of its values; `origin` is the round in which a session's trees came."""
    ring, most = config.task.ring, config.task.largest_integer
    shapes = [(len(client_trees.rows[index]), block.width) for index, block in config.task.sparse_blocks()]
    values = [np.arange(1, rows * width + 1).reshape(rows, width) for rows, width in shapes]
    updates = {
        index: (client_trees.rows[index], ring.encode(given, most))
        for (index, _), given in zip(config.task.sparse_blocks(), values, strict=True)
    }
    of_dense = np.array([1.0, 2.0, 3.0])
    dense = {index: ring.encode(of_dense, most) for index, _ in config.task.dense_blocks()}
    layout = Layout.submission(config.shape, trees)
    part, share = submission_bulk(config, CLIENT, client_trees, updates, trees, dense, fresh=b"")
    public = derivation.public_digest(layout, part, client_trees.digest if trees is Trees.OWN else b"")
    commitments = client_trees.seeds.commitments((origin or config).round_id(), CLIENT)
    parts = (config.round_id(), identity(CLIENT).public.digest(), public, client_trees.digest, commitments)
    bind = derivation.binding(*parts)
    private, bound = bound_part(
        config,
        update_elements(config, client_trees, updates, dense),
        client_trees.seeds.msk,
        config.carrier(CLIENT),
        bind,
        SeededSource(16, "bound"),
    )
    submission = Submitted(part, share, private, trees, client_trees, commitments)
    name = derivation.submission_digest(bind, bound)
    return {
        "values": values[0].tolist() if len(values) == 1 else [given.tolist() for given in values],
        "values of the dense block": of_dense.tolist() if dense else [],
        "part": part,
        "digest": public,
        "dense share": share,
        "bind": bind,
        "submission digest": name,
        "proof key": fixed("proof key"),
        "servers": [_server(config, submission, server, bind, name) for server in (0, 1)],
    } | ({"private part": private, "bound digest": bound} if bound else {})


class Submitted(NamedTuple):
    """What a client has made of its values."""

    part: memoryview
    share: bytes
    private: bytes
    trees: Trees
    client_trees: ClientTrees
    commitments: tuple[bytes, bytes]


def _server(config: RoundConfig, made: Submitted, server: int, bind: bytes, name: bytes) -> dict[str, Any]:
    """What a server makes of the submission: its proof digest, and its share of a sum of this one."""
    carried = config.carrier(CLIENT) == server
    own = made.trees is Trees.OWN
    layout = Layout.submission(config.shape, made.trees)
    part = Part(layout, made.part)
    submission = Submission(
        client=CLIENT,
        msk=made.client_trees.seeds.msk[server],
        commitments=made.commitments,
        tree=made.client_trees.digest,
        trees=part if own else Part(Layout.retrieval(config.shape), retrieval_part(config, made.client_trees)),
        part=part,
        dense=memoryview(made.share if carried else b""),
        claim=Claim(memoryview(made.private) if carried else None, bind, name) if made.private else None,
    )
    aggregate = Aggregate(config, server, fixed("proof key"))
    jobs, finish = aggregate.jobs(submission, 1)
    for job in jobs:
        job()
    proof = finish()
    opened, counts = OPENED if config.task.min_contributors else ALL_ROWS, {}
    if config.task.min_contributors:
        counts = {"share of the counts": aggregate.counts(), "digests of both": BOTH_COUNTS, "rows opened": [7, 39]}
    content = aggregate.share(opened)
    counted = {CLIENT: fixed("submission")}
    terms = Terms(round_id=config.round_id(), server=server, minimum=2, verified=True)
    pieces = tuple(piece_digest(aggregate.piece(span, opened)) for span in spans_of(config.shape, opened))
    named = share_digest(pieces)
    return {
        "proof": proof,
        "share": content,
        "digests of its pieces": pieces,
        "share digest": named,
        "nonce": fixed("nonce"),
        "share commitment, counting alice with the digest below": share_commitment(
            terms, server, counted, named, fixed("nonce"), BOTH_COUNTS if counts else ()
        ),
        "counted": counted,
    } | counts


def _session() -> dict[str, Any]:
    """A second round on the trees of a first one: what is recalled, and the hint."""
    first = _config(FIXED)
    second = msgspec.structs.replace(first, number=6)
    client_trees = _planted(first)
    commitments = client_trees.seeds.commitments(first.round_id(), CLIENT)
    part = Part(Layout.retrieval(first.shape), retrieval_part(first, client_trees))
    submission = _submission(second, client_trees, Trees.SESSION, first)
    requests = [
        {
            "recall": encode(messages.Recall(second.round_id(), commitments[server]))[0],
            "hint": encode(messages.Hint(second.round_id(), commitments[server], submission["digest"]))[0],
        }
        for server in (0, 1)
    ]
    return {
        "first configuration": first.canonical(),
        "second configuration": second.canonical(),
        "round ids": [first.round_id(), second.round_id()],
        "carrier in the second round": second.carrier(CLIENT),
        "client": CLIENT,
        "rows": ROWS,
        "master seeds": client_trees.seeds.msk,
        "commitments": commitments,
        "trees": part.data,
        "tree digest": client_trees.digest,
        "positions": _positions(first, client_trees),
        "requests to S0 and S1": requests,
        "answers to recall": [
            _answer(second, server, Query(msk, part)) for server, msk in enumerate(client_trees.seeds.msk)
        ],
        "submission": submission,
    }


def _bounded(task: Task) -> dict[str, Any]:
    """A submission with its own trees and the proof of its bound; what it proves is in bound-vectors.json."""
    config = _config(task)
    client_trees = _planted(config)
    submission = _submission(config, client_trees, Trees.OWN)
    commitments = client_trees.seeds.commitments(config.round_id(), CLIENT)
    heads = [
        encode(
            messages.Submit(
                round_id=config.round_id(),
                query=0,
                seed=client_trees.seeds.msk[server],
                commitments=commitments,
                public_digest=submission["digest"],
                bound_digest=submission["bound digest"],
            )
        )[0]
        for server in (0, 1)
    ]
    return {
        "configuration": config.canonical(),
        "round id": config.round_id(),
        "carrier": config.carrier(CLIENT),
        "client": CLIENT,
        "master seeds": client_trees.seeds.msk,
        "commitments": commitments,
        "tree digest": client_trees.digest,
        "heads to S0 and S1": heads,
        "submission": submission,
    }


def _fixed_point() -> list[dict[str, Any]]:
    """Numbers, the elements that a client adds of them, and the numbers that servers make of these again."""
    cases = []
    for bits, fraction in ((32, 8), (64, 8), (64, 24), (128, 32)):
        ring = Ring(bits, fraction_bits=fraction)
        values = [0.0, 1.0, -1.0, 0.1, -0.1, 100.25, -(2.0**-fraction), 2.5 * 2.0**-fraction, 3.5 * 2.0**-fraction]
        elements = ring.encode(np.array(values), 2 ** (bits - 2))
        cases.append(
            {
                "bits": bits,
                "fraction_bits": fraction,
                "numbers": values,
                "elements": elements.tobytes(),
                "numbers again": ring.decode(elements).tolist(),
            }
        )
    return cases


FINDING = msgspec.structs.replace(
    VERIFIED, name="vectors with a union", blocks=[ITEMS], security="semi-honest", alignment="union"
)
VALUES = {"alice": ([7, 21], [[1.0, -1.0], [0.5, 2.0]]), "bob": ([21, 39], [[3.0, 4.0], [-0.25, 0.0]])}


def _union_rounds() -> dict[str, Any]:
    """A round that finds a union and one that is aligned on it: all that two clients and both servers say."""
    sent: list[tuple[bytes, bytes, bytes]] = []
    send = Channel.send

    async def noted(channel: Channel, *parts: Any, **words: Any) -> None:
        sent.append((channel.handshake_hash, channel.peer_key, b"".join(parts)))
        await send(channel, *parts, **words)

    async def rounds() -> dict[bytes, str]:
        async with simulate(FINDING, {"items": _model(FINDING)["items"].astype(np.float32)}, seed=16) as network:
            parties = [server.setup.identity.public for server in network.servers]
            async with network.client("alice") as alice, network.client("bob") as bob:
                for client in (alice, bob):
                    await client.unite({"items": VALUES[client.name][0]})
                await network.finish_union()
                for client in (alice, bob):
                    rows, values = VALUES[client.name]
                    await client.retrieve({"items": rows})
                    await client.submit({"items": (rows, np.array(values))})
                await network.finish_round()
                for client in (alice, bob):
                    await client.outcome()
                parties += [client.setup.identity.public for client in (alice, bob)]
        return {public.channel: public.name for public in parties}

    with patch.object(Channel, "send", noted):
        names = trio.run(rounds)
    ends: dict[bytes, set[str]] = {}
    for connection, receiver, _ in sent:
        ends.setdefault(connection, set()).add(names[receiver])
    said: dict[str, list[bytes]] = {}
    for connection, receiver, message in sent:
        (sender,) = ends[connection] - {names[receiver]}
        said.setdefault(f"{sender} to {names[receiver]}", []).append(message)
    return {
        "values": VALUES,
        "messages": dict(sorted(said.items())),
    }


def _toss() -> dict[str, Any]:
    halves = [
        toss.Committing(toss.Half(server, 5, fixed("model"), fixed(f"half {server}"), fixed(f"nonce {server}")))
        for server in (0, 1)
    ]
    commitments = [half.half.commitment() for half in halves]
    state = toss.step(halves[0], toss.PeerTossCommitment(commitments[1], fixed("model")), "S1")
    tossed = toss.step(state, toss.PeerTossReveal(fixed("half 1"), fixed("nonce 1")), "S1")
    return {
        "number": 5,
        "halves": [half.half.seed for half in halves],
        "nonces": [half.half.nonce for half in halves],
        "commitments": commitments,
        "hash seed": tossed.hash_seed,
        "proof key": tossed.proof_key,
    }


def _roster_tree() -> dict[str, Any]:
    names, round_id, client = ("alice", "bob", "carol", "dave", "eve"), fixed("round"), "dave"
    blind = blind_of(fixed("proof key"), round_id)
    digests = [fixed(f"submission of {name}") for name in names]
    tree = RosterTree(dict(zip(names, digests, strict=True)), blind)
    seat = tree.seat(client)
    return {
        "proof key": fixed("proof key"),
        "round id": round_id,
        "blind": blind,
        "names": list(names),
        "digests": digests,
        "root": tree.root,
        "client": client,
        "place": seat.place,
        "salt": seat.salt,
        "path": seat.path,
    }


def _statements() -> dict[str, Any]:
    alice, server, token = identity(CLIENT), identity("S0"), fixed("token", 16)
    config = _config(VERIFIED)
    report = RoundReport(
        round_id=config.round_id(),
        number=5,
        ending=Done(),
        clients={"alice": fixed("submission of alice"), "bob": fixed("submission of bob")},
        excluded={"carol": "only_s0"},
        model=config.model,
        blind=blind_of(fixed("proof key", 16), config.round_id()),
    )
    aborted = RoundReport(
        round_id=config.round_id(), number=5, ending=Aborted("too few"), clients={}, excluded={}, model=config.model
    )
    tree = RosterTree(report.clients, report.blind)
    counted = Statement.of(report, CLIENT, tree, named=False)
    left_out = Statement.of(report, "carol", tree, named=False)
    nobody = Statement.of(aborted, CLIENT, RosterTree({}, b""), named=False)
    named = Statement.of(report, CLIENT, tree, named=True)
    return {
        "name": CLIENT,
        "channel key": alice.public.channel,
        "statement key": alice.public.statement,
        "identity digest": alice.public.digest(),
        "server's statement key": server.public.statement,
        "credentials": Credentials.of(alice, VERIFIED.digest(), voucher(token, VERIFIED.digest(), 0)).encode(),
        "token": token,
        "vouchers": [voucher(token, VERIFIED.digest(), number) for number in (0, 1)],
        "round id": config.round_id(),
        "submission digest": fixed("submission"),
        "receipt": server.sign(Domain.RECEIPT, fixed("submission")),
        "outcome": report.canonical(),
        "outcome's digest": report.digest(),
        "outcome of an aborted round": aborted.canonical(),
        "statement": counted.canonical(),
        "statement's signature": server.sign(Domain.STATEMENT, counted.canonical()),
        "statement for a client that was left out": left_out.canonical(),
        "statement of an aborted round": nobody.canonical(),
        "statement with names": named.canonical(),
    }


def _union(rows: list[int], domain: int) -> dict[str, Any]:
    return {"rows": rows, "of": domain, "packed": pack_union(np.array(rows, dtype=np.uint32), domain)}


def plain(value: Any) -> Any:
    """Bytes as hexadecimal text, here and in everything below."""
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def text() -> str:
    """The whole file."""
    return json.dumps(plain(vectors()), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
