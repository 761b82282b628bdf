"""Messages and what travels in them: a client's, a server's, the other server's."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
import numpy as np

from fsl_async import Ring, udpf
from fsl_async.bin_count import planned
from fsl_async.config import RoundConfig
from fsl_async.derivation import dense_digest
from fsl_async.digests import Domain
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.geometry import geometry_of
from fsl_async.merkle import RosterTree
from fsl_async.server.contributors import FalseCountError, check_counts, opened_rows
from fsl_async.task import Task
from fsl_async.union import UnionBlock, pack_union, unpack_union
from fsl_async.wire import messages as said
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.peer_lists import pack_digests, pack_names, packed_marks, read_marks, unpack_digests, unpack_names
from fsl_async.wire.public_part import Layout, Trees, counts_bytes, first_padding, share_bytes
from parties.identity.handshake import Credentials
from parties.identity.keys import verify
from parties.identity.tokens import read_token
from parties.outcome import Done
from parties.server.clients.deposits import Depositor, Wanted
from parties.server.replies import BulkRequest, RequestRefusedError
from parties.statement import Statement
from parties.storage.blobs.memory import MemoryBlobs
from tests.support.machine_scenes import key
from tests.support.messages import example_of

from .channel_parsers import LaneAtOnce, at_once
from .parser import SLOW, Parser
from .samples import ALICE, CONFIG, SAMPLED_CONFIG, TASK, UNION_CONFIG, repeating

PAIR = (key(1), key(2))
TREE = RosterTree({"alice": key(4), "bob": key(5)}, bytes(16))
STATEMENT = Statement(
    client="alice",
    round_id=CONFIG.round_id(),
    number=3,
    ending=Done(),
    participants=2,
    root=TREE.root,
    seat=TREE.seat("alice"),
    excluded="",
    model=CONFIG.model,
    union=(UnionBlock("items", 5, key(3)),),
    names=("alice", "bob"),
)
COUNTING = msgspec.structs.replace(TASK, min_contributors=2, lying_clients=0)
NAMING = msgspec.structs.replace(TASK, participants="names", max_clients=10_000)

UNIONS = {"client": said.FromClient, "server": said.FromServer, "peer": said.FromPeer}
MESSAGES = {
    sender: [(example, bytes(50 * example.carries_bulk)) for example in map(example_of, get_args(union))]
    for sender, union in UNIONS.items()
}
"""By who says them, all messages with some bulk."""


def _written(messages: Sequence[tuple[said.Message, bytes]]) -> list[bytes]:
    return [b"".join(encode(message, bulk)) for message, bulk in messages]


def _words(messages: Sequence[tuple[said.Message, bytes]]) -> tuple[bytes, ...]:
    """Names of fields and messages as they stand on the wire, and MessagePack's headers with extreme lengths."""
    names = {field for message, _ in messages for field in message.__struct_fields__}
    tags = {str(message.__struct_config__.tag) for message, _ in messages}
    texts = tuple(bytes([0xA0 | len(name)]) + name.encode() for name in sorted(names | tags | {"type"}))
    return texts + EXTREMES


EXTREMES = tuple(
    bytes([header]) + length
    for header, size in ((0xC4, 1), (0xC5, 2), (0xC6, 4), (0xD9, 1), (0xDB, 4), (0xDC, 2), (0xDD, 4), (0xDF, 4))
    for length in (bytes(size), b"\xff" * size, b"\x7f" + b"\xff" * (size - 1))
)


def _reader(union: Any) -> Any:
    def read(data: bytes) -> None:
        received = decode(data, union, "S1")
        again = decode(b"".join(encode(received.message, received.bulk)), union, "S1")
        assert again == received
        assert len(received.bulk) <= len(data)

    return read


# ---- what travels in messages


def _listed(unpack: Callable[..., Collection[str]], pack: Callable[..., bytes]) -> Callable[[bytes], None]:
    """A parser of clients' names in their order, with digests or without."""

    def read(data: bytes) -> None:
        found = unpack(data, 100_000, "S1")
        assert pack(found) == data
        assert sorted(set(found)) == list(found)

    return read


def _read_marks(data: bytes) -> None:
    marks = read_marks(data, 6, "S1")
    assert len(packed_marks(marks, 6)) <= len(data)


def _read_round(data: bytes) -> None:
    config = RoundConfig.parse(data, "S1")
    assert config.canonical() == data
    assert config.shape.canonical()


def _read_task(data: bytes) -> None:
    task = Task.parse(data, "S1")
    assert task.canonical() == data
    assert task.largest_integer * task.max_clients < 2 ** (task.ring.bits - 1)


def _read_statement(data: bytes) -> None:
    statement = Statement.parse(data, NAMING, "alice", "S1")
    assert Statement.parse(statement.canonical(), NAMING, "alice", "S1") == statement
    assert len(statement.names) == statement.participants


def _read_counted_statement(data: bytes) -> None:
    statement = Statement.parse(data, COUNTING, "alice", "S1")
    rows = statement.rows(COUNTING, "S1")
    assert all((np.diff(found.astype(np.int64)) > 0).all() for found in rows.values())
    assert set(rows) in ({block.name for _, block in COUNTING.sparse_blocks()}, set())


def _counted_statements() -> list[bytes]:
    sizes = {block.name: block.rows for _, block in COUNTING.sparse_blocks()}
    every = {name: pack_union(np.arange(0, size, 3, dtype=np.uint32), size) for name, size in sizes.items()}
    none = {name: pack_union(np.array([], np.uint32), size) for name, size in sizes.items()}
    plain = msgspec.structs.replace(STATEMENT, names=())
    return [msgspec.structs.replace(plain, opened_rows=rows).canonical() for rows in (every, none)]


def _read_counts(data: bytes) -> None:
    """Two shares of the counts, of which the second is a peer's."""
    size = counts_bytes(COUNTING)
    shares = data[:size].ljust(size, b"\0"), data[size : 2 * size].ljust(size, b"\0")
    opened = opened_rows(COUNTING, shares)
    assert share_bytes(COUNTING) >= share_bytes(COUNTING, opened)
    try:
        check_counts(planned(COUNTING), shares, 3)
    except FalseCountError:
        return
    trees = sum(geometry_of(planned(COUNTING), block).trees for _, block in planned(COUNTING).sparse_blocks())
    assert 2 * sum(len(rows) for rows in opened.values()) <= 3 * trees


def _read_credentials(data: bytes) -> None:
    credentials = Credentials.decode(data)
    credentials.is_signed_for(key(1))
    assert Credentials.decode(credentials.encode()) == credentials


UNION_ROWS = 300


def _read_union(data: bytes) -> None:
    rows = unpack_union(data, UNION_ROWS, "S1")
    assert pack_union(rows, UNION_ROWS) == data
    assert (np.diff(rows.astype(np.int64)) > 0).all()


def _unions() -> list[bytes]:
    some = (np.array([], np.uint32), np.array([0, 7, 299], np.uint32), np.arange(200, dtype=np.uint32))
    return [pack_union(rows, UNION_ROWS) for rows in some]


_LAYOUTS = (Layout.retrieval(planned(TASK)), *(Layout.submission(planned(TASK), trees) for trees in Trees))


def _read_part(data: bytes) -> None:
    """A public part of whatever layout fits its size, as a server looks at it before it takes it."""
    for layout in _LAYOUTS:
        if layout.size == len(data):
            pieces = layout.split(memoryview(data))
            assert sum(map(len, pieces.values())) == len(data)
            first_padding(planned(TASK), layout, memoryview(data))


_SEED = bytes(16)
_REQUESTS: tuple[BulkRequest, ...] = (
    said.Retrieve(round_id=key(1), query=1, seed=_SEED, commitments=PAIR, public_digest=key(2)),
    *(
        said.Submit(round_id=key(1), query=query, seed=_SEED, commitments=PAIR, public_digest=key(2), bound_digest=b"")
        for query in (0, 1)
    ),
    said.Hint(key(1), key(2), key(3)),
)
_WANTED = {wanted.size: wanted for wanted in (Wanted.of(CONFIG, "alice", asked, _SEED) for asked in _REQUESTS)}


def _read_deposit(data: bytes) -> None:
    """The whole bulk of a request, as its client's carrier takes it: a part with its salt, and the dense share."""
    wanted = _WANTED.get(len(data), next(iter(_WANTED.values())))
    try:
        deposit = at_once(Depositor(MemoryBlobs(), LaneAtOnce(), print).take(wanted, memoryview(data)))
    except RequestRefusedError:
        assert data not in _deposits()
        return
    assert deposit.part != wanted.announced
    assert (len(deposit.dense) == 32) == (wanted.key.purpose == "submit")


def _deposits() -> list[bytes]:
    made = [bytes(wanted.layout.size) + bytes(sum(wanted.own_sizes)) for wanted in _WANTED.values()]
    for place, wanted in enumerate(_WANTED.values()):
        if dense := bytes(sum(wanted.own_sizes)):
            made[place] = bytes(wanted.layout.size - 32) + dense_digest(dense, _SEED) + dense
    return made


def _read_signature(data: bytes) -> None:
    """Statement key, signature, statement: all of them a peer's."""
    assert not verify(data[:32], data[32:96], Domain.RECEIPT, data[96:]) or len(data) >= 96


def _signed() -> list[bytes]:
    return [ALICE.public.statement + ALICE.sign(Domain.RECEIPT, b"words") + b"words"]


def _read_token_text(data: bytes) -> None:
    assert len(read_token(data.decode("utf-8", "replace"))) == 16


def _read_key(data: bytes) -> None:
    assert udpf.Key.from_bytes(data).to_bytes() == data


def _read_hint(data: bytes) -> None:
    assert udpf.Hint.from_bytes(data).to_bytes() == data


def _udpf_keys() -> tuple[udpf.Key, udpf.Key]:
    return udpf.gen(udpf.Family(5, Ring(32)), [1, 2, 3], Ring(32).zeros(3, 1), repeating(7))


def _many_entries() -> list[bytes]:
    return [pack_digests({}), pack_digests({f"client {number}": key(number) for number in range(20)})]


PEER = (PeerViolationError,)

PARSERS = (
    *(
        Parser(f"from-{sender}", _reader(UNIONS[sender]), partial(_written, said), PEER, "S1", tokens=_words(said))
        for sender, said in MESSAGES.items()
    ),
    Parser("entries", _listed(unpack_digests, pack_digests), _many_entries, PEER, "S1", tokens=EXTREMES),
    Parser("held-parts", _read_marks, lambda: [packed_marks([bytes(16), key(1)[:16]], 6)], PEER, "S1", longest=300),
    Parser(
        "names",
        _listed(unpack_names, pack_names),
        lambda: [pack_names(["alice", "bob", "é" * 64])],
        PEER,
        "S1",
        tokens=EXTREMES,
    ),
    Parser(
        "round-configuration",
        _read_round,
        lambda: [CONFIG.canonical(), UNION_CONFIG.canonical(), SAMPLED_CONFIG.canonical()],
        PEER,
        "S1",
        tokens=EXTREMES,
    ),
    Parser("task", _read_task, lambda: [TASK.canonical(), UNION_CONFIG.task.canonical()], PEER, "S1", tokens=EXTREMES),
    Parser("statement", _read_statement, lambda: [STATEMENT.canonical()], PEER, "S1", tokens=EXTREMES),
    Parser("counted-statement", _read_counted_statement, _counted_statements, PEER, "S1", tokens=EXTREMES),
    Parser(
        "row-counts", _read_counts, lambda: [bytes(2 * counts_bytes(COUNTING)), b"\1\0\0\0" * 9], (), tokens=EXTREMES
    ),
    Parser(
        "credentials",
        _read_credentials,
        lambda: [Credentials.of(ALICE, TASK.digest(), bytes(16)).encode()],
        (MisuseError,),
        "credentials",
        tokens=EXTREMES,
    ),
    Parser("union", _read_union, _unions, PEER, "S1", longest=400, tokens=(b"\x00", b"\x01", b"\xff" * 4 + b"\x7f")),
    Parser(
        "public-part",
        _read_part,
        lambda: [bytes(layout.size) for layout in _LAYOUTS],
        PEER,
        longest=2 * max(layout.size for layout in _LAYOUTS),
    ),
    Parser("deposit", _read_deposit, _deposits, (), longest=2 * max(_WANTED), memory=2**21),
    Parser("signature", _read_signature, _signed, PEER, share=SLOW, longest=200),
    Parser("udpf-key", _read_key, lambda: [one.to_bytes() for one in _udpf_keys()], (MisuseError,), tokens=EXTREMES),
    Parser("udpf-hint", _read_hint, lambda: [_udpf_keys()[0].hint.to_bytes()], (MisuseError,), tokens=EXTREMES),
    Parser("token", _read_token_text, lambda: [b"0123-4567 89abcdef 0123456789ABCDEF"], (MisuseError,), "token"),
)
