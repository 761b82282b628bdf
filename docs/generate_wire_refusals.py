"""Write docs/wire-refusals.json: what breaks each rule of docs/wire, and what becomes of it.

Run it with the environment's python (`make docs`). tests/test_wire_refusals.py fails while the file is out of date, has
our own parsers and parties refuse every case, and compares the rules with those that the pages name.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import numpy as np

from fsl_async import derivation
from fsl_async.bounds import private_digest, terms_of
from fsl_async.digests import Domain
from fsl_async.geometry import bin_limits
from fsl_async.union import pack_union
from fsl_async.wire import messages
from fsl_async.wire.codec import encode
from fsl_async.wire.public_part import Layout, Trees
from parties.identity.handshake import Credentials
from transport.noise import CipherState, HandshakeState, KeyPair
from transport.preamble import PROTOCOL_VERSION, Kind, Preamble, Role

FILE = Path(__file__).with_name("wire-refusals.json")
MADE = runpy.run_path(str(Path(__file__).with_name("generate_wire_vectors.py")))
fixed, identity, plain = MADE["fixed"], MADE["identity"], MADE["plain"]
VERIFIED, SEMI_HONEST, FIXED, CLIENT = MADE["VERIFIED"], MADE["SEMI_HONEST"], MADE["FIXED"], MADE["CLIENT"]
BOUNDED = MADE["BOUNDED"]["exact"]
CONFIG = MADE["_config"](VERIFIED)

Case = dict[str, Any]
REFUSED, MALFORMED, ENDS, CLOSED, ACCEPTED = "refuses", "`malformed`", "`malformed`, ends", "closes", "may accept"


def case(rule: str, why: str, reads: str, does: str, **data: Any) -> Case:
    """One case: which rule it breaks and how, who reads it, and what that one does."""
    return {"rule": rule, "case": why, "reads": reads, "does": does, **data}


def cases() -> list[Case]:
    """All of them."""
    return [
        *_preambles(),
        *_handshakes(),
        *_records(),
        *_heads(),
        *_credentials(),
        *_requests(),
        *_parts(),
        *_configurations(),
        *_replies(),
        *_statements(),
        *_unions_and_tasks(),
        *_between_servers(),
    ]


# ---- connections


def _preambles() -> list[Case]:
    good = {
        "listener": Preamble(PROTOCOL_VERSION, Role.CLIENT, Kind.LIVE).encode(),
        "dialler": Preamble(PROTOCOL_VERSION, Role.SERVER_0, Kind.LIVE).encode(),
    }
    found = []
    for reads, sent in good.items():
        other = {
            "preamble-magic": sent[:3] + b"\r" + sent[4:],
            "preamble-version": sent[:5] + bytes([PROTOCOL_VERSION + 1]) + sent[6:],
            "preamble-role": sent[:6] + bytes([Role.SERVER_0 if reads == "listener" else Role.CLIENT]) + sent[7:],
            "preamble-kind": sent[:7] + b"\2",
        }
        found += [
            case(rule, f"to a {reads}", f"preamble, as a {reads}", CLOSED, bytes=came) for rule, came in other.items()
        ]
        found.append(
            case("preamble-role", f"4, to a {reads}", f"preamble, as a {reads}", CLOSED, bytes=sent[:6] + b"\4\1")
        )
    return found


LOW_ORDER = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")


def _handshakes() -> list[Case]:
    """The keys are those of "noise" in wire-vectors.json."""
    own, server = KeyPair.from_private(fixed("client's key")), KeyPair.from_private(fixed("server's key"))
    ephemeral = {"client": fixed("client's ephemeral"), "server": fixed("server's ephemeral")}
    agreed = MADE["_preambles"]()["prologue"]

    def played(*payloads: bytes, key: bytes = server.public) -> list[bytes]:
        sides = [
            HandshakeState(own, key, agreed, lambda size: ephemeral["client"]),
            HandshakeState(server, None, agreed, lambda size: ephemeral["server"]),
        ]
        sent = []
        for turn, payload in enumerate((b"", *payloads)):
            sent.append(sides[turn % 2].write_message(payload))
            if key == server.public:
                sides[1 - turn % 2].read_message(sent[-1])
        return sent

    def padded(content: bytes) -> bytes:
        return bytes(MADE["_padded"](content, 1_024))

    good = padded(VERIFIED.digest())
    other = KeyPair.from_private(fixed("another server's key"))
    wrong = {"not zeros": good[:-1] + b"\1", "a length beyond the end": b"\xff\xff" + good[2:]}
    first, _, third = played(good, padded(b"credentials"))
    found = [
        case("noise-key", "message 1 to another key", "message 1", CLOSED, messages=played(key=other.public)[:1]),
        case("noise-key", "message 1 altered", "message 1", CLOSED, messages=[first[:-1] + bytes([first[-1] ^ 1])]),
        case("noise-static", "an ephemeral key of low order", "message 1", CLOSED, messages=[LOW_ORDER + first[32:]]),
        case("noise-static", "the highest bit set", "message 1", CLOSED, messages=[first[:31] + b"\xff" + first[32:]]),
        case(
            "noise-key", "message 3 altered", "message 3", CLOSED, messages=[first, third[:-1] + bytes([third[-1] ^ 1])]
        ),
    ]
    for why, payload in wrong.items():
        found.append(case("noise-padding-second", why, "message 2", CLOSED, messages=[played(payload)[1]]))
        found.append(
            case(
                "noise-padding-third",
                why,
                "message 3",
                "verdict 2",
                messages=[first, played(good, payload)[2]],
                payload=payload,
            )
        )
    return found + _welcomes(played(good, padded(b"credentials"))[1])


def _welcomes(second: bytes) -> list[Case]:
    text = MADE["_padded"](b"alice", 1_023)
    answers = {
        ("welcome-verdict", "verdict 0"): (b"\0" + text, REFUSED),
        ("welcome-verdict", "verdict 4"): (b"\4" + text, REFUSED),
        ("welcome-form", "not padded with zeros"): (b"\1" + text[:-1] + b"\1", REFUSED),
        ("welcome-form", "1,023 bytes"): ((b"\1" + text)[:-1], REFUSED),
        ("welcome-text", "another name"): (b"\1" + bytes(MADE["_padded"](b"somebody", 1_023)), ACCEPTED),
    }
    return [
        case(rule, why, "the first record", does, messages=[second], plaintext=content)
        for (rule, why), (content, does) in answers.items()
    ]


def _records() -> list[Case]:
    """Records under the key of "records" in wire-vectors.json, from the first on: plaintexts, or a stream as it is."""
    key = fixed("record key")

    def sealed(*plaintexts: bytes) -> bytes:
        cipher, stream = CipherState(key), b""
        for plaintext in plaintexts:
            ciphertext = cipher.encrypt(b"", plaintext)
            stream += len(ciphertext).to_bytes(2, "big") + ciphertext
        return stream

    def total(size: int) -> bytes:
        return b"\0" + size.to_bytes(8, "big")

    ping, hello = sealed(b"\2"), sealed(total(5) + b"hello")
    first, last = (total(70_000), 65_510), (b"\0", 4_490)
    broken: dict[tuple[str, str], list[tuple[bytes, int]]] = {
        ("record-type", "type 3"): [(b"\3", 0)],
        ("record-total", "fewer than 8 bytes in the first record"): [(b"", 8)],
        ("record-total", "a byte too few"): [(total(6) + b"hello", 0)],
        ("record-total", "a byte too many"): [(total(4) + b"hello", 0)],
        ("record-total", "more than 2^40"): [(total(2**40 + 1), 65_510)],
        ("record-full", "a first record that is not full"): [(first[0], 65_509), (b"\0", 4_491)],
        ("record-full", "a last record of a byte too many"): [first, (b"\0", 4_491)],
        ("record-full", "a last record of a byte too few"): [first, (b"\0", 4_489)],
        ("record-full", "an empty record within a message"): [first, (b"\0", 0), last],
        ("record-empty", "PING with a byte"): [(b"\2", 1)],
        ("record-empty", "CLOSE with a byte"): [(b"\1", 1)],
        ("record-between", "PING within a message"): [first, (b"\2", 0), last],
        ("record-between", "CLOSE within a message"): [first, (b"\1", 0)],
        ("record-after-close", "PING"): [(b"\1", 0), (b"\2", 0)],
    }
    streams = {
        ("record-length", "no byte", ENDS): b"\0\0",
        ("record-length", "16 bytes: a tag alone", ENDS): b"\0\x10" + bytes(16),
        ("record-tag", "a bit of the tag", CLOSED): _flipped(hello, -1),
        ("record-tag", "a bit of the ciphertext", CLOSED): _flipped(hello, 2),
        ("record-tag", "another key", CLOSED): b"\0\x11" + CipherState(fixed("another key")).encrypt(b"", b"\2"),
        ("record-tag", "the second record before the first", CLOSED): sealed(b"\2", b"\2")[len(ping) :],
        ("record-tag", "a record twice", CLOSED): ping + ping,
        ("record-cut", "without CLOSE", CLOSED): ping,
        ("record-cut", "within a record", CLOSED): hello[:-1],
        ("record-ping", "PING before any message", ACCEPTED): sealed(b"\2", b"\1"),
    }
    return [
        *(
            case(rule, why, "records", ENDS, plaintexts=[{"bytes": each, "then zeros": size} for each, size in records])
            for (rule, why), records in broken.items()
        ),
        *(case(rule, why, "records", does, stream=stream) for (rule, why, does), stream in streams.items()),
    ]


# ---- messages


def _heads() -> list[Case]:
    round_id, seed = fixed("round"), fixed("seed", 16)
    enter, ask, recall, retrieve, refused, name = (
        b"".join(encode(message))
        for message in (
            messages.Enter(after=3, known=round_id),
            messages.AskOutcome(round_id),
            messages.Recall(round_id, fixed("c0")),
            messages.Retrieve(
                round_id=round_id, query=1, seed=seed, commitments=(fixed("c0"), fixed("c1")), public_digest=round_id
            ),
            messages.Refused(reason="busy", explanation="come again", retry_after=5),
            messages.Forward(round_id=round_id, client=CLIENT, purpose="retrieve", query=1),
        )
    )
    head, after, known = enter[1:12], enter[12:19], enter[19:]
    deep = b"\x83" + head + b"\xa5after" + b"\x91" * 5 + b"\3" + known
    from_client = {
        ("head-order", "fields in another order"): b"\x83" + head + known + after,
        ("head-order", "type not first"): b"\x83" + after + head + known,
        ("head-once", "a key twice"): b"\x84" + head + after + after + known,
        ("head-once", "a key that is not listed"): b"\x83" + ask[1:] + b"\xa4more\xc2",
        ("head-all", "a field left out"): b"\x82" + head + after,
        ("head-all", "no type"): b"\x82" + after + known,
        ("head-shortest", "a map in a longer form"): b"\xde\0\x03" + enter[1:],
        ("head-shortest", "a number in a longer form"): enter.replace(after, b"\xa5after\xcc\x03"),
        ("head-shortest", "text in a longer form"): enter.replace(after, b"\xd9\x05after\x03"),
        ("head-shortest", "bytes in a longer form"): ask.replace(b"\xc4\x20", b"\xc5\0\x20"),
        ("head-shortest", "an array in a longer form"): retrieve.replace(b"commitments\x92", b"commitments\xdc\0\x02"),
        ("head-type", "a number below 0"): enter.replace(after, b"\xa5after\xff"),
        ("head-type", "a number with a point"): enter.replace(after, b"\xa5after\xcb" + bytes(8)),
        ("head-type", "text in the place of bytes"): ask.replace(b"\xc4\x20" + round_id, b"\xd9\x20" + b"a" * 32),
        ("head-type", "three commitments"): retrieve.replace(b"commitments\x92", b"commitments\x93\xc4\x20" + round_id),
        ("head-type", "no such message"): ask.replace(b"ask-outcome", b"ask-in-vain"),
        ("head-type", "a server's message"): b"".join(encode(messages.TaskIs(b"task"))),
        ("head-length", "a round_id of 31 bytes"): ask.replace(b"\xc4\x20" + round_id, b"\xc4\x1f" + round_id[:31]),
        ("head-length", "a seed of 17 bytes"): retrieve.replace(b"\xc4\x10" + seed, b"\xc4\x11" + seed + b"\0"),
        ("head-absent", "no commitment"): recall.replace(b"\xc4\x20" + fixed("c0"), b"\xc4\0"),
        ("head-absent", "nil in the place of the empty bin"): enter.replace(b"\xc4\x20" + round_id, b"\xc0"),
        ("head-bulk", "bulk where there is none"): recall + b"a",
        ("head-deep", "arrays in arrays"): deep,
        ("head-type", "no map"): b"\xc0",
        ("head-type", "no byte"): b"",
    }
    return [
        case(
            "head-size",
            "more than 64 KiB",
            "a server's message",
            ENDS,
            bytes=b"\x82\xa4type\xa7task-is\xa4task\xc5\xff\xff",
            zeros=65_535,
        ),
        *(case(rule, why, "a client's message", ENDS, bytes=came) for (rule, why), came in from_client.items()),
        case(
            "head-type", "no such reason", "a server's message", ENDS, bytes=refused.replace(b"\xa4busy", b"\xa4lazy")
        ),
        case(
            "head-text",
            "an explanation of 257 bytes",
            "a server's message",
            ENDS,
            bytes=refused.replace(b"\xaacome again", b"\xda\x01\x01" + b"a" * 257),
        ),
        *(
            case(
                "head-name",
                repr(other),
                "a message between servers",
                ENDS,
                bytes=name.replace(b"\xa5alice", msgpack.packb(other)),
            )
            for other in ("", "S0", "S1", 'a"b', "a\\b", "a\nb", "a" * 65)
        ),
    ]


def _credentials() -> list[Case]:
    alice, task = identity(CLIENT), VERIFIED.digest()
    good = Credentials.of(alice, task)
    fields = msgpack.unpackb(good.encode())
    other = identity("mallory")
    packed = {
        ("credentials-form", "fields in another order"): dict(sorted(fields.items())),
        ("credentials-form", "a field left out"): {key: fields[key] for key in fields if key != "voucher"},
        ("credentials-form", "a field more"): fields | {"more": 1},
        ("credentials-form", "a task of 31 bytes"): fields | {"task": task[:31]},
        ("credentials-voucher", "5 bytes"): fields | {"voucher": b"abcde"},
        ("credentials-voucher", "17 bytes"): fields | {"voucher": bytes(17)},
        ("credentials-name", "a line's end"): fields | {"name": "alice\n"},
        ("credentials-signature", "a bit of it"): fields
        | {"signature": bytes([good.signature[0] ^ 1]) + good.signature[1:]},
        ("credentials-signature", "for another channel key"): fields
        | {"signature": alice.sign(Domain.ENROLMENT, task, CLIENT.encode(), other.public.channel)},
        ("credentials-known", "another name than that of the channel key"): fields
        | {"name": "bob", "signature": alice.sign(Domain.ENROLMENT, task, b"bob", alice.public.channel)},
        ("credentials-known", "another statement key"): fields
        | {
            "statement": other.public.statement,
            "signature": other.sign(Domain.ENROLMENT, task, CLIENT.encode(), alice.public.channel),
        },
    }
    found = [
        case(rule, why, "credentials", "verdict 2", bytes=msgpack.packb(content), channel=alice.public.channel)
        for (rule, why), content in packed.items()
    ]
    longer = good.encode().replace(b"\xc4\x20", b"\xc5\0\x20", 1)
    found.append(
        case(
            "credentials-form", "a longer form", "credentials", "verdict 2", bytes=longer, channel=alice.public.channel
        )
    )
    unknown = Credentials.of(other, task).encode()
    return [
        *found,
        case(
            "credentials-known",
            "an unknown key",
            "credentials",
            "verdict 2",
            bytes=unknown,
            channel=other.public.channel,
        ),
    ]


def _requests() -> list[Case]:
    """A sound request (see `like`) with changes, to a server in whose open round it comes."""

    def of(rule: str, why: str, does: str, like: str, **changes: Any) -> Case:
        return case(rule, why, "a request", does, like=like, **changes)

    unknown = fixed("a round that nobody knows")
    return [
        of("request-round", "unknown", "`round-closed`", "retrieve", head={"round_id": unknown}),
        of("request-round", "unknown", "`round-closed`", "submit", head={"round_id": unknown}),
        of("request-round", "unknown", "`round-closed`", "download", head={"round_id": unknown}),
        of("request-round", "unknown", "`round-closed`", "ask-outcome", head={"round_id": unknown}),
        of("request-carrier", "no bulk to the carrier", MALFORMED, "retrieve", bulk="none"),
        of("request-carrier", "no bulk to the carrier", MALFORMED, "submit", bulk="none"),
        of("request-carrier", "bulk to the other server", MALFORMED, "retrieve", to="the other server"),
        of("request-carrier", "bulk to the other server", MALFORMED, "submit", to="the other server"),
        of("request-query", "0", MALFORMED, "retrieve", head={"query": 0}),
        of("request-query", "one above the task's retrievals", MALFORMED, "retrieve", head={"query": 9}),
        of("request-seed", "another seed than the commitment's", MALFORMED, "retrieve", flipped="seed"),
        of("request-seed", "another seed than the commitment's", MALFORMED, "submit", flipped="seed"),
        of(
            "request-bound",
            "a digest in a task without bound",
            MALFORMED,
            "submit",
            head={"bound_digest": fixed("bound")},
        ),
        of("trees-retrieved", "of a retrieval that was not made", MALFORMED, "submit", head={"query": 3}),
        of("trees-any", "a retrieval's", MALFORMED, "submit", head={"query": 1}, task={"updates": "any"}),
        of("trees-own", "trees of its own after a retrieval", ACCEPTED, "submit", after="retrieve"),
        of("part-size", "a byte too many", MALFORMED, "retrieve", bulk="one byte more"),
        of("part-size", "a byte too few", MALFORMED, "submit", bulk="one byte less"),
        of("request-size", "5,000 bytes too many", ENDS, "submit", bulk="5,000 bytes more"),
        of("part-digest", "another one is announced", MALFORMED, "retrieve", flipped="public_digest"),
        of("part-digest", "another one is announced", MALFORMED, "submit", flipped="public_digest"),
        of("part-dense", "another share", MALFORMED, "submit", bulk="last bit flipped"),
        of("repeat-bytes", "other trees under the same number", "`conflict`", "retrieve", after="retrieve"),
        of("repeat-bytes", "another submission", "`conflict`", "submit", after="submit"),
        of("repeat-same", "the same bytes", ACCEPTED, "submit", after="the same"),
        of("session-none", "recall without one", "`no-session`", "recall"),
        of("session-none", "hint without one", "`no-session`", "hint"),
        of("download-block", "no such block", MALFORMED, "download", head={"block": "nothing"}),
        of("download-block", "a sparse block, not whole", MALFORMED, "download", head={"block": "items"}),
        of(
            "download-block",
            "a union where there is none",
            MALFORMED,
            "download",
            head={"block": "items", "union": True},
        ),
        of(
            "download-block",
            "whole and union",
            MALFORMED,
            "download",
            head={"block": "items", "union": True, "whole": True},
        ),
        of("download-part", "a part that is none", MALFORMED, "download", head={"part": 1}),
        of("limit-retrievals", "one more than the task's", "`limit`", "retrieve", head={"query": 0}, times=9),
        of("limit-attempts", "the eleventh", "`limit`", "submit", head={"query": 3}, times=11),
        of("limit-end", "the fourth `limit` of a round", "`limit`, ends", "submit", head={"query": 3}, times=14),
        of("request-ahead", "the next before the reply", ACCEPTED, "download", ahead=True),
        of("role-key", "a client's key in a server's role", ENDS, "nothing", role=int(Role.SERVER_1)),
        case("request-drawn", "by a client that was not drawn", "a request to a round for others", "`not-drawn`"),
        of(
            "request-protocol",
            "a submission in a round that only serves retrievals",
            MALFORMED,
            "submit",
            task={"protocol": "psr"},
        ),
    ]


# ---- bulk


def _parts() -> list[Case]:
    """A public part with bits behind the last tree's, and private parts of the example "exact" of wire-vectors.json."""
    config = msgspec.structs.replace(MADE["_config"](SEMI_HONEST), bins=(3,))
    trees = MADE["_planted"](config)
    part = bytes(MADE["retrieval_part"](config, trees))
    spoilt = part[:-1] + bytes([part[-1] | 0x80])
    layout = Layout.retrieval(config.shape)
    named = derivation.public_digest(layout, spoilt, trees.digest)
    bounded = MADE["_bounded"](BOUNDED)
    private, prime = bounded["submission"]["private part"], terms_of(MADE["_config"](BOUNDED).shape).field
    size = prime.element_bytes
    above = private[:-size] + b"\xff" * size
    key = bounded["master seeds"][bounded["carrier"]]
    proofs = {
        ("bound-size", "a byte too few"): private[:-1],
        ("bound-element", "one that is not below the prime"): above,
        ("bound-digest", "another part than is named"): private[:-size]
        + bytes([private[-size] ^ 1])
        + private[1 - size :],
    }
    return [
        case(
            "part-padding",
            "a bit behind the selection bits",
            "a public part",
            MALFORMED,
            configuration=config.canonical(),
            bytes=spoilt,
            digest=named,
        ),
        *(
            case(
                rule,
                why,
                "a private part",
                MALFORMED,
                bytes=content,
                seed=key,
                digest=bounded["submission"]["bound digest"]
                if rule == "bound-digest"
                else private_digest(content, key),
            )
            for (rule, why), content in proofs.items()
        ),
    ]


# ---- what a client reads


def _configurations() -> list[Case]:
    """Announcements to a client of the task and servers of the round "verified"."""
    plain_config = msgpack.unpackb(CONFIG.canonical())
    least, most = bin_limits(VERIFIED.sparse(0))
    entry = {"name": "items", "size": 3, "digest": fixed("union")}
    values: dict[tuple[str, str], Any] = {
        ("bins-limits", "too few"): {"bins": [least - 1]},
        ("bins-limits", "too many"): {"bins": [most + 1]},
        ("bins-limits", "below 0"): {"bins": [-1]},
        ("bins-plain", "none in a round without a union"): {"bins": [0]},
        ("bins-list", "no number"): {"bins": []},
        ("bins-list", "two numbers"): {"bins": [least, least]},
        ("configuration-fields", "version 2"): {"version": 2},
        ("configuration-fields", "a session after the round"): {"session": 6},
        ("configuration-fields", "number 0"): {"number": 0, "session": 0},
        ("configuration-fields", "a seed of 31 bytes"): {"hash_seed": bytes(31)},
        ("configuration-fields", "one commitment"): {"toss": [bytes(32)]},
        ("configuration-fields", "a key of 31 bytes"): {
            "servers": [{"channel": bytes(31), "statement": bytes(32)}] * 2
        },
        ("configuration-fields", "a protocol that the task has not"): {"protocol": "psu"},
        ("configuration-fields", "a model without a block"): {"model": plain_config["model"][:1]},
        ("configuration-fields", "an unknown type of weights"): {
            "model": [plain_config["model"][0] | {"dtype": "f3"}, plain_config["model"][1]]
        },
        ("configuration-fields", "a union larger than its block"): {"union": [entry | {"size": 41}]},
        ("configuration-fields", "a plain block without a union"): {"plain": plain_config["model"][:1]},
        ("configuration-fields", "a state of 31 bytes"): {"state": bytes(31)},
        ("configuration-fields", "a sample in a task without"): {
            "sample": {"asked": 3, "size": 3, "digest": bytes(32)}
        },
    }
    whole = {case_: msgpack.packb(plain_config | changes) for case_, changes in values.items()}
    moved = {"task": plain_config["task"]} | {key: plain_config[key] for key in plain_config if key != "task"}
    whole |= {
        ("configuration-form", "fields in another order"): msgpack.packb(moved),
        ("configuration-form", "a field left out"): msgpack.packb(
            {k: plain_config[k] for k in plain_config if k != "union"}
        ),
        ("configuration-form", "a field more"): msgpack.packb(plain_config | {"more": 1}),
        ("configuration-form", "a number in a longer form"): CONFIG.canonical().replace(
            b"number\x05", b"number\xcc\x05"
        ),
        ("configuration-form", "a byte behind it"): CONFIG.canonical() + b"\xc0",
        ("round-task", "another task"): MADE["_config"](FIXED).canonical(),
        ("round-servers", "S1's keys as S0's"): msgpack.packb(
            plain_config | {"servers": plain_config["servers"][::-1]}
        ),
    }
    good = CONFIG.canonical()
    later = msgspec.structs.replace(CONFIG, number=6, session=6)
    session = msgspec.structs.replace(MADE["_config"](FIXED))
    sessions = {
        "another seed": {"hash_seed": fixed("another hash seed")},
        "another session": {"session": 6},
        "other bins": {"bins": (session.bins[0] + 1,)},
    }
    return [
        *(case(rule, why, "an announcement", REFUSED, config=came, after=4) for (rule, why), came in whole.items()),
        case("round-after", "not above what was asked for", "an announcement", REFUSED, config=good, after=5),
        case(
            "round-known",
            "the known one's number under another round_id",
            "an announcement",
            REFUSED,
            config=good,
            after=4,
            known=msgspec.structs.replace(CONFIG, hash_seed=fixed("another hash seed")).canonical(),
        ),
        case(
            "round-known",
            "a number below the known one's",
            "an announcement",
            REFUSED,
            config=good,
            after=4,
            known=later.canonical(),
        ),
        case(
            "round-strange",
            "by one server alone",
            "an announcement",
            REFUSED,
            config=good,
            after=4,
            known=good,
            strange=True,
        ),
        case(
            "round-drawn", "false where nobody is drawn", "an announcement", REFUSED, config=good, after=4, drawn=False
        ),
        *(
            case(
                "round-session",
                why,
                "an announcement",
                REFUSED,
                after=5,
                session=session.canonical(),
                config=msgspec.structs.replace(session, number=6, **changes).canonical(),
            )
            for why, changes in sessions.items()
        ),
        case(
            "round-both",
            "two configurations of one number",
            "both announcements",
            REFUSED,
            configs=[good, msgspec.structs.replace(CONFIG, toss=(fixed("toss 1"), fixed("toss 0"))).canonical()],
            drawn=[True, True],
        ),
        case(
            "round-both",
            "drawn by one server alone",
            "both announcements",
            REFUSED,
            configs=[good, good],
            drawn=[True, False],
        ),
    ]


def _flipped(content: bytes, place: int = 0) -> bytes:
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def _replies() -> list[Case]:
    """Answers in the round "verified", blocks of its model, receipts for the digest of "statements"."""
    made = MADE["_round"](VERIFIED)
    answers = made["retrieval"]["answers"]
    server, name = identity("S0"), fixed("submission")
    signature = server.sign(Domain.RECEIPT, name)
    block = made["model"]["head"]
    receipts = {
        ("receipt-digest", "another submission's"): (_flipped(name), server.sign(Domain.RECEIPT, _flipped(name))),
        ("receipt-signature", "S1's"): (name, identity("S1").sign(Domain.RECEIPT, name)),
        ("receipt-signature", "of a statement"): (name, server.sign(Domain.STATEMENT, name)),
        ("receipt-signature", "a bit of it"): (name, _flipped(signature)),
    }
    round_id = CONFIG.round_id()
    other = encode(messages.Answer(round_id=round_id, query=2))[0]
    return [
        case("answer-size", "a byte too few", "answers", REFUSED, answers=[answers[0][:-1], answers[1]]),
        case("answer-tags", "a bit of a row", "answers", REFUSED, answers=[_flipped(answers[0]), answers[1]]),
        case(
            "answer-tags",
            "a bit of a tree's row that has none",
            "answers",
            REFUSED,
            answers=[_flipped(answers[0], 40), answers[1]],
        ),
        case("answer-tags", "a bit of a tag", "answers", REFUSED, answers=[answers[0], _flipped(answers[1], -1)]),
        case("answer-query", "another one's", "a reply to query 1", REFUSED, bytes=other),
        case(
            "answer-round",
            "of another round",
            "a reply to query 1",
            ACCEPTED,
            bytes=encode(messages.Answer(round_id=fixed("round"), query=1))[0],
        ),
        case(
            "reply-kind",
            "a receipt",
            "a reply to query 1",
            REFUSED,
            bytes=encode(messages.Receipt(round_id=round_id, digest=name, signature=signature))[0],
        ),
        case("block-digest", "a bit of it", "a block", REFUSED, bytes=_flipped(block)),
        case("block-digest", "a byte too few", "a block", REFUSED, bytes=block[:-1]),
        *(
            case(
                rule,
                why,
                "a receipt",
                REFUSED,
                submission=name,
                bytes=encode(messages.Receipt(round_id=round_id, digest=digest, signature=signed))[0],
            )
            for (rule, why), (digest, signed) in receipts.items()
        ),
    ]


def _statements() -> list[Case]:
    """Statements of the round "verified" for alice, by S0."""
    said = MADE["_statements"]()
    good = msgpack.unpackb(said["statement"])
    seat = good["seat"]
    values = {
        ("statement-client", "bob's"): {"client": "bob"},
        ("statement-round", "of another round"): {"round_id": fixed("round")},
        ("statement-itself", "on the list, of nobody"): {"participants": 0},
        ("statement-itself", "more than the task's max_clients"): {"participants": 11},
        ("statement-itself", "on the list, and excluded"): {"excluded": "proof"},
        ("statement-itself", "opened rows where they are not counted"): {"opened_rows": {"items": b"\1"}},
        ("statement-itself", "names that the task does not ask for"): {"names": ["alice", "bob"]},
        ("statement-itself", "nobody, and a root"): {"participants": 0, "seat": None},
        ("statement-seat", "another place"): {"seat": seat | {"place": 1}},
        ("statement-seat", "another digest"): {"seat": seat | {"digest": _flipped(seat["digest"])}},
        ("statement-seat", "another salt"): {"seat": seat | {"salt": _flipped(seat["salt"])}},
        ("statement-seat", "a path that is too long"): {"seat": seat | {"path": seat["path"] + bytes(32)}},
        ("statement-seat", "another root"): {"root": _flipped(good["root"])},
    }
    whole = {key: msgpack.packb(good | changes) for key, changes in values.items()}
    moved = {"round_id": good["round_id"]} | {key: good[key] for key in good if key != "round_id"}
    whole |= {
        ("statement-form", "fields in another order"): msgpack.packb(moved),
        ("statement-form", "a field left out"): msgpack.packb({key: good[key] for key in good if key != "names"}),
        ("statement-form", "a number in a longer form"): said["statement"].replace(b"number\x05", b"number\xcc\x05"),
        ("statement-form", "a byte behind it"): said["statement"] + b"\xc0",
    }
    server, other = identity("S0"), identity("S1")
    signed = {
        ("statement-signature", "S1's"): other.sign(Domain.STATEMENT, said["statement"]),
        ("statement-signature", "of a receipt"): server.sign(Domain.RECEIPT, said["statement"]),
    }
    aborted = msgpack.unpackb(said["statement of an aborted round"])
    again = msgpack.packb(aborted | {"ending": {"type": "aborted", "explanation": "told otherwise"}})
    round_id = CONFIG.round_id()
    both = {
        ("statement-both", "done and aborted", REFUSED): [said["statement"], said["statement of an aborted round"]],
        ("statement-both", "other explanations of an abort", ACCEPTED): [said["statement of an aborted round"], again],
    }
    return [
        *(
            case(
                rule,
                why,
                "a statement",
                REFUSED,
                round_id=round_id,
                bytes=came,
                signature=server.sign(Domain.STATEMENT, came),
            )
            for (rule, why), came in whole.items()
        ),
        *(
            case(rule, why, "a statement", REFUSED, round_id=round_id, bytes=said["statement"], signature=signature)
            for (rule, why), signature in signed.items()
        ),
        *(
            case(
                rule,
                why,
                "both statements",
                does,
                round_id=round_id,
                statements=statements,
                submission=seat["digest"],
                signatures=[
                    who.sign(Domain.STATEMENT, each) for who, each in zip((server, other), statements, strict=True)
                ],
            )
            for (rule, why, does), statements in both.items()
        ),
        case(
            "statement-submission",
            "another one of this client",
            "both statements",
            REFUSED,
            round_id=round_id,
            statements=[said["statement"]] * 2,
            submission=fixed("another submission"),
            signatures=[who.sign(Domain.STATEMENT, said["statement"]) for who in (server, other)],
        ),
    ]


def _unions_and_tasks() -> list[Case]:
    rows = np.array([3, 4], dtype=np.uint32)
    packed = pack_union(rows, 40)
    bitmap = b"\0" + (1 << 3 | 1 << 4).to_bytes(5, "little")
    unions = {
        "a bitmap where gaps are shorter": bitmap,
        "no such form": b"\2" + packed[1:],
        "no byte": b"",
        "a row beyond the block": b"\1\x28",
        "a gap in a longer form": b"\1\x83\0\0",
        "a last digit that says that more follow": b"\1\x83",
        "a bitmap of another size": b"\0" + bytes(4),
    }
    task = VERIFIED.canonical()
    fields = msgpack.unpackb(task)
    forms = {
        "a field left out": msgpack.packb({key: fields[key] for key in fields if key != "retrievals"}),
        "fields in another order": msgpack.packb(dict(sorted(fields.items()))),
        "a number in a longer form": task.replace(b"retrievals\x08", b"retrievals\xcc\x08"),
        "a field more": msgpack.packb(fields | {"more": 1}),
    }
    ranges = {
        "no block": {"blocks": []},
        "retrievals 0": {"retrievals": 0},
        "no such ring": {"ring": {"bits": 16, "fraction_bits": 0}},
    }
    return [
        *(case("union-form", why, "a union of 40 rows", REFUSED, bytes=came) for why, came in unions.items()),
        *(case("task-form", why, "a task", REFUSED, bytes=came) for why, came in forms.items()),
        *(
            case("task-range", why, "a task", REFUSED, bytes=msgpack.packb(fields | changes))
            for why, changes in ranges.items()
        ),
    ]


# ---- what a server reads of the other one


def _between_servers() -> list[Case]:
    alice, bob = fixed("alice's"), fixed("bob's")
    names = {
        "not sorted": ["bob", "alice"],
        "twice": ["alice", "alice"],
        "a server's name": ["S0"],
        "more than the task's clients": [f"client_{number:02}" for number in range(11)],
        "a number": [1],
    }
    lists = {
        "not sorted": [["bob", bob], ["alice", alice]],
        "twice": [["alice", alice], ["alice", alice]],
        "a digest of 31 bytes": [["alice", alice[:31]]],
        "a server's name": [["S1", alice]],
        "more than the task's clients": [[f"client_{number:02}", alice] for number in range(11)],
        "pairs of three": [["alice", alice, 1]],
    }
    forwards: dict[tuple[str, str], Any] = {
        ("forward-carrier", "of a client that the receiver carries"): {"client": _carried_by(1)},
        ("forward-purpose", "number 1 of a submission"): {"purpose": "submit", "query": 1, "size": "submit"},
        ("forward-purpose", "number 0 of a retrieval"): {"query": 0},
        ("forward-purpose", "a number above the task's retrievals"): {"query": 9},
        ("forward-size", "a byte too few"): {"size": Layout.retrieval(CONFIG.shape).size - 1},
        ("forward-drawn", "of a client that was not drawn"): {"drawn": []},
    }
    sizes = {"retrieve": Layout.retrieval(CONFIG.shape).size, "submit": Layout.submission(CONFIG.shape, Trees.OWN).size}
    base = {"client": _carried_by(0), "purpose": "retrieve", "query": 1, "size": sizes["retrieve"], "drawn": None}
    spoilt = bytes(terms_of(MADE["_config"](BOUNDED).shape).verifier_bytes - 1) + b"\xff"
    base_known = messages.Known(settled=2, last=fixed("round"), said=9)

    def known(why: str, **theirs: Any) -> Case:
        sent = [encode(each)[0] for each in (base_known, msgspec.structs.replace(base_known, **theirs))]
        return case("peer-stores", why, "known", "`conflict`, ends", ours=sent[0], theirs=sent[1])

    def between(rule: str, why: str, reads: str, does: str = REFUSED, **data: Any) -> Case:
        return case(rule, why, reads, does, **data)

    return [
        *(between("list-form", why, "packed names", bytes=msgpack.packb(each)) for why, each in names.items()),
        *(between("list-form", why, "a packed list", bytes=msgpack.packb(each)) for why, each in lists.items()),
        between("list-form", "a longer form", "a packed list", bytes=b"\xdc\0\1\x92\xa5alice\xc4\x20" + alice),
        between("marks-form", "15 bytes", "marks", bytes=bytes(15)),
        between("marks-form", "more than two for each of max_clients", "marks", bytes=bytes(16 * 21)),
        between("marks-unknown", "of no part that is known", "marks", ACCEPTED, bytes=bytes(16)),
        *(
            between(
                rule,
                why,
                "forward",
                **{
                    key: sizes.get(value, value) if isinstance(value, str) else value
                    for key, value in (base | changes).items()
                },
            )
            for (rule, why), changes in forwards.items()
        ),
        known("the other server's store is behind", settled=0, last=b""),
        known("stores of other rounds", last=fixed("another round")),
        between("toss-number", "of a round that is not due", "toss", number=7, reveal=False),
        between("toss-number", "of a round before the last", "toss", number=3, reveal=False),
        between("toss-model", "another model", "toss", model=fixed("another model"), reveal=False),
        between("toss-reveal", "another half than was committed to", "toss", seed=fixed("half 0"), reveal=True),
        between("said-twice", "two commitments to the seed", "toss", commitment=fixed("another"), reveal=False),
        between("said-twice", "two lists of clients", "a round's state", state="Rostered", event="PeerRoster"),
        between("said-early", "a share before both commitments", "a round's message", message="share"),
        between("said-early", "pieces asked for before the share", "a round's message", message="ask-pieces"),
        between("said-early", "counts before the proofs", "a round's message", message="row-counts"),
        between("roster-drawn", "a client that was not drawn", "a round's message", message="roster"),
        between("closing-protocol", "in a round of submissions", "a round's message", message="closing"),
        between(
            "share-opens", "another share than was committed to", "a round's state", state="Revealed", event="PeerShare"
        ),
        between("share-size", "a digest too few", "a share's list", bytes=bytes(32)),
        between("pieces-once", "asked for twice", "a round's message", message="ask-pieces twice"),
        between("piece-order", "not the next one", "a piece", place=1),
        between("piece-size", "a byte too few", "a piece", place=0, size=-1),
        between("piece-digest", "another one than is listed", "a piece", place=0, size=0),
        between("proofs-names", "of other clients", "a round's state", state="Proved", event="PeerProofs"),
        between("conclusion", "another outcome", "a round's state", state="Concluded", event="PeerConclusion"),
        between("abort-why", "without a word", "a round's state", state="Open", event="PeerAbort"),
        between("counts-size", "a byte too few", "counts of contributors", bytes=bytes(4 * 40 - 1)),
        *(
            between("proofs-bound", why, "a bound's answer", bytes=answer)
            for why, answer in (("a byte too few", spoilt[:-1]), ("an element that is not below the prime", spoilt))
        ),
        between("round-unknown", "of a round that is unknown here", "a round's name", round_id=fixed("round")),
    ]


def _carried_by(server: int) -> str:
    return next(name for name in ("alice", "bob", "carol", "dave") if CONFIG.carrier(name) == server)


def text() -> str:
    """The whole file."""
    return json.dumps(plain(cases()), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
