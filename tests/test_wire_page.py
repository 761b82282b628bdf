"""docs/wire and its examples: the library makes them again, and decoders written from the page alone read them."""

import hashlib
import itertools
import re
import runpy
import typing
from typing import Any

import msgpack
import pytest
from nacl.signing import VerifyKey
from noise.connection import Keypair, NoiseConnection

from fsl_async.wire import messages
from tests import ROOT
from tests.support import reference
from tests.support.cases import in_turn
from tests.support.wire_page import (
    CLIENT,
    SERVERS,
    VECTORS,
    Direction,
    H,
    K,
    check_seat,
    le,
    of,
    pad,
    read_message,
    unpack_union,
    unpad,
)
from transport.preamble import PROTOCOL_VERSION

DOCS = ROOT / "docs"


def test_the_library_makes_these_examples():
    made = runpy.run_path(str(DOCS / "generate_wire_vectors.py"))["text"]()
    assert made == (DOCS / "wire-vectors.json").read_text(encoding="utf-8"), "`make docs` writes the file again"


OF_A_VERSION = {6: "55424aed2a5591ae13025ef3f1ce4b75"}
"""The examples' digest, by the protocol's version. If it differs, bytes may have changed that others depend on: raise
`PROTOCOL_VERSION`, unless that was done since the last release or there are only more examples, and write both here."""


def test_examples_belong_to_the_version_of_the_protocol():
    made = (DOCS / "wire-vectors.json").read_bytes()
    assert {PROTOCOL_VERSION: hashlib.blake2b(made, digest_size=16).hexdigest()} == OF_A_VERSION


# ---- digests


def test_digests_and_keys():
    for name in ("unkeyed", "keyed", "long"):
        case = VECTORS["digests"][name]
        assert H(case["tag"], *map(of, case["parts"]), key=of(case.get("key", ""))).hex() == case["digest"]
    case = VECTORS["digests"]["key"]
    assert K(case["tag"], *map(of, case["parts"])).hex() == case["derived"]


def test_the_page_names_every_tag_that_crosses_the_wire():
    of_one_party = {"HINT", "UPDATE", "STORED", "SIMULATION", "TOKEN", "SALT", "LAYOUT", "NOISE"}
    of_one_party |= {"BOUND_SEEDS", "BOUND_SQUARES"}
    named = set(re.findall(r"`(fsl\.[\w-]+)`", CLIENT + SERVERS))
    assert named == {tag for name, tag in VECTORS["digests"]["tags"].items() if name not in of_one_party}


def test_primitives():
    case = VECTORS["primitives"]
    key, block = of(case["key"]), int.from_bytes(of(case["block"]), "little")
    assert le(reference.hash_block(key, block), 16).hex() == case["hash"]
    stream = b"".join(le(reference.aes(key, (2**32 + 1) * 2**64 + j), 16) for j in (0, 1))
    assert stream.hex() == case["keystream, nonce 2^32 + 1, two blocks"]


# ---- connections


def test_preambles():
    case = VECTORS["preamble"]
    for name, role in (("client", 1), ("server", 2)):
        assert of(case[name]) == bytes([0x1F, 0x46, 0x53, 0x0A]) + (6).to_bytes(2, "big") + bytes([role, 1])
    prologue = b"fsl-async channel prologue\0" + of(case["client"]) + of(case["server"])
    assert prologue.hex() == case["prologue"]


@pytest.mark.filterwarnings("ignore:One of ephemeral keypairs is already set")
def test_the_handshake_by_another_implementation():
    case = VECTORS["noise"]
    sides = []
    for place, name in enumerate(("client", "server")):
        side = NoiseConnection.from_name(b"Noise_XK_25519_AESGCM_SHA256")
        side.set_prologue(of(VECTORS["preamble"]["prologue"]))
        (side.set_as_initiator if name == "client" else side.set_as_responder)()
        side.set_keypair_from_private_bytes(Keypair.STATIC, of(case[f"{name} private"]))
        side.set_keypair_from_private_bytes(Keypair.EPHEMERAL, of(case["ephemeral private"][place]))
        sides.append(side)
    client, server = sides
    client.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, server.noise_protocol.keypairs["s"].public_bytes)
    for side in sides:
        side.start_handshake()
    contents = [b"", *map(of, case["contents of the second and third"])]
    for turn, (sent, content) in enumerate(zip(map(of, case["messages"]), contents, strict=True)):
        writer, reader = (server, client) if turn % 2 else (client, server)
        padded = pad(content, 1_024) if turn else b""
        assert bytes(writer.write_message(padded)) == sent
        assert reader.read_message(sent) == padded
        assert len(sent) == (48, 1_072, 1_088)[turn]
    assert client.get_handshake_hash().hex() == case["handshake hash"]
    welcome = of(case["welcome"])
    assert len(welcome) == 1_051 == 2 + int.from_bytes(welcome[:2], "big")
    plain = client.decrypt(welcome[2:])
    assert plain[0] == 0
    assert int.from_bytes(plain[1:9], "big") == 1_024
    assert plain[9] == 1
    assert unpad(plain[10:], 1_023) == b"alice"


def test_marks_of_several_tasks():
    case = VECTORS["marks"]
    salt, *marks = (of(case["payload"])[at : at + 16] for at in range(0, len(of(case["payload"])), 16))
    assert marks == sorted(marks)
    assert len(marks) == 30
    assert all(H("fsl.served", of(task), key=salt)[:16] in marks for task in case["tasks"])
    assert H("fsl.served", of(VECTORS["digests"]["unkeyed"]["digest"]), key=salt)[:16] not in marks


def test_records():
    case = VECTORS["records"]
    assert list(Direction(of(case["key"])).open(of(case["stream"]))) == [
        (0, (5).to_bytes(8, "big") + b"hello"),
        (2, b""),
        (0, bytes(8)),
        (1, b""),
    ]
    late = Direction(of(case["key"]))
    late.nonce = 1_023
    assert list(late.open(of(case["1024th and 1025th PING"]))) == [(2, b""), (2, b"")]


# ---- messages


SECTION = "".join(page[page.index("## Messages") : page.index("## Digests")] for page in (CLIENT, SERVERS))
TABLES = "".join(re.findall(r"^\| `type` \|.*\n(?:\|.*\n)+", SECTION, flags=re.MULTILINE))
ROWS = dict(re.findall(r"^\| `([a-z-]+)` \|([^|]*)\|", TABLES, flags=re.MULTILINE))


def fields_of(kind: str) -> list[str]:
    """The fields that the page gives a message, in order."""
    return [name for part in ROWS[kind].split(";") for name in re.findall(r"`(\w+)`", part.partition(":")[0])]


@in_turn("name", VECTORS["messages"])
def test_a_message_has_the_fields_of_the_page_in_its_order(name):
    case = VECTORS["messages"][name]
    head, bulk = read_message(of(case["bytes"]))
    assert bulk.hex() == case["bulk"]
    assert next(iter(head)) == "type"
    kind = head.pop("type")
    assert fields_of(kind) == list(head)
    shown = {field: value for field, value in case["fields"].items() if field != "type"}
    assert {field: value.hex() if isinstance(value, bytes) else hexed(value) for field, value in head.items()} == shown


def hexed(value: Any) -> Any:
    return [item.hex() for item in value] if isinstance(value, list) else value


def test_the_page_has_every_message_and_every_field():
    between = messages.FromClient, messages.FromServer, messages.FromPeer
    classes = itertools.chain(*map(typing.get_args, between))
    declared = {each.__struct_config__.tag: each for each in classes}
    assert {"type", *declared} == set(ROWS)
    for kind, message in declared.items():
        assert fields_of(kind) == list(message.__struct_encode_fields__), kind
    assert set(declared) == {case["fields"]["type"] for case in VECTORS["messages"].values()}


def test_lists():
    case = VECTORS["lists"]
    packed = msgpack.packb(sorted([name, of(entry)] for name, entry in case["entries"].items()))
    assert packed.hex() == case["packed"]
    assert H("fsl.roster", packed).hex() == case["digest"]


# ---- the rest


def test_a_list_of_five_and_a_path_to_its_root():
    case = VECTORS["lists of clients"]
    names, blind = [name.encode() for name in case["names"]], of(case["blind"])
    assert K("fsl.roster-blind", of(case["proof key"]), of(case["round id"])) == blind
    salts = [K("fsl.roster-salt", blind, name) for name in names]
    level = [H("fsl.roster-leaf", *leaf) for leaf in zip(salts, names, map(of, case["digests"]), strict=True)]
    path, number = [], names.index(case["client"].encode())
    assert (case["place"], of(case["salt"])) == (number, salts[number])
    while len(level) > 1:
        path += level[number ^ 1 : (number ^ 1) + 1]
        pairs = [level[start : start + 2] for start in range(0, len(level), 2)]
        level = [pair[0] if len(pair) == 1 else H("fsl.roster-node", *pair) for pair in pairs]
        number //= 2
    assert b"".join(path) == of(case["path"])
    assert H("fsl.roster-root", le(len(names), 8), level[0]).hex() == case["root"]
    seat = {"place": case["place"], "salt": of(case["salt"]), "digest": of(case["digests"][case["place"]])}
    check_seat(case["client"], seat | {"path": b"".join(path)}, len(names), of(case["root"]))


def test_the_toss():
    case = VECTORS["toss"]
    halves, nonces = [*map(of, case["halves"])], [*map(of, case["nonces"])]
    for server in (0, 1):
        parts = (bytes([server]), le(case["number"], 8), halves[server], nonces[server])
        assert H("fsl.toss-commit", *parts).hex() == case["commitments"][server]
    assert H("fsl.hash-seed", *halves).hex() == case["hash seed"]
    assert H("fsl.proof-key", *halves).hex() == case["proof key"]


def test_statements_and_credentials():
    case = VECTORS["statements"]
    name, channel, statement = case["name"].encode(), of(case["channel key"]), of(case["statement key"])
    assert H("fsl.identity", name, channel, statement).hex() == case["identity digest"]
    server = VerifyKey(of(case["server's statement key"]))
    outcome = of(case["outcome"])
    server.verify(H("fsl.receipt", of(case["submission digest"])), of(case["receipt"]))
    assert H("fsl.outcome", outcome).hex() == case["outcome's digest"]
    order = ["round_id", "number", "ending", "clients", "excluded", "model", "union", "state", "opened_rows", "blind"]
    assert list(msgpack.unpackb(outcome)) == list(msgpack.unpackb(of(case["outcome of an aborted round"]))) == order
    statement_fields = ["client", "round_id", "number", "ending", "participants", "root", "seat", "excluded", "model"]
    server.verify(H("fsl.statement", of(case["statement"])), of(case["statement's signature"]))
    kinds = ("for a client that was left out", "of an aborted round", "with names")
    said = {kind: msgpack.unpackb(of(case[f"statement {kind}"])) for kind in kinds}
    assert all(list(each) == [*statement_fields, "union", "names", "opened_rows"] for each in said.values())
    told = [(each["client"], each["participants"], bool(each["seat"]), each["excluded"]) for each in said.values()]
    assert told == [("carol", 2, False, "only_s0"), (case["name"], 0, False, ""), (case["name"], 2, True, "")]
    assert said["of an aborted round"]["root"] == H("fsl.roster-root", le(0, 8), b"")
    assert said["with names"] == msgpack.unpackb(of(case["statement"])) | {"names": ["alice", "bob"]}
    credentials = msgpack.unpackb(of(case["credentials"]))
    task = of(VECTORS["verified"]["task digest"])
    VerifyKey(statement).verify(H("fsl.enrolment", task, name, channel), credentials["signature"])
    vouchers = [K("fsl.voucher", of(case["token"]), task, bytes([server])) for server in (0, 1)]
    assert [voucher.hex() for voucher in vouchers] == case["vouchers"]
    assert (credentials["task"], credentials["voucher"], credentials["name"]) == (task, vouchers[0], case["name"])


@pytest.mark.parametrize("case", VECTORS["unions"], ids=lambda case: str(len(case["rows"])))
def test_unions(case):
    assert unpack_union(of(case["packed"])) == case["rows"]
    assert of(case["packed"])[0] or len(of(case["packed"])) == 1 + -(-case["of"] // 8)
