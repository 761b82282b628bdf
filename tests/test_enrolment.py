"""Who is let in: by list, by token or openly; honest, hostile and racing clients, before and after a restart."""

import logging
import os
import random
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgpack
import numpy as np
import pytest
import trio
from hand_made import added_by, ask, connected, submission
from shop import TASK, Shop, assert_exact, model, plain_sum, take_part

from fsl_async.errors import MisuseError, StorageError
from fsl_async.messages import Receipt
from parties.deployment import ServerFile, connect, save_model, server_setup, write_deployment
from parties.enrolment import MOST_ENROLLED, Anyone, Credentials, Enrolment, ListOnly, Policy, WithToken
from parties.identity import Identity, Registry
from parties.store import MemoryStore
from parties.tokens import MOST_TOKENS, TokenBook, add_tokens, new_tokens, read_token, voucher
from transport import LONGEST_PAYLOAD, LONGEST_REASON, Network, Refusal, RefusedError

DIGEST = TASK.digest()
TOKENS = ["00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"]
TOKEN, OTHER_TOKEN = (read_token(text) for text in TOKENS)


def tokens(server: int = 0) -> WithToken:
    return WithToken(TokenBook.of(TOKENS, server))


def enrolment(policy: Policy, store: MemoryStore | None = None, listed: Registry | None = None, server: int = 0):
    return Enrolment(f"S{server}", DIGEST, listed or Registry(), policy, store or MemoryStore())


async def come(gate: Enrolment, identity: Identity, token: bytes = b"", server: int = 0) -> bytes | Refusal:
    """What the gate answers to the holder of an identity."""
    shown = voucher(token, server) if token else b""
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


class BrokenStore(MemoryStore):
    """Keeps nothing."""

    async def record(self, journal: str, entry: bytes) -> None:
        raise StorageError("the disk is full")


# ---- the list


async def test_a_list_lets_in_who_stands_on_it_by_its_name_and_keys():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(ListOnly(), listed=Registry([anna.public]))
    assert await come(gate, anna) == b"anna"
    refused(await come(gate, ben), "unknown client", ben.public.channel.hex(), "S0's list")
    refused(await come(gate, replace(anna, name="ann")), "knows your channel key as 'anna'", "you come as 'ann'")
    refused(await come(gate, replace(anna, statement_secret=ben.statement_secret)), anna.public.statement.hex()[:16])
    refused(await come(gate, ben, TOKEN), "S0's list")  # a token opens nothing here


async def test_who_stands_on_the_list_needs_no_token_and_spends_none():
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    gate = enrolment(tokens(), listed=Registry([anna.public]))
    assert await come(gate, anna, TOKEN) == b"anna"
    assert await come(gate, ben, TOKEN) == b"ben"


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
    seen_by_s0 = voucher(TOKEN, 0)
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
    said = Credentials.of(ben, bytes(32), voucher(OTHER_TOKEN, 0)).encode()
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


async def test_without_its_journal_a_restarted_server_would_take_a_token_twice():
    """Guards the test above: it is the journal that makes the difference."""
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    assert await come(enrolment(tokens(), MemoryStore()), anna, TOKEN) == b"anna"
    assert await come(enrolment(tokens(), MemoryStore()), ben, TOKEN) == b"ben"


async def test_a_journal_that_cannot_be_read_stops_the_start():
    anna, store = Identity.generate("anna"), MemoryStore()
    await come(enrolment(tokens(), store), anna, TOKEN)
    for damage in (b"", b"\xc1", (await store.entries("enrolment"))[0][:-1], msgpack.packb({"name": "x"})):
        broken = MemoryStore()
        await broken.record("enrolment", damage)
        with pytest.raises(StorageError, match="S0's journal of enrolments"):
            await enrolment(tokens(), broken).restore()


@pytest.mark.parametrize("seed", range(20))
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
    anna = Identity.generate("anna")
    gate = enrolment(tokens(), BrokenStore())
    with pytest.raises(StorageError, match="disk is full"):
        await come(gate, anna, TOKEN)
    assert "anna" not in gate
    assert gate.by_channel(anna.public.channel) is None


# ---- open enrolment


async def test_openly_whoever_comes_first_has_the_name():
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
        Credentials(task=DIGEST, name="mallory", statement=honest.statement, signature=b""),
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


async def test_there_is_an_end_to_how_many_enrol(monkeypatch):
    monkeypatch.setattr("parties.enrolment.MOST_ENROLLED", 3)
    gate = enrolment(Anyone())
    for number in range(3):
        assert isinstance(await come(gate, Identity.generate(f"client {number}")), bytes)
    refused(await come(gate, Identity.generate("client 3")), "takes no more")
    assert MOST_ENROLLED == 100_000


def test_only_open_enrolment_has_a_warning():
    assert "min_clients protects nobody" in enrolment(Anyone()).warning
    assert enrolment(tokens()).warning == enrolment(ListOnly()).warning == ""


# ---- what is said


@pytest.mark.parametrize("name", ["a", "a" * 64, "é" * 64, "😀" * 64, "Ἀλίκη und Bob"])
async def test_every_name_fits_and_enrols(name):
    identity = Identity.generate(name)
    assert len(Credentials.of(identity, DIGEST, voucher(TOKEN, 0)).encode()) <= LONGEST_PAYLOAD
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


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("policy", [ListOnly(), tokens(), Anyone()], ids=["list", "token", "open"])
async def test_hostile_credentials_get_a_reason(case, policy):
    store = MemoryStore()
    gate = enrolment(policy, store)
    answer = await gate.admit(Identity.generate("eve").public.channel, HOSTILE[case])
    refused(answer)
    assert answer.reason
    assert await store.entries("enrolment") == []


async def test_credentials_with_any_bit_changed_enrol_nobody():
    identity = Identity.generate("eve")
    said = Credentials.of(identity, DIGEST, voucher(TOKEN, 0)).encode()
    gate = enrolment(tokens())
    for bit in range(8 * len(said)):
        changed = bytearray(said)
        changed[bit // 8] ^= 1 << bit % 8
        refused(await gate.admit(identity.public.channel, bytes(changed)))
    assert await gate.admit(identity.public.channel, said) == b"eve"


async def test_random_bytes_and_spliced_credentials_never_raise():
    seed = 23
    print("seed", seed)
    draw = random.Random(seed)
    eve, mallory = Identity.generate("eve"), Identity.generate("mallory")
    gate = enrolment(Anyone())
    pieces = [Credentials.of(identity, DIGEST).encode() for identity in (eve, mallory)]
    key = Identity.generate("stranger").public.channel
    for _ in range(3_000):
        cut = draw.randrange(200)
        payload = draw.choice(
            [
                draw.randbytes(draw.randrange(LONGEST_PAYLOAD)),
                pieces[0][:cut] + pieces[1][cut:],
                pieces[0][:cut] + draw.randbytes(draw.randrange(20)) + pieces[0][cut:],
            ]
        )
        refused(await gate.admit(key, payload))


def test_secrets_do_not_show():
    said = Credentials.of(Identity.generate("eve"), DIGEST, voucher(TOKEN, 0))
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


def test_the_file_grows_and_holds_no_token(tmp_path):
    path = tmp_path / "tokens.toml"
    assert add_tokens(path, TOKENS[:1]) == 1
    assert add_tokens(path, TOKENS[1:]) == 2
    text = path.read_text()
    for token in (TOKEN, OTHER_TOKEN):
        for secret in (token, voucher(token, 0), voucher(token, 1)):
            assert secret.hex() not in text
    for server in (0, 1):
        book = TokenBook.load(path, server)
        assert len(book) == 2
        for token in (TOKEN, OTHER_TOKEN):
            assert book.find(voucher(token, server))
            assert not book.find(voucher(token, 1 - server))
            assert not book.find(token)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens.toml"]


@pytest.mark.parametrize(
    "text", ["", "S0 = []", "S0 = []\nS1 = ['ab']", "S0 = []\nS1 = [1]", "S0 = 1\nS1 = 2", "{", "S0=[]\nS1=[]\nS2=[]"]
)
def test_a_malformed_file_of_tokens_is_refused(tmp_path, text):
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(MisuseError, match=r"tokens\.toml"):
        TokenBook.load(path, 0)
    with pytest.raises(MisuseError, match=r"tokens\.toml"):
        add_tokens(path, TOKENS)
    assert path.read_text() == text


def test_the_book_compares_whole_digests():
    """Two vouchers whose digests begin alike are still two."""
    (known,) = TokenBook.of(TOKENS[:1], 0)._by_handle.values()
    book = TokenBook([known[:8] + bytes(24)])
    assert book.find(voucher(TOKEN, 0)) == b""


# ---- two servers


@dataclass
class Gates(Shop):
    """A shop whose two servers have policies, lists and stores of their own; nobody is registered by being made."""

    policies: tuple[Policy, Policy] = (ListOnly(), ListOnly())
    lists: tuple[Registry, Registry] = field(default_factory=lambda: (Registry(), Registry()))
    stores: tuple[MemoryStore, MemoryStore] = field(default_factory=lambda: (MemoryStore(), MemoryStore()))

    def setup_of(self, index):
        own = {"policy": self.policies[index], "registry": self.lists[index], "store": self.stores[index]}
        return replace(super().setup_of(index), **own)

    def client(self, name, **changes):
        self.known.setdefault(name, Identity.generate(name))
        return super().client(name, transport=self.transports[0], **changes)

    async def config(self):
        """The open round's, once both servers have opened it."""
        first, second = [await server.next_round(0) for server in self.servers]
        assert first.config == second.config
        return first.config


@pytest.fixture
async def gates(nursery):
    """Makes two servers in a memory network of their own."""

    async def make(**words) -> Gates:
        network = Network()
        shop = Gates(nursery, transports=(network, network), listen_at=("S0", "S1"), **words)
        await shop.open()
        return shop

    return make


async def test_a_round_of_clients_with_tokens_is_exact_whoever_else_knocks(gates, autojump_clock):
    shop = await gates(policies=(tokens(0), tokens(1)))
    anna, ben = shop.client("anna", token=TOKEN), shop.client("ben", token=OTHER_TOKEN)

    async def knock(payload: bytes, token: bytes) -> None:
        stranger = shop.client(f"stranger {payload[:3].hex()}", token=token)
        for server in (0, 1):
            with pytest.raises(RefusedError) as caught:
                async with connected(stranger, server, payload or None):
                    pytest.fail("a stranger is in")
            assert caught.value.reason

    async with anna, ben, trio.open_nursery() as nursery:
        for case in HOSTILE.values():
            nursery.start_soon(knock, case, b"")
        nursery.start_soon(knock, b"", TOKEN)
        nursery.start_soon(take_part, anna)
        nursery.start_soon(take_part, ben)
    assert_exact(await shop.finish_round(), "anna", "ben")
    assert shop.failures == []


async def test_two_who_race_with_one_token_are_never_both_counted(gates, autojump_clock):
    shop = await gates(policies=(tokens(0), tokens(1)))
    rivals = [shop.client("anna", token=TOKEN), shop.client("mallory", token=TOKEN)]
    opened: list[str] = []

    async def rush(client) -> None:
        with suppress(RefusedError):
            await client.open()
            opened.append(client.name)

    async with trio.open_nursery() as nursery:
        for rival in rivals:
            nursery.start_soon(rush, rival)
    assert len(opened) == 1  # everybody goes to S0 first
    for rival in rivals:
        await rival.aclose()
    assert shop.failures == []


async def test_after_a_restart_of_both_servers_a_used_token_stays_used(gates):
    stores = (MemoryStore(), MemoryStore())
    first = await gates(policies=(tokens(0), tokens(1)), stores=stores)
    async with first.client("anna", token=TOKEN) as anna:
        pass
    second = await gates(policies=(tokens(0), tokens(1)), stores=stores)
    second.known["anna"] = first.known["anna"]
    with pytest.raises(RefusedError, match="has been used"):
        await second.client("mallory", token=TOKEN).open()
    async with second.client("anna") as anna, second.client("ben", token=OTHER_TOKEN) as ben:  # no token needed again
        await take_part(anna)
        await take_part(ben)
    assert_exact(await second.finish_round(), "anna", "ben")


async def test_a_client_on_one_list_only_cannot_take_part_and_stops_nobody(gates, caplog, autojump_clock):
    shop = await gates()
    config = await shop.config()
    for name in ("anna", "ben"):
        identity = shop.known[name] = Identity.generate(name)
        for listed in shop.lists:
            listed.add(identity.public)
    name = next(f"eve {number}" for number in range(100) if config.carrier(f"eve {number}") == 0)
    eve = shop.client(name)
    shop.lists[0].add(shop.known[name].public)
    with pytest.raises(RefusedError, match=r"unknown client.*S1's list"):
        await eve.open()
    async with connected(eve, 0) as channel:  # not honest any more: all that S0 can be made to do with her
        assert isinstance(await ask(channel, submission(config, name), 0), Receipt)
        async with shop.client("anna") as anna, shop.client("ben") as ben:
            await take_part(anna)
            await take_part(ben)
        outcome = await shop.finish_round()
    assert_exact(outcome, "anna", "ben")
    assert outcome.excluded == {name: "only_s0"}
    assert f"forwards for '{name}', who is not known here" in caplog.text
    assert shop.failures == []


@pytest.mark.parametrize("policy", ["list", "open"])
async def test_one_name_with_different_keys_at_the_two_servers_is_never_merged(gates, policy, autojump_clock):
    """The very same submission, half of it sent to each server, and still not one client: its digest has the keys."""
    shop = await gates(policies=(Anyone(), Anyone()) if policy == "open" else (ListOnly(), ListOnly()))
    config = await shop.config()
    faces = [Identity.generate("anna"), Identity.generate("anna")]
    others = [Identity.generate("ben"), Identity.generate("carl")]
    if policy == "list":
        for server, listed in enumerate(shop.lists):
            for identity in (faces[server], *others):
                listed.add(identity.public)
    shop.known |= {identity.name: identity for identity in others}
    request = submission(config, "anna")
    replies: dict[int, Receipt] = {}

    async def send(server: int) -> None:
        async with connected(shop.client("anna", identity=faces[server]), server) as channel:
            replies[server] = await ask(channel, request, server)

    async with trio.open_nursery() as nursery:
        for server in (0, 1):
            nursery.start_soon(send, server)
    assert replies[0].digest != replies[1].digest
    if policy == "open":
        for server in (0, 1):  # whichever face comes honestly, it is told what to do
            with pytest.raises(RefusedError, match=f"'anna' belongs to somebody else at S{1 - server}.*keygen --name"):
                await shop.client("anna", identity=faces[server]).open()
    async with shop.client("ben") as ben, shop.client("carl") as carl:
        await take_part(ben)
        await take_part(carl)
    outcome = await shop.finish_round()
    assert_exact(outcome, "ben", "carl")
    assert outcome.excluded == {"anna": "mismatch"}


@pytest.mark.parametrize("secret", ["channel_secret", "statement_secret"])
async def test_one_name_with_one_key_of_two_different_is_never_merged_either(gates, autojump_clock, secret):
    shop = await gates(policies=(Anyone(), Anyone()))
    config = await shop.config()
    first = Identity.generate("anna")
    second = replace(first, **{secret: os.urandom(32)})
    request = submission(config, "anna")

    async def send(server: int, identity: Identity) -> None:
        async with connected(shop.client("anna", identity=identity), server) as channel:
            assert isinstance(await ask(channel, request, server), Receipt)

    async with shop.client("ben") as ben, shop.client("carl") as carl, trio.open_nursery() as nursery:
        nursery.start_soon(send, 0, first)
        nursery.start_soon(send, 1, second)
        nursery.start_soon(take_part, ben)
        nursery.start_soon(take_part, carl)
    outcome = await shop.finish_round()
    assert_exact(outcome, "ben", "carl")
    assert outcome.excluded == {"anna": "mismatch"}


async def test_the_same_halves_with_one_identity_are_counted(gates, autojump_clock):
    """Guards the two tests above: it is the keys that make the difference."""
    shop = await gates(policies=(Anyone(), Anyone()))
    config = await shop.config()
    anna, request = shop.client("anna"), submission(config, "anna")

    async def send(server: int) -> None:
        async with connected(anna, server) as channel:
            assert isinstance(await ask(channel, request, server), Receipt)

    async with shop.client("ben") as ben, trio.open_nursery() as nursery:
        nursery.start_soon(send, 0)
        nursery.start_soon(send, 1)
        nursery.start_soon(take_part, ben)
    outcome = await shop.finish_round()
    assert outcome.clients == ("anna", "ben")
    for block, added in added_by(1).items():
        np.testing.assert_array_equal(outcome.update[block], plain_sum(["ben"])[block] + added)


async def test_open_enrolment_is_announced_in_the_log(gates, caplog):
    with caplog.at_level(logging.WARNING, logger="parties.server"):
        await gates(policies=(Anyone(), tokens(1)))
    warnings = [record.getMessage() for record in caplog.records if "enrolment is open" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("S0: ")


# ---- files and the command


SERVER_FILE = 'server = 0\nidentity = "S0.key"\ntask = "task.toml"\nmodel = "model.npz"\nlisten = "127.0.0.1:0"\n'


@pytest.mark.parametrize(
    ("lines", "policy"),
    [
        ('clients = "clients.toml"', ListOnly),
        ('clients = "clients.toml"\nenrolment = "open"', Anyone),
        ('enrolment = "open"', Anyone),
        ('enrolment = "token"\ntokens = "tokens.toml"', WithToken),
    ],
)
def test_a_servers_file_names_who_may_enrol(tmp_path, lines, policy):
    identity = Identity.generate("S0")
    identity.save(tmp_path / "S0.key")
    servers = [identity.public, Identity.generate("S1").public]
    write_deployment(tmp_path, TASK, servers, ["127.0.0.1:1", "127.0.0.1:2"], [Identity.generate("anna").public])
    save_model(tmp_path / "model.npz", model())
    add_tokens(tmp_path / "tokens.toml", TOKENS)
    (tmp_path / "S0.toml").write_text(SERVER_FILE + lines)
    setup = server_setup(tmp_path / "S0.toml")
    assert isinstance(setup.policy, policy)
    assert len(setup.registry) == ("clients.toml" in lines)
    if isinstance(setup.policy, WithToken):
        assert setup.policy.book.find(voucher(TOKEN, 0))


@pytest.mark.parametrize(
    ("lines", "pattern"),
    [
        ("", "needs clients"),
        ('enrolment = "anyone"', "enrolment"),
        ('enrolment = "token"', "neither goes without the other"),
        ('enrolment = "open"\ntokens = "tokens.toml"', "neither goes without the other"),
        ('clients = "c"\ntokens = "tokens.toml"', "neither goes without the other"),
    ],
)
def test_a_servers_file_that_contradicts_itself_is_refused(tmp_path, lines, pattern):
    (tmp_path / "S0.toml").write_text(SERVER_FILE + lines)
    with pytest.raises(MisuseError, match=pattern):
        ServerFile.load(tmp_path / "S0.toml")


async def test_connect_refuses_what_is_no_token_before_it_dials(tmp_path):
    servers = [Identity.generate(name).public for name in ("S0", "S1")]
    write_deployment(tmp_path, TASK, servers, ["127.0.0.1:1", "127.0.0.1:2"], [])
    with pytest.raises(MisuseError, match="32 hexadecimal digits"):
        async with connect(tmp_path / "task.toml", Identity.generate("anna"), token="no token"):
            pytest.fail("connected")


def test_the_command_prints_tokens_once_and_keeps_their_digests(tmp_path):
    path = tmp_path / "tokens.toml"
    command = [sys.executable, "-m", "parties", "enrol", str(path), "--tokens", "3", "--format", "text"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = done.stdout.split()
    assert len(made) == 3
    book = TokenBook.load(path, 1)
    assert all(book.find(voucher(read_token(text), 1)) for text in made)
    assert not any(text in path.read_text() or text in done.stderr for text in made)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
