"""A client written from docs/wire/client.md alone, one request after the other; nothing of the packages is in it.

client = PageClient(identity, servers, task)
with client:
    config = client.enter()
    rows = client.retrieve({"items": [3, 14]})
    client.submit({"items": {3: [1.0], 14: [2.0]}})
    client.outcome()
"""

import random
import socket
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple, Self

import msgpack
import numpy as np
from nacl.signing import SigningKey, VerifyKey
from noise.connection import Keypair, NoiseConnection

from tests.support import reference
from tests.support.reference_tagging import multiply, reduce, words_of
from tests.support.wire_page import (
    CLOSE,
    DATA,
    PING,
    Block,
    Direction,
    Forest,
    H,
    Round,
    check_seat,
    digest_of_trees,
    le,
    limits,
    of,
    pad,
    read_message,
    unpack_union,
    unpad,
)

CLIENT_ROLE, LIVE = 1, 1
PART = 2**26
SECRET = random.SystemRandom()


class Keys(NamedTuple):
    """A client: its name, and the secret halves of its key pairs."""

    name: str
    channel: bytes
    statement: bytes


class Address(NamedTuple):
    """A server: where it listens, and the public halves of its key pairs."""

    host: str
    port: int
    channel: bytes
    statement: bytes


class Connection:
    """A connection to one server.

    Args:
        stream: a socket, or what has its `sendall`, `recv` and `close`.
    """

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._waits, self.ping_all = False, self.ping

    def greet(
        self, server: int, server_key: bytes, keys: Keys, task: bytes, credentials: bytes, version: int, *fixed: bytes
    ) -> str:
        """Everything up to the welcome; returns its text. `fixed` may be the secret of the ephemeral key."""
        ours = b"\x1f\x46\x53\x0a" + version.to_bytes(2, "big") + bytes([CLIENT_ROLE, LIVE])
        self.stream.sendall(ours)
        theirs = self._exactly(8)
        assert theirs == ours[:6] + bytes([2 + server, LIVE])
        noise = NoiseConnection.from_name(b"Noise_XK_25519_AESGCM_SHA256")
        noise.set_as_initiator()
        noise.set_prologue(b"fsl-async channel prologue\0" + ours + theirs)
        noise.set_keypair_from_private_bytes(Keypair.STATIC, keys.channel)
        noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, server_key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fixed key is warned of
            for secret in fixed:
                noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, secret)
            noise.start_handshake()
            self.stream.sendall(noise.write_message())
        assert unpad(bytes(noise.read_message(self._exactly(1_072))), 1_024) == H("fsl.task", task)
        self.stream.sendall(noise.write_message(pad(credentials, 1_024)))
        ciphers = noise.noise_protocol
        self.out, self.incoming = (
            Direction(each.k) for each in (ciphers.cipher_state_encrypt, ciphers.cipher_state_decrypt)
        )
        welcome = self.receive()
        text = unpad(welcome[1:], 1_023).decode()
        assert welcome[0] == 1, text
        return text

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                more = self.stream.recv(size - len(data))
            except TimeoutError:
                self.ping_all()
                continue
            assert more, "the server hung up"
            data += more
        return bytes(data)

    def ping(self) -> None:
        """Give a sign of life, where a reply is awaited."""
        if self._waits:
            self.stream.sendall(self.out.seal(PING))

    def send(self, kind: str, bulk: bytes = b"", **fields: Any) -> None:
        """One request."""
        self._waits = True
        self.stream.sendall(self.out.message(msgpack.packb({"type": kind} | fields) + bulk))

    def receive(self) -> bytes:
        """One message; a PING is no message."""
        content, total = b"", 8
        while len(content) < total:
            length = self._exactly(2)
            ((kind, body),) = self.incoming.open(length + self._exactly(int.from_bytes(length, "big")))
            assert kind in (DATA, PING), "the server said CLOSE"
            content += body
            if len(content) >= 8:
                total = 8 + int.from_bytes(content[:8], "big")
        assert len(content) == total
        return content[8:]

    def reply(self, kind: str) -> tuple[dict[str, Any], bytes]:
        """Head and bulk of the next message, which is of that type."""
        head, bulk = read_message(self.receive())
        self._waits = False
        assert head.pop("type") == kind, head
        return head, bulk

    def close(self) -> None:
        """Say CLOSE."""
        with closing(self.stream):
            self.stream.sendall(self.out.seal(CLOSE))


class Tree(NamedTuple):
    """A planted tree.

    Attributes:
        row: where it is planted; None where there is none.
        leaf: the leaf's number.
        nodes: both servers' leaves there.
    """

    block: Block
    forest: Forest
    row: int | None
    leaf: int
    slot: int
    words: list[int]
    nodes: tuple[int, int]

    @property
    def delta(self) -> int:
        return self.nodes[0] ^ self.nodes[1]


class Planted(NamedTuple):
    """All trees of a round or a session, and what goes with them for as long as they are used."""

    trees: list[Tree]
    pieces: dict[tuple[int, int], dict[str, bytes]]
    seeds: list[bytes]
    commitments: list[bytes]
    digest: bytes
    tag_keys: tuple[bytes, bytes]


class PageClient:
    """One client of one task.

    Attributes:
        at: the round that it has entered.
        session: the trees that servers keep, where the selection is fixed.
    """

    def __init__(self, keys: Keys, servers: Sequence[Address], task: bytes) -> None:
        self.keys, self.servers, self.task = keys, servers, task
        self._signing = SigningKey(keys.statement)
        digest, name = H("fsl.task", task), keys.name.encode()
        from_secret = NoiseConnection.from_name(b"Noise_XK_25519_AESGCM_SHA256")
        from_secret.set_keypair_from_private_bytes(Keypair.STATIC, keys.channel)
        channel, statement = from_secret.noise_protocol.keypairs["s"].public_bytes, bytes(self._signing.verify_key)
        signature = self._signing.sign(H("fsl.enrolment", digest, name, channel)).signature
        fields = {"task": digest, "name": keys.name, "statement": statement, "signature": signature, "voucher": b""}
        self.credentials = msgpack.packb(fields)
        self.identity = H("fsl.identity", name, channel, statement)
        self.version = 6
        self.known, self.after, self.session, self.submitted = b"", 0, None, b""
        self.at: Round
        self.connections: list[Connection] = []

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """By what `parties.testing.conformance` prints."""
        places = [(server, *server["address"].split(":")) for server in told["servers"]]
        servers = [
            Address(host, int(port), of(server["channel"]), of(server["statement"])) for server, host, port in places
        ]
        keys = told["client"]
        own = Keys(keys["name"], of(keys["channel"]), of(keys["statement"]))
        return cls(own, servers, of(told["task"]))

    def __enter__(self) -> Self:
        try:
            for server, place in enumerate(self.servers):
                connection = Connection(socket.create_connection((place.host, place.port), timeout=10))
                self.connections.append(connection)
                connection.greet(server, place.channel, self.keys, self.task, self.credentials, self.version)
                connection.ping_all = self._ping_all
        except BaseException:
            self.cut()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        while self.connections:
            self.connections.pop().close()

    def cut(self) -> None:
        """Hang up without a word."""
        while self.connections:
            self.connections.pop().stream.close()

    def _ping_all(self) -> None:
        for connection in self.connections:
            connection.ping()

    def ask_task(self) -> None:
        for connection in self.connections:
            connection.send("ask-task")
            assert connection.reply("task-is") == ({"task": self.task}, b"")

    def enter(self) -> Round:
        """The next round, as both servers announce it."""
        first = self._opened(0, self.after)
        config = self._opened(1, msgpack.unpackb(first)["number"] - 1)
        assert first == config
        self.at = Round(config)
        assert msgpack.packb(self.at.config) == config
        assert msgpack.packb(self.at.task) == self.task
        assert self.at.number > self.after
        for block in self.at.blocks:
            least, most = limits(block.select, block.rows)
            bins = self.at.config["bins"][block.index]
            assert least <= bins <= most or (block.plain and self.at.config["union"])
        for keys, server in zip(self.at.config["servers"], self.servers, strict=True):
            assert keys == {"channel": server.channel, "statement": server.statement}
        self.planted, self.query, self.after, self.known = None, 0, self.at.number, self.at.round_id
        self.carrier = self.at.carrier(self.keys.name)
        self.unions = {told["name"]: self._union(told) for told in self.at.config["union"]}
        return self.at

    def _opened(self, server: int, after: int) -> bytes:
        self.connections[server].send("enter", after=after, known=self.known)
        head, _ = self.connections[server].reply("opened")
        assert not head["strange"]
        assert head["drawn"]
        return head["config"]

    # ---- downloads

    def _download(self, block: str, size: int, *, union: bool = False, whole: bool = False) -> bytes:
        connection, parts = self.connections[self.carrier], []
        for part in range(1 if union else -(-size // PART)):
            fields = {"block": block, "union": union, "whole": whole, "part": part}
            connection.send("download", round_id=self.at.round_id, **fields)
            head, bulk = connection.reply("block")
            assert head == {"round_id": self.at.round_id, "block": block}
            parts.append(bulk)
        return b"".join(parts)

    def _union(self, told: Mapping[str, Any]) -> list[int]:
        packed = self._download(told["name"], 0, union=True)
        assert H("fsl.union", told["name"].encode(), packed) == told["digest"]
        rows = unpack_union(packed)
        assert len(rows) == told["size"]
        return rows

    def dense(self) -> dict[str, Any]:
        """Every dense block, and every block that moves plainly, by row."""
        found = {}
        for told in self.at.dense:
            found[told["name"]] = self._block(self.at.config["model"], told["name"], (told["size"],))
        for block in self.at.blocks:
            if block.plain:
                rows = self._block(self.at.config["plain"], block.name, (block.rows, block.width))
                found[block.name] = dict(zip(self.unions[block.name], rows, strict=False))
        return found

    def _block(self, described: list[dict[str, Any]], name: str, shape: tuple[int, ...]) -> np.ndarray:
        (told,) = (each for each in described if each["name"] == name)
        dtype = np.dtype("<" + told["dtype"])
        content = self._download(name, int(np.prod(shape)) * dtype.itemsize)
        assert H("fsl.model", name.encode(), told["dtype"].encode(), content) == told["digest"]
        return np.frombuffer(content, dtype).reshape(shape)

    # ---- trees

    def plant(self, rows: Mapping[str, Sequence[int]]) -> Planted:
        """Trees at these rows, which are all placed."""
        seeds = [SECRET.randbytes(16), SECRET.randbytes(16)]
        trees: list[Tree] = []
        pieces: dict[tuple[int, int], dict[str, bytes]] = {}
        for block in self.at.blocks:
            at = placed(block, rows.get(block.name, ()))
            for forest in block.forests:
                some = [
                    self._tree(block, forest, tree, at.get((forest.number, tree)), seeds)
                    for tree in range(forest.trees)
                ]
                trees += some
                words = b"".join(le(tree.words[level], 16) for level in range(forest.depth) for tree in some)
                pieces[block.index, forest.number] = {"tree": words, "select": self._selects(forest, some)}
        digest, commitments = digest_of_trees(list(pieces.values())), self.at.commitments(seeds, self.keys.name)
        tag_keys = self.at.tag_keys(self.keys.name, digest, commitments)
        return Planted(trees, pieces, seeds, commitments, digest, tag_keys)

    def _tree(self, block: Block, forest: Forest, tree: int, row: int | None, seeds: list[bytes]) -> Tree:
        if row is None:
            leaf = forest.leaves - 1 if forest.counts else SECRET.randrange(forest.leaves)
            slot = SECRET.randrange(forest.positions)
        else:
            _, leaf, slot = (0, row, 0) if forest.number else block.place(row, tree // forest.bins)
        roots = block.root(seeds[0], 0, forest, tree), block.root(seeds[1], 1, forest, tree)
        words, *nodes = reference.generate(self.at.expand, roots, leaf, forest.depth)
        return Tree(block, forest, row, leaf, slot, words, (nodes[0], nodes[1]))

    def _selects(self, forest: Forest, trees: list[Tree]) -> bytes:
        p = forest.positions
        if p == 1:
            return b""
        hints = (reference.select_hint(self.at.select, tree.nodes, tree.slot, p) for tree in trees)
        return le(sum(hint << p * number for number, hint in enumerate(hints)), forest.sizes(proved=False)["select"])

    # ---- requests with trees

    def _both(self, kind: str, reply: str, bulk: bytes, **fields: Any) -> list[tuple[dict[str, Any], bytes]]:
        """Send to both, then wait for both; a pair of values has one for each server."""
        for server, connection in enumerate(self.connections):
            own = {name: value[server] if isinstance(value, tuple) else value for name, value in fields.items()}
            connection.send(kind, bulk if server == self.carrier else b"", round_id=self.at.round_id, **own)
        return [connection.reply(reply) for connection in self.connections]

    def everything(self, rows: Mapping[str, Sequence[int]]) -> dict[str, Any]:
        """These rows, and every block that is not retrieved; in a union round nothing."""
        if self.at.protocol == "psu":
            return {}
        retrieved = self.retrieve(rows) if any(block.forests for block in self.at.blocks) else {}
        return retrieved | self.dense()

    def retrieve(self, rows: Mapping[str, Sequence[int]]) -> dict[str, dict[int, np.ndarray]]:
        """These rows of the model, by block and row."""
        if self.session is not None:
            self.planted = self.session
            answers = self._both("recall", "answer", b"", session=tuple(self.session.commitments))
        else:
            self.planted, self.query = self.plant(self.ranks(rows)), self.query + 1
            planted = self.planted
            part = b"".join(piece["tree"] + piece["select"] for piece in planted.pieces.values())
            public = H("fsl.public", planted.digest, *(piece["select"] for piece in planted.pieces.values()))
            fields = {"seed": tuple(planted.seeds), "commitments": planted.commitments, "public_digest": public}
            answers = self._both("retrieve", "answer", part, query=self.query, **fields)
        query = 0 if self.session is not None else self.query
        assert all(head["query"] == query for head, _ in answers)
        return self._opened_rows([bulk for _, bulk in answers])

    def _opened_rows(self, answers: list[bytes]) -> dict[str, dict[int, np.ndarray]]:
        dtypes = {each["name"]: np.dtype("<" + each["dtype"]) for each in self.at.config["model"]}
        found: dict[str, dict[int, np.ndarray]] = {block.name: {} for block in self.at.blocks}
        at, sums = 0, {block.name: [0] * 1_000 for block in self.at.blocks}
        for tree in self._in_use(self.planted):
            size = dtypes[tree.block.name].itemsize * tree.block.width
            first, second = (answer[at : at + size] for answer in answers)
            row, at = bytes(a ^ b for a, b in zip(first, second, strict=True)), at + size
            if tree.row is not None:
                found[tree.block.name][self.number(tree.block, tree.row)] = np.frombuffer(row, dtypes[tree.block.name])
            for e, word in enumerate(words_of(row)):
                sums[tree.block.name][e] ^= reduce(multiply(tree.delta >> 64, word))
        for block in self.at.blocks:
            if block.authenticated and not block.plain:
                for e in range(-(-dtypes[block.name].itemsize * block.width // 8)):
                    first, second = (int.from_bytes(answer[at : at + 8], "little") for answer in answers)
                    assert sums[block.name][e] == first ^ second
                    at += 8
        assert {len(answer) for answer in answers} == {at}
        return found

    def submit(self, updates: Mapping[str, Any]) -> bytes:
        """Submit, by sparse block, values by row, and, by dense block, values; returns the submission's digest.

        A block that is not named gets zeros. In a union round, the values of a row are not looked at.
        """
        dense = self._encoded_dense(updates)
        own = self.session is None and (self.planted is None or self.at.task["updates"] == "any")
        if own:
            self.planted = self.plant(
                self.ranks(
                    {block.name: list(updates.get(block.name, ())) for block in self.at.blocks if not block.plain}
                )
            )
        planted = self.planted = self.planted if self.session is None else self.session
        salt = SECRET.randbytes(16)
        pieces = self._hints(planted, updates, salt)
        if not own:
            pieces = [piece | {"tree": b""} for piece in pieces]
        share = masked(dense, self.at.dense_mask(planted.seeds[1 - self.carrier], salt, len(dense)), self.at.bits)
        last = H("fsl.dense-share", share, key=planted.seeds[self.carrier]) if self.at.has_dense else b""
        part = salt + b"".join(piece["tree"] + piece["hint"] + piece["proof"] for piece in pieces) + last
        others = [piece[kind] for piece in pieces for kind in ("hint", "proof")]
        public = H("fsl.public", planted.digest if own else b"", salt, *others, last)
        if self.session is None:
            fields = {
                "query": 0 if own else self.query,
                "seed": tuple(planted.seeds),
                "commitments": planted.commitments,
            }
        else:
            fields = {"session": tuple(planted.commitments)}
        kind = "submit" if self.session is None else "hint"
        receipts = self._both(kind, "receipt", part + share, **fields, public_digest=public, bound_digest=b"")
        self.submitted = self.at.submission_digest(self.identity, public, planted.digest, planted.commitments)
        for (head, _), server in zip(receipts, self.servers, strict=True):
            assert head["digest"] == self.submitted
            VerifyKey(server.statement).verify(H("fsl.receipt", self.submitted), head["signature"])
        return self.submitted

    def _hints(self, planted: Planted, updates: Mapping[str, Any], salt: bytes) -> list[dict[str, bytes]]:
        hints, proofs = {}, {}
        for tree in self._in_use(planted):
            forest, key = tree.forest, self.at.blocks[tree.block.index].convert(salt)
            payload = [0] * forest.payload
            if tree.row is not None:
                start = tree.slot * forest.width
                payload[start : start + forest.width] = self._encoded_row(tree, updates)
            payload[forest.payload - forest.counts :] = [1] * forest.counts
            content = self._elements(payload)
            content += bytes(-len(content) % 16)
            planes = [int.from_bytes(content[at : at + 16], "little") for at in range(0, len(content), 16)]
            hint = b"".join(
                le(reference.hint(key, tree.nodes, plane, beta, self.at.bits), 16) for plane, beta in enumerate(planes)
            )
            place = (tree.block.index, forest.number)
            hints[place] = hints.get(place, b"") + hint[: forest.payload * forest.element]
            corrected = [reference.tag(planted.tag_keys, node, tree.leaf) for node in tree.nodes]
            proof = le(corrected[0] ^ corrected[1], 16) if self.at.proved and self.session is None else b""
            proofs[place] = proofs.get(place, b"") + proof
        return [
            {"tree": planted.pieces[place]["tree"], "hint": hints[place], "proof": proofs[place]} for place in hints
        ]

    def _in_use(self, planted: Planted) -> list[Tree]:
        """Those of a session's trees, or of a round's own, whose blocks do not move plainly in this round."""
        return [tree for tree in planted.trees if not self.at.blocks[tree.block.index].plain]

    def _encoded_row(self, tree: Tree, updates: Mapping[str, Any]) -> list[int]:
        if self.at.protocol == "psu":
            return [SECRET.randrange(1, 2**64)]
        values = updates.get(tree.block.name, {}).get(self.number(tree.block, tree.row), [0] * tree.block.width)
        return [self._encoded(value) for value in values]

    def _encoded_dense(self, updates: Mapping[str, Any]) -> bytes:
        content, plain = [], {block.name: block for block in self.at.blocks if block.plain}
        for told in self.task_blocks():
            if told["name"] in plain:
                block = plain[told["name"]]
                values = updates.get(block.name, {})
                for row in self.unions[block.name] or [None]:
                    content += [self._encoded(value) for value in values.get(row, [0] * block.width)]
            elif told["type"] == "dense" and self.at.dense:
                values = np.asarray(updates.get(told["name"], [0] * told["size"])).reshape(-1)
                content += [self._encoded(value) for value in values]
        return self._elements(content)

    def task_blocks(self) -> list[dict[str, Any]]:
        return self.at.task["blocks"]

    def _encoded(self, value: float) -> int:
        return round(float(value) * 2**self.at.fraction_bits) % 2**self.at.bits

    def _elements(self, numbers: Sequence[int]) -> bytes:
        return b"".join(le(number, self.at.bits // 8) for number in numbers)

    def ranks(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Rows of the round in place of the task's; those outside of the union are left out."""
        found = {}
        for block in self.at.blocks:
            union, wanted = self.unions.get(block.name), () if block.plain else rows.get(block.name, ())
            aligned = union is not None and self.at.task["selection"] == "adaptive"
            found[block.name] = [union.index(row) for row in wanted if row in union] if aligned else list(wanted)
        return {name: wanted for name, wanted in found.items() if wanted}

    def number(self, block: Block, row: int) -> int:
        """The task's row for one of the round's."""
        aligned = block.name in self.unions and self.at.task["selection"] == "adaptive"
        return self.unions[block.name][row] if aligned else row

    # ---- the end of a round

    def outcome(self) -> dict[str, Any]:
        """The statement that both servers have signed."""
        for connection in self.connections:
            connection.send("ask-outcome", round_id=self.at.round_id)
        told = [connection.reply("finished") for connection in self.connections]
        for (head, statement), server in zip(told, self.servers, strict=True):
            assert head["round_id"] == self.at.round_id
            VerifyKey(server.statement).verify(H("fsl.statement", statement), head["signature"])
        found = msgpack.unpackb(told[0][1])
        assert msgpack.packb(found) == told[0][1] == told[1][1]
        assert (found["client"], found["round_id"]) == (self.keys.name, self.at.round_id)
        if (seat := found["seat"]) is not None:
            assert seat["digest"] == self.submitted
            check_seat(self.keys.name, seat, found["participants"], found["root"])
            if self.at.task["selection"] == "fixed" and found["ending"]["type"] == "done":
                self.session = self.planted
        return found


def placed(block: Block, rows: Sequence[int]) -> dict[tuple[int, int], int]:
    """Forest and tree of every row: in a bin, by augmenting paths, or else in a stash slot."""
    at: dict[tuple[int, int], int] = {}
    slots = iter(forest.number for forest in block.forests[1:])

    def augment(row: int, seen: set[int]) -> bool:
        for segment in range(3):
            tree = segment * block.forests[0].bins + block.place(row, segment)[0]
            if tree not in seen:
                seen.add(tree)
                if (0, tree) not in at or augment(at[0, tree], seen):
                    at[0, tree] = row
                    return True
        return False

    for row in rows:
        if not augment(row, set()):
            at[next(slots), 0] = row
    return at


def masked(content: bytes, mask: bytes, bits: int) -> bytes:
    """Element by element, the values less the mask."""
    dtype, shape = np.dtype(f"<u{min(bits, 64) // 8}"), -1
    if bits < 128:
        return (np.frombuffer(content, dtype).reshape(shape) - np.frombuffer(mask, dtype)).tobytes()
    pairs = ((content[at : at + 16], mask[at : at + 16]) for at in range(0, len(content), 16))
    return b"".join(le((int.from_bytes(a, "little") - int.from_bytes(b, "little")) % 2**128, 16) for a, b in pairs)
