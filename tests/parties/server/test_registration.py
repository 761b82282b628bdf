"""Registration as a deployment meets it: two servers that decide apart, rounds among strangers, files, the command."""

import logging
import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest
import trio

from fsl_async.errors import MisuseError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import AskOutcome, AskTask, Enter, Receipt, TaskIs
from parties.deployment.connecting import connect
from parties.deployment.server import server_setup
from parties.identity.handshake import Credentials
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook, add_tokens, read_token, voucher
from parties.server.admission import Anyone, ListOnly, Policy, WithToken
from parties.settings.party_file import ServerFile
from parties.storage.store import MemoryStore
from tests.parties.server.test_admission import HOSTILE, OTHER_TOKEN, TOKEN, TOKENS, tokens
from tests.support.hand_made import ask, connected, reply, submission
from tests.support.shop import TASK, Shop, all_take_part, assert_exact, honest_round, take_part
from tests.support.town import deploy
from transport import ChannelClosedError, RefusedError, Role

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
        return super().client(name, **changes)

    async def config(self):
        """The open round's, once both servers have opened it."""
        first, second = [await server.next_round(0) for server in self.servers]
        assert first.config == second.config
        return first.config


@pytest.fixture
async def gates(nursery):
    """Makes two servers in a memory network of their own."""

    async def make(*, restarted: Gates | None = None, **words) -> Gates:
        shop = Gates.in_memory(nursery, **words)
        if restarted is not None:
            shop.identities, shop.known = restarted.identities, restarted.known
        return await shop.open()

    return make


async def test_a_round_of_clients_with_tokens_is_exact_while_strangers_try_to_connect(gates, autojump_clock):
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


async def test_after_a_restart_of_both_servers_a_used_token_stays_used(gates):
    stores = (MemoryStore(), MemoryStore())
    first = await gates(policies=(tokens(0), tokens(1)), stores=stores)
    async with first.client("anna", token=TOKEN) as anna:
        pass
    second = await gates(restarted=first, policies=(tokens(0), tokens(1)), stores=stores)
    with pytest.raises(RefusedError, match="has been used"):
        await second.client("mallory", token=TOKEN).run()
    async with second.client("anna") as anna, second.client("ben", token=OTHER_TOKEN) as ben:  # no token needed again
        await all_take_part(anna, ben)
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
        await eve.run()
    async with connected(eve, 0) as channel:  # not honest any more: all that S0 can be made to do with her
        assert isinstance(await ask(channel, submission(config, name), 0), Receipt)
        outcome = await honest_round(shop)
    assert outcome.excluded == {name: "only_s0"}
    assert f"forwards for '{name}', who is not known here" in caplog.text
    assert shop.failures == []


async def test_a_listed_client_that_means_another_task_hears_which_is_served_and_nothing_else(gates, autojump_clock):
    shop = await gates()
    config, anna = await shop.config(), shop.client("anna")
    for listed in shop.lists:
        listed.add(shop.known["anna"].public)
    other = Credentials.of(shop.known["anna"], bytes(32)).encode()
    async with connected(anna, 0, other) as channel:
        assert await asked(channel, AskTask()) == TaskIs(TASK.canonical())
        for message in (Enter(0), AskOutcome(config.round_id())):
            refused = await asked(channel, message)
            assert (refused.reason, "for another task" in refused.explanation) == ("malformed", True)
        refused = await ask(channel, submission(config, "anna"), 0)
        assert refused.reason == "malformed"


@pytest.mark.parametrize("role", [Role.SERVER_0, Role.SERVER_1])
async def test_a_clients_key_in_a_servers_role_is_told_so(gates, autojump_clock, role):
    shop = await gates()
    anna, server = shop.client("anna"), 1 - (role - Role.SERVER_0)
    for listed in shop.lists:
        listed.add(shop.known["anna"].public)
    async with connected(anna, server, role=role) as channel:
        refused = await reply(channel)
        assert (refused.reason, role.name in refused.explanation) == ("malformed", True)
        with pytest.raises(ChannelClosedError):
            await reply(channel)


async def asked(channel, message):
    await channel.send(*encode(message))
    return await reply(channel)


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
                await shop.client("anna", identity=faces[server]).run()
    async with shop.client("ben") as ben, shop.client("carl") as carl:
        await all_take_part(ben, carl)
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


async def test_open_enrolment_is_announced_in_the_log(gates, caplog):
    with caplog.at_level(logging.WARNING, logger="parties.server"):
        await gates(policies=(Anyone(), tokens(1)))
    warnings = [record.getMessage() for record in caplog.records if "enrolment is open" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("S0: ")


# ---- files and the command


SERVER_FILE = (
    'server = 0\nidentity = "S0.key"\ntask = "task.toml"\nmodel = "model.npz"\nlisten = "127.0.0.1:0"\n'
    'store = "memory"\n'
)


@pytest.mark.parametrize(
    ("lines", "policy"),
    [
        ('clients = "clients.toml"', ListOnly),
        ('clients = "clients.toml"\nenrolment = "open"', Anyone),
        ('enrolment = "open"', Anyone),
        ('enrolment = "token"\ntokens = "tokens.toml"', WithToken),
    ],
)
async def test_a_servers_file_names_who_may_enrol(tmp_path, lines, policy):
    deploy(tmp_path, ["anna"])
    add_tokens(tmp_path / "tokens.toml", TASK.digest(), TOKENS)
    (tmp_path / "S0.toml").write_text(SERVER_FILE + lines)
    setup = await server_setup(tmp_path / "S0.toml")
    assert isinstance(setup.policy, policy)
    assert len(setup.registry) == ("clients.toml" in lines)
    if isinstance(setup.policy, WithToken):
        assert setup.policy.book.find(voucher(TOKEN, TASK.digest(), 0))


@pytest.mark.parametrize(
    ("lines", "pattern"),
    [
        ("", "needs clients"),
        ('enrolment = "anyone"', "enrolment"),
        ('enrolment = "token"', "need each other: add the missing one"),
        ('enrolment = "open"\ntokens = "tokens.toml"', "need each other: add the missing one"),
        ('clients = "c"\ntokens = "tokens.toml"', "need each other: add the missing one"),
    ],
)
def test_a_servers_file_that_contradicts_itself_is_refused(tmp_path, lines, pattern):
    (tmp_path / "S0.toml").write_text(SERVER_FILE + lines)
    with pytest.raises(MisuseError, match=pattern):
        ServerFile.load(tmp_path / "S0.toml")


async def test_connect_refuses_what_is_no_token_before_it_dials(tmp_path):
    deploy(tmp_path, [])
    with pytest.raises(MisuseError, match="32 hexadecimal digits"):
        async with connect(tmp_path / "task.toml", Identity.generate("anna"), token="no token"):
            pytest.fail("connected")


def test_the_command_prints_tokens_once_and_keeps_their_digests(tmp_path):
    deploy(tmp_path, [])
    path, task = tmp_path / "tokens.toml", tmp_path / "task.toml"
    command = [sys.executable, "-m", "parties", "enrol", str(path), str(task), "--tokens", "3", "--format", "text"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = done.stdout.split()
    assert len(made) == 3
    book = TokenBook.load(path, TASK.digest(), 1)
    assert all(book.find(voucher(read_token(text), TASK.digest(), 1)) for text in made)
    assert not any(text in path.read_text() or text in done.stderr for text in made)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
