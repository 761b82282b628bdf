"""Clients that are on no list: an operator sees who they are, revokes them by what the log shows, and adds tokens."""

from pathlib import Path
from typing import Any

import pytest
import trio

from fsl_async.errors import MisuseError
from parties.commands.report import ExitCode
from parties.deployment.watched_files import watched_tokens
from parties.events import ConnectionFailed, Enrolled, ServerEvent, Warned
from parties.identity.keys import Identity, PublicIdentity, key_prefix
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook, add_tokens
from parties.operator.log_fields import WITHHELD, plain_text
from parties.operator.log_lines import lines_of
from parties.server.admission import Enrolment, ListOnly, WithToken
from parties.settings.lists import add_clients, list_clients, revoke_client, undo_revocation
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import MemoryStore
from tests.parties.server.test_admission import DIGEST, OTHER_TOKEN, TOKEN, come, enrolment, refused
from tests.parties.server.test_peers_and_clients import until
from transport import Refusal


def book(path: Path) -> WithToken:
    return WithToken(TokenBook.load(path, DIGEST, 0))


@pytest.fixture
def tokens(tmp_path) -> Path:
    path = tmp_path / "tokens.toml"
    add_tokens(path, DIGEST, [TOKEN.hex()])
    return path


async def next_answer(gate: Enrolment, identity: Identity, token: bytes, before: str) -> bytes | Refusal:
    """The first answer that is not the one before; the virtual clock does not wait for the thread that reads."""
    for _ in range(100_000):
        answer = await come(gate, identity, token)
        if not (isinstance(answer, Refusal) and before in answer.reason):
            return answer
        await trio.sleep(0.01)
    pytest.fail("the answer stayed the same")


# ---- what the log shows is enough to revoke


async def test_what_the_log_says_of_an_enrolment_revokes_the_client(tokens, tmp_path, caplog):
    anna, heard, store = Identity.generate("anna"), list[ServerEvent](), MemoryStore()
    gate = enrolment(book(tokens), store, observe=heard.append)
    assert await come(gate, anna, TOKEN) == b"anna"
    (event,) = heard
    assert isinstance(event, Enrolled)
    (line,) = lines_of(event)
    shown = line.fields["key"]
    assert shown == key_prefix(anna.public.channel)
    path = tmp_path / "clients.toml"
    add_clients(path, [])
    member = revoke_client(path, shown)
    assert member.name == f"holder of {shown}"
    assert gate.reload(Registry.load(path)) == (anna.public,)
    refused(await come(gate, anna), f"the key {shown} of", "was revoked")
    again = enrolment(book(tokens), store, listed=Registry.load(path))
    await again.restore()
    assert caplog.text == "", "that she was revoked is no contradiction"
    refused(await come(again, anna), f"the key {shown} of", "was revoked")


async def test_what_the_log_says_of_a_refused_key_is_enough_too():
    ben = Identity.generate("ben")
    answer = await come(enrolment(ListOnly()), ben)
    assert isinstance(answer, Refusal)
    (line,) = lines_of(ConnectionFailed(origin="127.0.0.1", kind="RefusedError", explanation=answer.reason))
    words = plain_text(str(line.fields["explanation"]))
    assert WITHHELD not in words
    assert key_prefix(ben.public.channel) in words


@pytest.mark.parametrize("form", [str, str.upper, "{}…".format], ids=["plain", "capitals", "as the table shows it"])
def test_a_beginning_of_a_key_revokes_it_and_no_other(tmp_path, form):
    anna, ben = Identity.generate("anna").public, Identity.generate("ben").public
    path = tmp_path / "clients.toml"
    add_clients(path, [ben])
    revoke_client(path, form(key_prefix(anna.channel)))
    registry = Registry.load(path)
    assert registry.revocation(anna.channel) is not None
    assert registry.revocation(ben.channel) is None
    with pytest.raises(MisuseError, match="is revoked already"):
        revoke_client(path, anna.channel.hex())
    with pytest.raises(MisuseError, match="are revoked; it needs new ones"):
        add_clients(path, [anna])
    assert undo_revocation(path, f"holder of {key_prefix(anna.channel)}").revoked_at == ""
    assert [member.name for member in list_clients(path)] == ["ben"]
    add_clients(path, [anna])


def test_a_beginning_of_a_listed_key_moves_the_client_with_its_name(tmp_path):
    anna = Identity.generate("anna").public
    path = tmp_path / "clients.toml"
    add_clients(path, [anna])
    assert revoke_client(path, key_prefix(anna.channel)).name == "anna"


@pytest.mark.parametrize("who", ["0123456789abcde", "0123456789abcdef0", "0123456789abcdeg"])
def test_other_beginnings_are_names_and_nobody_is_called_so(tmp_path, who):
    path = tmp_path / "clients.toml"
    add_clients(path, [Identity.generate("anna").public])
    with pytest.raises(MisuseError, match="of which the first 16 digits will do: the server's log has them"):
        revoke_client(path, who)


# ---- who has enrolled


def test_who_has_enrolled_is_listed_while_the_server_runs_or_after(tmp_path, tokens, answer):
    anna, ben = Identity.generate("anna"), Identity.generate("ben")
    path, config = tmp_path / "clients.toml", tmp_path / "s0.toml"
    config.write_text(
        'server = 0\nidentity = "s0.key"\ntask = "task.toml"\nmodel = "model.npz"\nlisten = "127.0.0.1:0"\n'
        'clients = "clients.toml"\nenrolment = "token"\ntokens = "tokens.toml"\nstore = "s0.sqlite"\n'
    )
    add_tokens(tokens, DIGEST, [OTHER_TOKEN.hex()])

    def listed() -> tuple[int, dict[str, Any], str]:
        return answer("clients", "list", str(config), "--enrolled")

    code, _, error = listed()
    assert code == ExitCode.MISUSE
    assert "there is no store yet, so nobody has enrolled" in error
    found = []

    async def enrol() -> None:
        store = await SqliteStore.open(tmp_path / "s0.sqlite")
        gate = enrolment(book(tokens), store)
        assert await come(gate, anna, TOKEN) == b"anna"
        found.append(await trio.to_thread.run_sync(listed))  # the server has it in use
        assert await come(gate, ben, OTHER_TOKEN) == b"ben"
        await store.aclose()

    trio.run(enrol)
    (first,) = found[0][1]["result"]["clients"]
    assert PublicIdentity.from_table(first, "the list") == anna.public
    add_clients(path, [])
    revoke_client(path, key_prefix(ben.public.channel))
    rows = listed()[1]["result"]["clients"]
    assert [(row["name"], bool(row["revoked_at"])) for row in rows] == [("anna", False), ("ben", True)]


# ---- new tokens


async def test_new_tokens_are_taken_up_and_taken_out_ones_are_not_good_any_more(tokens, autojump_clock):
    anna, ben, carl = (Identity.generate(name) for name in ("anna", "ben", "carl"))
    heard = list[ServerEvent]()
    gate = enrolment(book(tokens))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched_tokens(tokens, DIGEST, 0, gate, heard.append).keep)
        assert await come(gate, anna, TOKEN) == b"anna"
        refused(await come(gate, ben, OTHER_TOKEN), "is not one of S0's")
        add_tokens(tokens, DIGEST, [OTHER_TOKEN.hex()])
        assert await next_answer(gate, ben, OTHER_TOKEN, "is not one of S0's") == b"ben"
        refused(await come(gate, carl, TOKEN), "has been used")
        good = tokens.read_text()
        tokens.write_text("S0 = 5")
        await until(lambda: heard)
        assert isinstance(heard[0], Warned)
        assert heard[0].about == "tokens"
        assert "the file as read before stays in force" in heard[0].explanation
        tokens.write_text(f'task = "{DIGEST.hex()}"\nS0 = []\nS1 = []\n')
        refused(await next_answer(gate, carl, TOKEN, "has been used"), "is not one of S0's")
        assert await come(gate, anna) == b"anna"  # who has enrolled stays
        tokens.write_text(good)
        nursery.cancel_scope.cancel()
