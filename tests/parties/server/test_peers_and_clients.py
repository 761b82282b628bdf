"""Who belongs: lists of clients and task files change by command, and a server takes the change in while it runs."""

import logging
import os
import random
import re
import stat
import threading
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from fsl_async.errors import MisuseError, StorageError
from parties.deployment.watched_files import watched_clients
from parties.events import Revoked, ServerEvent, Warned
from parties.identity.keys import Identity, PublicIdentity
from parties.identity.registry import Registry
from parties.server.admission import Anyone, Enrolment, ListOnly, Policy
from parties.settings.lists import add_clients, add_server, list_clients, list_servers, revoke_client, undo_revocation
from parties.settings.task_file import Deployment
from tests.parties.server.test_admission import OTHER_TOKEN, TOKEN, come, enrolment, refused, tokens
from transport import Refusal

HAND_MADE = """\
# Those of the north.
[[clients]]
  name = "anna"        # since January
channel = "{anna.channel}"
statement = "{anna.statement}"

# Those of the south.

[[clients]]
name = "ben"
channel = "{ben.channel}"
statement = "{ben.statement}"
# The end.
"""


class Keys:
    """Public keys in hexadecimal, for `str.format`."""

    def __init__(self, public: PublicIdentity) -> None:
        self.channel, self.statement = public.channel.hex(), public.statement.hex()


@pytest.fixture
def known() -> dict[str, Identity]:
    return {name: Identity.generate(name) for name in ("anna", "ben", "carl", "dora")}


@pytest.fixture
def path(tmp_path, known) -> Path:
    """A list that somebody has written by hand."""
    path = tmp_path / "clients.toml"
    path.write_text(HAND_MADE.format(**{name: Keys(identity.public) for name, identity in known.items()}))
    return path


# ---- the list


def test_a_list_is_made_by_adding_and_can_be_read_by_everybody(tmp_path, known):
    path = tmp_path / "clients.toml"
    assert add_clients(path, [known["anna"].public, known["ben"].public]) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(Registry.load(path)) == [known["anna"].public, known["ben"].public]


def test_comments_order_and_mode_survive_every_change(path, known):
    path.chmod(0o640)
    before = path.read_text()
    add_clients(path, [known["carl"].public])
    assert path.read_text().startswith(before.rstrip("\n"))
    revoke_client(path, "anna")
    text = path.read_text()
    for line in before.splitlines():
        assert text.count(line) >= before.count(line), line
    assert text.index("# Those of the north.") < text.index("# Those of the south.") < text.index('name = "ben"')
    assert text.index('name = "ben"') < text.index("# The end.") < text.index("[[revoked]]") < text.index("# since Jan")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(path.parent) == ["clients.toml"]


def test_a_revoked_client_is_not_let_in_and_does_not_come_back_by_being_added(path, known):
    member = revoke_client(path, "anna")
    assert (member.name, member.channel) == ("anna", known["anna"].public.channel.hex())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", member.revoked_at)
    registry = Registry.load(path)
    assert "anna" not in registry
    assert registry.revocation(known["anna"].public.channel).name == "anna"
    before = path.read_text()
    for returning in (known["anna"].public, PublicIdentity("ann", known["anna"].public.channel, bytes(32))):
        with pytest.raises(MisuseError, match=r"are revoked; it needs new ones.*--undo"):
            add_clients(path, [returning])
    with pytest.raises(MisuseError, match="is revoked already"):
        revoke_client(path, "anna")
    assert path.read_text() == before
    fresh = Identity.generate("anna").public  # the same client, with new keys
    add_clients(path, [fresh])
    assert Registry.load(path).by_name("anna") == fresh


def test_a_revocation_can_be_taken_back(path, known):
    before = tomllib.loads(path.read_text())
    revoke_client(path, "anna")
    assert undo_revocation(path, "anna").revoked_at == ""
    after = tomllib.loads(path.read_text())
    assert after == before | {"clients": [before["clients"][1], before["clients"][0]]}
    with pytest.raises(MisuseError, match="has no revoked client 'anna'"):
        undo_revocation(path, "anna")
    revoke_client(path, "anna")
    add_clients(path, [Identity.generate("anna").public])
    with pytest.raises(MisuseError, match="another client is called 'anna' by now"):
        undo_revocation(path, "anna")


def test_who_is_not_listed_can_be_revoked_by_file_or_key(path, known, tmp_path):
    (tmp_path / "carl.pub").write_text(known["carl"].public.to_toml())
    revoke_client(path, str(tmp_path / "carl.pub"))
    revoke_client(path, known["dora"].public.channel.hex().upper())
    registry = Registry.load(path)
    for name in ("carl", "dora"):
        assert registry.revocation(known[name].public.channel) is not None
    assert len(registry) == 2
    with pytest.raises(MisuseError, match=r"has no client 'emil'; for one that enrolled with a token give its \.pub"):
        revoke_client(path, "emil")
    undo_revocation(path, f"holder of {known['dora'].public.channel.hex()[:16]}")
    assert Registry.load(path).revocation(known["dora"].public.channel) is None
    assert len(Registry.load(path)) == 2  # it never stood in the list


def test_names_and_keys_are_unique_and_several_are_added_all_or_none(path, known):
    before = path.read_text()
    anna, carl = known["anna"].public, known["carl"].public
    for wrong in (
        PublicIdentity("anna", carl.channel, carl.statement),
        PublicIdentity("carl", anna.channel, carl.statement),
        PublicIdentity("carl", carl.channel, anna.statement),
        PublicIdentity("S0", carl.channel, carl.statement),
    ):
        with pytest.raises(MisuseError):
            add_clients(path, [known["dora"].public, wrong])
        assert path.read_text() == before
    with pytest.raises(MisuseError, match="another client"):
        add_clients(path, [carl, carl])
    assert path.read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        'clients = [{name = "anna", channel = "$", statement = "$"}]\n',
        '[[clients]]\nname = """anna"""\nchannel = "$"\nstatement = "$"\n[["clients"]]\nname = "b"\n',
    ],
)
def test_a_layout_that_is_not_understood_is_refused_and_left_alone(tmp_path, known, text):
    path = tmp_path / "clients.toml"
    text = text.replace("$", known["anna"].public.channel.hex())
    path.write_text(text)
    tomllib.loads(text)
    with pytest.raises(MisuseError, match=r"edit it by hand|below a line of their own"):
        revoke_client(path, "b" if '"b"' in text else "anna")
    assert path.read_text() == text


def test_a_list_that_is_broken_or_missing_is_refused(tmp_path, known):
    (tmp_path / "broken.toml").write_text("[[clients]\n")
    (tmp_path / "other.toml").write_text("clients = 5\n")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for name, words in (("broken", "is not TOML"), ("other", "only \\[\\[clients"), ("bytes", "is not TOML")):
        with pytest.raises(MisuseError, match=words):
            add_clients(tmp_path / f"{name}.toml", [known["anna"].public])
    with pytest.raises(MisuseError, match="cannot be read: No such file"):
        list_clients(tmp_path / "none.toml")
    with pytest.raises(StorageError, match="cannot be edited: No such file"):
        add_clients(tmp_path / "nowhere" / "clients.toml", [known["anna"].public])


def test_a_symbolic_link_stays_one(path, known, tmp_path):
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    add_clients(link, [known["carl"].public])
    assert link.is_symlink()
    assert "carl" in Registry.load(path)


def test_of_many_who_add_at_once_none_is_lost(tmp_path):
    path = tmp_path / "clients.toml"
    newcomers = [Identity.generate(f"client {number}").public for number in range(12)]
    threads = [threading.Thread(target=add_clients, args=(path, [client])) for client in newcomers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {client.name for client in Registry.load(path)} == {client.name for client in newcomers}


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_done_the_file_says_what_was_done(tmp_path, seed):
    """Random changes against two plain sets."""
    print("seed", seed)
    draw = random.Random(seed)
    path = tmp_path / "clients.toml"
    people = {name: Identity.generate(name).public for name in "abcdefgh"}
    listed: set[str] = set()
    revoked: set[str] = set()
    for _ in range(40):
        name, what = draw.choice(list(people)), draw.choice(["add", "revoke", "undo"])
        possible = {"add": name not in listed | revoked, "revoke": name in listed, "undo": name in revoked}[what]
        acts = {
            "add": partial(add_clients, path, [people[name]]),
            "revoke": partial(revoke_client, path, name),
            "undo": partial(undo_revocation, path, name),
        }
        if not possible:
            with pytest.raises(MisuseError):
                acts[what]()
            continue
        acts[what]()
        (listed.add if what != "revoke" else listed.discard)(name)
        (revoked.add if what == "revoke" else revoked.discard)(name)
        registry = Registry.load(path)
        assert {client.name for client in registry} == listed
        assert {name for name in people if registry.revocation(people[name].channel)} == revoked


def test_a_key_that_is_listed_and_revoked_is_not_let_in(path, known):
    with path.open("a") as file:
        file.write(f'\n[[revoked]]\nname = "anna"\nchannel = "{known["anna"].public.channel.hex()}"\n')
    registry = Registry.load(path)
    assert "anna" not in registry
    assert "ben" in registry


# ---- the servers


@pytest.fixture
def task_file(tmp_path) -> Path:
    path = tmp_path / "task.toml"
    path.write_text(
        '# Ours.\n[task]\nname = "t"\nmin_clients = 2\nmax_clients = 4\n[task.ring]\nbits = 64\nfraction_bits = 8\n'
        '[[task.blocks]]\ntype = "dense"\nname = "d"\nsize = 3\n'
    )
    return path


def test_a_task_file_gets_its_servers_loses_one_and_gets_it_back(task_file, in_process):
    s0, s1, new = (Identity.generate("x").public for _ in range(3))
    with pytest.raises(MisuseError, match="S0 comes first"):
        add_server(task_file, 1, s1, "b:2")
    with pytest.raises(MisuseError, match="S0 has no address yet"):
        add_server(task_file, 0, s0)
    add_server(task_file, 0, s0, "a:1", "North")
    with pytest.raises(MisuseError, match="these are the keys of S0"):
        add_server(task_file, 1, s0, "b:2")
    add_server(task_file, 1, s1, "b:2", "South")
    digest = Deployment.load(task_file).task.digest()
    assert Deployment.load(task_file).identity(1).keys == s1.keys
    with pytest.raises(MisuseError, match=r"S1 has other keys; `fsl-async peers revoke .*--server 1` first"):
        add_server(task_file, 1, new)
    in_process("peers", "revoke", str(task_file), "--server", "1")
    with pytest.raises(MisuseError, match="keys of S1 have been revoked"):
        Deployment.load(task_file)
    with pytest.raises(MisuseError, match="these keys are revoked"):
        add_server(task_file, 1, s1)
    add_server(task_file, 1, new)
    deployment = Deployment.load(task_file)
    assert deployment.identity(1).keys == new.keys
    assert deployment.addresses == ("a:1", "b:2")
    assert deployment.servers[1].operator == "South"
    assert deployment.task.digest() == digest
    assert [row.name for row in list_servers(task_file)] == ["S0", "S1", "S1"]
    assert list_servers(task_file)[2].channel == s1.channel.hex()
    assert task_file.read_text().startswith("# Ours.\n")


def test_words_in_the_place_of_keys_give_way_to_keys(task_file):
    for number in (0, 1):
        with task_file.open("a") as file:
            file.write(f'[[servers]]\naddress = "s{number}:1"\nchannel = "<of s{number}.pub>"\nstatement = "<it>"\n')
    for number in (0, 1):
        add_server(task_file, number, Identity.generate("x").public)
    assert Deployment.load(task_file).addresses == ("s0:1", "s1:1")


# ---- the commands


def test_the_commands_do_it_and_tell_it(tmp_path, monkeypatch, in_process, answer):
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> dict:
        code, said, _ = answer(*words)
        return said["result"] if code == 0 else said["error"] | {"code": code}

    for name in ("anna", "ben"):
        run("keygen", f"{name}.key")
    anna = PublicIdentity.load(tmp_path / "anna.pub")
    assert run("clients", "add", "clients.toml", "anna.pub", "ben.pub")["clients"] == 2
    assert run("clients", "revoke", "clients.toml", "anna")["client"]["channel"] == anna.channel.hex()
    rows = run("clients", "list", "clients.toml")["clients"]
    assert [(row["name"], bool(row["revoked_at"])) for row in rows] == [("ben", False), ("anna", True)]
    assert run("clients", "add", "clients.toml", "anna.pub")["code"] == 3
    assert run("clients", "revoke", "clients.toml", "anna", "--undo")["client"]["revoked_at"] == ""
    carl = Identity.generate("carl").public
    keys = ("--channel", carl.channel.hex(), "--statement", carl.statement.hex())
    assert run("clients", "add", "clients.toml", "--name", "carl", *keys)["clients"] == 3
    assert "or --name, --channel and --statement" in run("clients", "add", "clients.toml")["message"]
    assert "or --name" in run("clients", "add", "clients.toml", "ben.pub", "--name", "x")["message"]
    assert "64 hexadecimal digits" in run("clients", "add", "clients.toml", "--name", "x")["message"]
    assert "0 or 1 expected" in run("peers", "revoke", "task.toml", "--server", "2")["message"]
    lines = in_process("clients", "list", "clients.toml")[1].splitlines()
    assert lines[0].split() == ["name", "channel", "key", "statement", "key", "revoked"]
    assert [line.split()[0] for line in lines[1:]] == ["ben", "anna", "carl"]
    assert anna.channel.hex()[:16] in lines[2]


# ---- a server's enrolment


def gate_of(listed: Registry, policy: Policy | None = None) -> Enrolment:
    return enrolment(policy or ListOnly(), listed=listed)


async def test_another_list_lets_in_and_lets_go(path, known):
    gate = gate_of(Registry.load(path))
    assert await come(gate, known["anna"]) == b"anna"
    add_clients(path, [known["carl"].public])
    revoke_client(path, "anna")
    assert gate.reload(Registry.load(path)) == (known["anna"].public,)
    assert await come(gate, known["carl"]) == b"carl"
    answer = await come(gate, known["anna"])
    assert isinstance(answer, Refusal)
    assert re.search(r"of 'anna' was revoked at \d{4}.*ask S0's operator", answer.reason)
    assert "anna" not in gate
    assert gate.by_name("anna") is None
    undo_revocation(path, "anna")
    assert gate.reload(Registry.load(path)) == ()
    assert await come(gate, known["anna"]) == b"anna"


async def test_who_enrolled_with_a_token_can_be_revoked_and_the_name_stays_taken(path, known):
    gate = gate_of(Registry.load(path), tokens())
    assert await come(gate, known["carl"], TOKEN) == b"carl"
    revoke_client(path, known["carl"].public.channel.hex())
    assert gate.reload(Registry.load(path)) == (known["carl"].public,)
    refused(await come(gate, known["carl"], OTHER_TOKEN), "was revoked")
    refused(await come(gate, Identity.generate("carl"), OTHER_TOKEN), "belongs to somebody else")


@pytest.mark.parametrize("policy", [Anyone(), ListOnly()], ids=["open", "list"])
async def test_a_revoked_key_does_not_enrol_anew_where_everybody_may(path, known, policy):
    revoke_client(path, "anna")
    gate = gate_of(Registry.load(path), policy)
    for name in ("anna", "another"):
        stranger = replace(Identity.generate(name), channel_secret=known["anna"].channel_secret)
        refused(await come(gate, stranger), "was revoked")


# ---- a running server's list


async def until(condition: Callable[[], object]) -> None:
    """The list is read in a thread, for which the virtual clock does not wait."""
    for _ in range(100_000):
        if condition():
            return
        await trio.sleep(0.01)
    pytest.fail("it did not happen")


async def test_a_list_is_read_again_when_it_changes_or_somebody_calls(path, known, autojump_clock, caplog):
    gate = gate_of(Registry.load(path))
    heard: list[ServerEvent] = []
    watched = watched_clients(path, gate, heard.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched.keep)
        await trio.sleep(3.5)
        with caplog.at_level(logging.INFO, logger="parties.serving"):
            assert heard == []
            revoke_client(path, "anna")
            await until(lambda: heard)
            assert heard == [Revoked(client="anna")]
            assert "1 clients, 1 removed" in caplog.text
            caplog.clear()
            await trio.sleep(20)
            # Read once a change, not once a second; once more where it changed while it was read.
            assert len(caplog.records) <= 1
            caplog.clear()
            watched.call()
            await until(lambda: "1 clients, 0 removed" in caplog.text)
        nursery.cancel_scope.cancel()


async def test_a_list_that_cannot_be_used_is_reported_once_and_the_old_one_stays(path, known, autojump_clock):
    gate = gate_of(Registry.load(path))
    heard: list[ServerEvent] = []
    good = path.read_text()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watched_clients(path, gate, heard.append).keep)
        await trio.sleep(0.5)
        path.write_text("[[clients]\n")
        await until(lambda: heard)
        await trio.sleep(20)
        assert [type(event) for event in heard] == [Warned]
        assert "is not TOML" in heard[0].explanation
        assert "the file as read before stays in force" in heard[0].explanation
        assert await come(gate, known["anna"]) == b"anna"
        path.unlink()
        await until(lambda: len(heard) > 1)
        assert "No such file" in heard[1].explanation
        assert await come(gate, known["anna"]) == b"anna"
        path.write_text(good.replace('"anna" ', '"ann"'))
        await until(lambda: len(heard) > 2)
        assert heard[2:] == [Revoked(client="anna")]
        nursery.cancel_scope.cancel()
