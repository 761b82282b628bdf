"""Who is let in: by list, by token or openly; honest, hostile and racing clients, before and after a restart."""

import os
import random
from dataclasses import replace

import msgpack
import msgspec
import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from parties.identity.handshake import Credentials
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.identity.tokens import MOST_TOKENS, TokenBook, add_tokens, new_tokens, read_token, voucher
from parties.server.admission import MOST_ENROLLED, Anyone, Enrolment, ListOnly, Policy, WithToken
from parties.storage.store import MemoryStore
from tests.support.cases import in_turn
from tests.support.shop import TASK, FailingStore
from transport import Refusal
from transport.handshake import LONGEST_PAYLOAD, LONGEST_REASON

DIGEST = TASK.digest()
TOKENS = ["00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"]
TOKEN, OTHER_TOKEN = (read_token(text) for text in TOKENS)


def tokens(server: int = 0) -> WithToken:
    return WithToken(TokenBook.of(TOKENS, DIGEST, server))


def enrolment(
    policy: Policy, store: MemoryStore | None = None, listed: Registry | None = None, server: int = 0, **more
):
    return Enrolment(
        f"S{server}", DIGEST, Registry() if listed is None else listed, policy, store or MemoryStore(), **more
    )


async def come(gate: Enrolment, identity: Identity, token: bytes = b"", server: int = 0) -> bytes | Refusal:
    """What the gate answers to the holder of an identity."""
    shown = voucher(token, DIGEST, server) if token else b""
    return await gate.admit(identity.public.channel, Credentials.of(identity, DIGEST, shown).encode())


def refused(answer: bytes | Refusal, *words: str) -> None:
    assert isinstance(answer, Refusal), answer
    assert len(answer.reason.encode()) <= LONGEST_REASON
    for word in words:
        assert word in answer.reason


class SlowStore(MemoryStore):
    """Takes its time before it keeps anything."""

    async def record(self, journal: str, entry: bytes) -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        await super().record(journal, entry)
        for _ in range(5):
            await trio.lowlevel.checkpoint()


# ---- the list


async def test_a_list_lets_in_who_stands_on_it_by_its_name_and_keys():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(ListOnly(), listed=Registry([anna.public]))
    assert await come(gate, anna) == b"anna"
    refused(await come(gate, ben), "unknown client", ben.public.channel.hex()[:16], "S0's list")
    refused(await come(gate, replace(anna, name="ann")), "knows your channel key as 'anna'", "you come as 'ann'")
    refused(await come(gate, replace(anna, statement_secret=ben.statement_secret)), anna.public.statement.hex()[:16])
    refused(await come(gate, ben, TOKEN), "S0's list")  # a token opens nothing here
    said = Credentials.of(anna, DIGEST)
    unsigned = msgspec.structs.replace(said, signature=bytes(64))
    refused(await gate.admit(anna.public.channel, unsigned.encode()), "has not signed for this channel key")
    for_another = msgspec.structs.replace(said, task=bytes(32))
    refused(await gate.admit(anna.public.channel, for_another.encode()), "has not signed for this channel key")


async def test_who_stands_on_the_list_needs_no_token_and_spends_none():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(tokens(), listed=Registry([anna.public]))
    assert await come(gate, anna, TOKEN) == b"anna"
    assert await come(gate, ben, TOKEN) == b"ben"


async def test_credentials_have_one_encoding():
    anna = Identity.generate("anna")
    gate, said = enrolment(ListOnly(), listed=Registry([anna.public])), Credentials.of(anna, DIGEST).encode()
    plain = msgpack.unpackb(said)
    for other in (
        msgpack.packb(dict(reversed(plain.items()))),
        msgpack.packb({key: value for key, value in plain.items() if key != "voucher"}),
        b"\xde\0\x05" + said[1:],
        said.replace(b"\xa4anna", b"\xd9\x04anna"),
    ):
        refused(await gate.admit(anna.public.channel, other), "another encoding")


# ---- tokens


async def test_a_token_is_good_for_the_first_key_that_shows_it_and_for_no_other():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(tokens())
    refused(await come(gate, anna), "enrols with a token")
    refused(await come(gate, anna, os.urandom(16)), "not one of S0's")
    assert await come(gate, anna, TOKEN) == b"anna"
    assert await come(gate, anna, TOKEN) == b"anna"  # again, and without it
    assert await come(gate, anna) == b"anna"
    refused(await come(gate, ben, TOKEN), "has been used")
    refused(await come(gate, replace(ben, name="anna"), TOKEN), "has been used")
    refused(await come(gate, replace(anna, name="ann"), TOKEN), "knows your channel key as 'anna'")
    assert await come(gate, ben, OTHER_TOKEN) == b"ben"
    assert "anna" in gate
    assert "ann" not in gate
    assert gate.by_channel(ben.public.channel) == ben.public


async def test_what_one_server_is_shown_is_worthless_at_the_other():
    anna, friend = Identity.generate("anna"), Identity.generate("friend")
    first, second = enrolment(tokens(0), server=0), enrolment(tokens(1), server=1)
    assert await come(first, anna, TOKEN, server=0) == b"anna"
    seen_by_s0 = voucher(TOKEN, DIGEST, 0)
    answer = await second.admit(friend.public.channel, Credentials.of(friend, DIGEST, seen_by_s0).encode())
    refused(answer, "not one of S1's")
    assert await come(second, anna, TOKEN, server=1) == b"anna"


async def test_a_refusal_leaves_the_token_unused():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(tokens())
    assert await come(gate, anna, TOKEN) == b"anna"
    refused(
        await come(gate, replace(ben, name="anna"), OTHER_TOKEN), "the name 'anna' belongs to somebody else", "keygen"
    )
    refused(await come(gate, replace(ben, name="S1"), OTHER_TOKEN), "belongs to somebody else")
    said = Credentials.of(ben, bytes(32), voucher(OTHER_TOKEN, DIGEST, 0)).encode()
    refused(await gate.admit(ben.public.channel, said), "another task", DIGEST.hex()[:16], "00000000")
    assert await come(gate, ben, OTHER_TOKEN) == b"ben"


async def test_enrolments_hold_after_a_restart():
    anna, ben, store = Identity.generate("anna"), Identity.generate("ben"), MemoryStore()
    assert await come(enrolment(tokens(), store), anna, TOKEN) == b"anna"
    for policy in (tokens(), Anyone(), ListOnly()):  # whatever the operator has made of it since
        gate = enrolment(policy, store)
        await gate.restore()
        assert await come(gate, anna) == b"anna"
        assert isinstance(await come(gate, replace(ben, name="anna"), OTHER_TOKEN), Refusal)
    gate = enrolment(tokens(), store)
    await gate.restore()
    refused(await come(gate, ben, TOKEN), "has been used")
    assert await come(gate, ben, OTHER_TOKEN) == b"ben"
    assert len(await store.entries("enrolment")) == 2


async def test_a_journal_that_cannot_be_read_stops_the_start():
    anna, store = Identity.generate("anna"), MemoryStore()
    await come(enrolment(tokens(), store), anna, TOKEN)
    for damage in (b"", b"\xc1", (await store.entries("enrolment"))[0][:-1], msgpack.packb({"name": "x"})):
        broken = MemoryStore()
        await broken.record("enrolment", damage)
        with pytest.raises(StorageError, match="S0's journal of enrolments"):
            await enrolment(tokens(), broken).restore()


@in_turn("seed", range(20))
async def test_of_many_keys_that_show_one_token_at_once_one_gets_in(seed):
    print("seed", seed)
    rivals = [Identity.generate(f"rival {number}") for number in range(6)]
    random.Random(seed).shuffle(rivals)
    store = SlowStore()
    gate = enrolment(tokens(), store)
    answers: dict[str, bytes | Refusal] = {}

    async def rush(rival: Identity) -> None:
        answers[rival.name] = await come(gate, rival, TOKEN)

    async with trio.open_nursery() as nursery:
        for rival in rivals:
            nursery.start_soon(rush, rival)
    winners = [name for name, answer in answers.items() if answer == name.encode()]
    assert len(winners) == 1
    assert all(isinstance(answer, Refusal) for name, answer in answers.items() if name not in winners)
    assert len(await store.entries("enrolment")) == 1


async def test_two_connections_of_one_key_with_one_token_at_once_both_get_in_and_enrol_once():
    anna, store = Identity.generate("anna"), SlowStore()
    gate = enrolment(tokens(), store)
    answers: list[bytes | Refusal] = []

    async def rush() -> None:
        answers.append(await come(gate, anna, TOKEN))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rush)
        nursery.start_soon(rush)
    assert answers == [b"anna", b"anna"]
    assert len(await store.entries("enrolment")) == 1


async def test_an_enrolment_cut_off_on_its_way_to_the_store_is_whole_or_not_there():
    for cancelled_after in range(20):
        anna, store = Identity.generate("anna"), SlowStore()
        gate = enrolment(tokens(), store)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(come, gate, anna, TOKEN)
                for _ in range(cancelled_after):
                    await trio.lowlevel.checkpoint()
                scope.cancel()
        assert (gate.by_channel(anna.public.channel) is not None) == bool(await store.entries("enrolment"))


async def test_what_the_store_does_not_keep_is_not_enrolled():
    anna, store = Identity.generate("anna"), FailingStore()
    store.error = StorageError("the disk is full")
    gate = enrolment(tokens(), store)
    with pytest.raises(StorageError, match="disk is full"):
        await come(gate, anna, TOKEN)
    assert "anna" not in gate
    assert gate.by_channel(anna.public.channel) is None


# ---- open enrolment


async def test_with_open_enrolment_the_first_to_come_has_the_name():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(Anyone())
    assert await come(gate, anna) == b"anna"
    refused(await come(gate, replace(ben, name="anna")), "the name 'anna' belongs to somebody else", "keygen --name")
    assert await come(gate, ben) == b"ben"
    assert await come(gate, anna) == b"anna"


async def test_openly_nobody_enrols_with_another_ones_statement_key():
    anna, mallory = Identity.generate("anna"), Identity.generate("mallory")
    gate = enrolment(Anyone())
    honest = Credentials.of(anna, DIGEST)
    for stolen in (
        Credentials(task=DIGEST, name="anna", statement=honest.statement, signature=honest.signature),
        Credentials(task=DIGEST, name="mallory", statement=honest.statement, signature=honest.signature),
        Credentials(task=DIGEST, name="mallory", statement=honest.statement, signature=bytes(64)),
    ):
        refused(await gate.admit(mallory.public.channel, stolen.encode()), "has not signed for this channel key")
    assert await come(gate, anna) == b"anna"


async def test_the_list_holds_against_what_enrolled_before(caplog):
    squatter, anna, store = Identity.generate("anna"), Identity.generate("anna"), MemoryStore()
    assert await come(enrolment(Anyone(), store), squatter) == b"anna"
    gate = enrolment(Anyone(), store, listed=Registry([anna.public]))
    await gate.restore()
    assert "'anna' has enrolled with other keys than the list gives it" in caplog.text
    assert gate.by_name("anna") == anna.public
    assert gate.by_channel(squatter.public.channel) is None
    assert await come(gate, anna) == b"anna"
    refused(await come(gate, squatter), "belongs to somebody else")


async def test_a_key_whose_name_the_list_has_given_away_enrols_no_second_time_and_the_server_starts_again():
    anna, store = Identity.generate("anna"), MemoryStore()
    assert await come(enrolment(Anyone(), store), anna) == b"anna"
    listed = Registry([Identity.generate("anna").public])
    gate = enrolment(Anyone(), store, listed)
    await gate.restore()
    again = replace(anna, name="another")
    refused(await come(gate, again), "has enrolled at S0 before, under another name")
    await enrolment(Anyone(), store, listed).restore()


async def test_there_is_an_end_to_how_many_enrol(monkeypatch):
    monkeypatch.setattr("parties.server.admission.MOST_ENROLLED", 3)
    gate = enrolment(Anyone())
    for number in range(3):
        assert isinstance(await come(gate, Identity.generate(f"client {number}")), bytes)
    refused(await come(gate, Identity.generate("client 3")), "takes no more")
    assert MOST_ENROLLED == 1_000_000


# ---- what is said


@pytest.mark.parametrize("name", ["a", "a" * 64, "é" * 64, "😀" * 64, "Ἀλίκη und Bob"])
async def test_every_name_fits_and_enrols(name):
    identity = Identity.generate(name)
    assert len(Credentials.of(identity, DIGEST, voucher(TOKEN, DIGEST, 0)).encode()) <= LONGEST_PAYLOAD
    gate = enrolment(tokens())
    assert await come(gate, identity, TOKEN) == name.encode()
    refused(await come(gate, replace(identity, name="z" + name[1:])), name[1:])


@pytest.mark.parametrize("name", ["", "a" * 65, "a\nb", "a\0b", 'a"b', "a\\b", "\u202eanna", "\u2028"])
async def test_other_names_are_refused(name):
    identity = Identity.generate(name)
    refused(await come(enrolment(Anyone()), identity), "1 to 64 printable characters")


def fields(**changes) -> bytes:
    plain = msgpack.unpackb(Credentials.of(Identity.generate("eve"), DIGEST).encode()) | changes
    return msgpack.packb({key: value for key, value in plain.items() if value is not None})


HOSTILE = {
    "nothing": b"",
    "only a digest, as of old": DIGEST,
    "text": b"hello, server",
    "not MessagePack": b"\xc1",
    "an array": msgpack.packb(["eve"]),
    "nested arrays": b"\x91" * LONGEST_PAYLOAD,
    "nested maps": b"\x81\xa1a" * (LONGEST_PAYLOAD // 3),
    "an announced giant": b"\xdf\xff\xff\xff\xff",
    "an announced text": b"\xdb\xff\xff\xff\xff",
    "an extension type": b"\xd4\x01\x02",
    "a missing field": fields(statement=None),
    "an unknown field": fields(rank="admin"),
    "an unknown field with a long name": fields(**{"\x1b" * 250: 1}),
    "a name of bytes": fields(name=b"eve"),
    "a name of a number": fields(name=7),
    "a key of text": fields(statement="a" * 32),
    "a short key": fields(statement=b"a" * 31),
    "a short digest": fields(task=b""),
    "a short signature": fields(signature=b"a" * 63),
    "a low-order key": fields(statement=bytes(32)),
    "trailing bytes": fields() + b"\0",
    "cut short": fields()[:-1],
    "bad UTF-8": fields().replace(b"\xa3eve", b"\xa3\xff\xfe\xfd"),
}


@in_turn("case", HOSTILE)
@in_turn("policy", [ListOnly(), tokens(), Anyone()])
async def test_hostile_credentials_get_a_reason(case, policy):
    store = MemoryStore()
    gate = enrolment(policy, store)
    answer = await gate.admit(Identity.generate("eve").public.channel, HOSTILE[case])
    refused(answer)
    assert answer.reason
    assert await store.entries("enrolment") == []


async def test_credentials_with_any_bit_changed_enrol_nobody():
    identity = Identity.generate("eve")
    said = Credentials.of(identity, DIGEST, voucher(TOKEN, DIGEST, 0)).encode()
    gate = enrolment(tokens())
    for bit in range(8 * len(said)):
        changed = bytearray(said)
        changed[bit // 8] ^= 1 << bit % 8
        refused(await gate.admit(identity.public.channel, bytes(changed)))
    assert await gate.admit(identity.public.channel, said) == b"eve"


def test_secrets_do_not_show():
    said = Credentials.of(Identity.generate("eve"), DIGEST, voucher(TOKEN, DIGEST, 0))
    assert repr(said) == "Credentials(name='eve')"
    assert TOKEN.hex() not in repr(tokens())


# ---- tokens and their file


def test_tokens_are_fresh_and_read_back():
    made = new_tokens(50)
    assert len(set(made)) == 50
    for text in made:
        assert read_token(f"  {text[:8]}-{text[8:].upper()}\n").hex() == text
    for wrong in ("", "0" * 31, "0" * 33, "g" * 32, "token", "٠" * 32):
        with pytest.raises(MisuseError, match="32 hexadecimal digits expected"):
            read_token(wrong)
    for count in (0, -1, MOST_TOKENS + 1):
        with pytest.raises(MisuseError, match="can be made at once"):
            new_tokens(count)


def test_tokens_are_for_one_task(tmp_path):
    path = tmp_path / "tokens.toml"
    add_tokens(path, DIGEST, TOKENS)
    assert voucher(TOKEN, DIGEST, 0) != voucher(TOKEN, bytes(32), 0)
    for use in (lambda: TokenBook.load(path, bytes(32), 0), lambda: add_tokens(path, bytes(32), TOKENS)):
        with pytest.raises(MisuseError, match=f"its tokens are for the task whose digest is {DIGEST.hex()[:16]}"):
            use()


def test_the_file_grows_and_holds_no_token(tmp_path):
    path = tmp_path / "tokens.toml"
    assert add_tokens(path, DIGEST, TOKENS[:1]) == 1
    assert add_tokens(path, DIGEST, TOKENS[1:]) == 2
    text = path.read_text()
    for token in (TOKEN, OTHER_TOKEN):
        for secret in (token, voucher(token, DIGEST, 0), voucher(token, DIGEST, 1)):
            assert secret.hex() not in text
    for server in (0, 1):
        book = TokenBook.load(path, DIGEST, server)
        assert len(book) == 2
        for token in (TOKEN, OTHER_TOKEN):
            assert book.find(voucher(token, DIGEST, server))
            assert not book.find(voucher(token, DIGEST, 1 - server))
            assert not book.find(token)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.toml"]


@pytest.mark.parametrize(
    "text", ["", "S0 = []", "S0 = []\nS1 = ['ab']", "S0 = []\nS1 = [1]", "S0 = 1\nS1 = 2", "{", "S0=[]\nS1=[]\nS2=[]"]
)
def test_a_malformed_file_of_tokens_is_refused(tmp_path, text):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(MisuseError, match=r"tokens\.toml"):
        TokenBook.load(path, DIGEST, 0)
    with pytest.raises(MisuseError, match=r"tokens\.toml"):
        add_tokens(path, DIGEST, TOKENS)
    assert path.read_text() == text


def test_the_book_compares_whole_digests():
    """Two vouchers whose digests begin alike are still two."""
    known = TokenBook.of(TOKENS[:1], DIGEST, 0).find(voucher(TOKEN, DIGEST, 0))
    book = TokenBook([known[:8] + bytes(24)])
    assert book.find(voucher(TOKEN, DIGEST, 0)) == b""
