"""Files of which hardly anything can be made: whoever names one gets an error that says which and why."""

from functools import partial
from pathlib import Path

import pytest

from fsl_async.errors import MisuseError
from parties.identity.keys import Identity, PublicIdentity
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook
from parties.settings.host_file import load_party
from parties.settings.lists import add_clients, list_clients
from parties.settings.party_file import ClientFile, ServerFile
from parties.settings.task_file import Deployment

SERVER = """\
server = {server}
identity = {identity}
task = "task.toml"
model = "model.npz"
listen = "127.0.0.1:9000"
store = "memory"
clients = "clients.toml"
"""
KEYS = f'name = "alice"\nchannel = "{"5b" * 32}"\nstatement = "{"cd" * 32}"\n'

READERS = {
    "task": Deployment.load,
    "server": partial(ServerFile.load, environment={}),
    "client": partial(ClientFile.load, environment={}),
    "either party": partial(load_party, environment={}),
    "client list": Registry.load,
    "client list, shown": list_clients,
    "client list, edited": lambda path: add_clients(path, [PublicIdentity("bob", bytes(32), bytes(32))]),
    "public key": PublicIdentity.load,
    "secret key": Identity.load,
    "tokens": lambda path: TokenBook.load(path, bytes(32), 0),
}
TEXTS = {
    "a number of 5,000 digits": "a = " + "9" * 5_000,
    "a wide hexadecimal number": "server = 0x" + "f" * 5_000,
    "an integer beyond 64 bits": f"server = {2**63}",
    "an integer beyond any float": "server = 1" + "0" * 400,
    "3,000 lists, one in the other": "a = " + "[" * 3_000 + "]" * 3_000,
    "3,000 tables, one in the other": "a = " + "{a=" * 3_000,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "subject.toml"
    path.touch(0o600)
    return path


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_toml_that_no_reader_can_hold_is_refused_with_the_files_name(read, text, file):
    file.write_text(text)
    with pytest.raises(MisuseError, match=r"subject\.toml"):
        read(file)


def test_integers_of_64_bits_are_read(file):
    file.write_text(SERVER.format(server=2**63 - 1, identity='"S0.key"'))
    with pytest.raises(MisuseError, match="server must be a whole number from 0 to 1, not 9223372036854775807"):
        ServerFile.load(file, {})


def test_a_file_name_that_no_file_can_have_is_refused_by_its_key(file):
    file.write_text(SERVER.format(server=0, identity=r'"S0\u0000.key"'))
    with pytest.raises(MisuseError, match=r"subject\.toml: identity must be a text"):
        ServerFile.load(file, {})


def test_a_client_that_is_on_a_list_twice_is_named_with_the_file(file):
    file.write_text(f"[[clients]]\n{KEYS}[[clients]]\n{KEYS.replace('alice', 'bob')}")
    with pytest.raises(MisuseError, match=r"subject\.toml: client 'bob': another client has this name or this key"):
        Registry.load(file)


def test_a_servers_keys_that_are_none_are_named_with_the_task_file(file):
    file.write_text(
        'servers = [{address = "a:1", channel = "ab", statement = ""}, '
        '{address = "a:2", channel = "cd", statement = ""}]'
        '\n[task]\nname = "t"\nring = {bits = 64}\nblocks = [{type = "dense", name = "d", size = 1}]\n'
    )
    with pytest.raises(MisuseError, match=r"the task file, servers\[0\]: channel must be 64 hexadecimal digits"):
        Deployment.load(file).identity(0)
