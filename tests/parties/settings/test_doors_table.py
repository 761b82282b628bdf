"""`[doors]` of a server's file and the link in the task file: whole, or refused where they are written."""

import socket

import pytest

from fsl_async.errors import MisuseError
from parties.deployment.server import server_setup
from parties.files.models import save_model
from parties.identity.keys import Identity
from parties.settings.doors_table import check_link
from parties.settings.host_file import HostFile
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.settings.writing import to_toml, write_deployment
from tests.support.shop import TASK, model

SERVER = {
    "server": 0,
    "identity": "s0.key",
    "task": "task.toml",
    "model": "model.npz",
    "listen": "0.0.0.0:7000",
    "store": "s0.sqlite",
    "clients": "clients.toml",
}
DOORS = {"core": "unix:/run/fsl-async/s0/core", "keys": "s0-doors.key", "count": 2, "link": "0.0.0.0:7100"}
WITH_DOORS = SERVER | {"doors": DOORS}


def load(folder, table) -> ServerFile:
    path = folder / "s0.toml"
    path.write_text(to_toml(table))
    return ServerFile.load(path, {})


def doors(**changes):
    return WITH_DOORS | {"doors": {key: value for key, value in (DOORS | changes).items() if value is not None}}


def test_doors_are_read_and_without_core_there_are_none(tmp_path):
    file = load(tmp_path, WITH_DOORS)
    assert file.doors
    assert (file.doors.keys, file.doors.count) == (tmp_path / "s0-doors.key", 2)
    assert not load(tmp_path, SERVER).doors


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (doors(core=None), "doors.count is given and doors.core is not"),
        (doors(core=None, count=None), "doors.keys is given and doors.core is not"),
        (doors(keys=None), "doors.keys is missing.*keygen s0-doors.key --channel-of s0.key"),
        (doors(keys="s0.key"), "names the same file as identity, which also holds the key that signs"),
        (doors(link=None), "doors.link is missing: S1 comes to S0's core"),
        (doors() | {"server": 1}, "doors.link is S0's alone"),
        (doors(core="pipe:/x"), "there is no transport for 'pipe:'"),
        (doors(core="unix:core"), "doors.core = 'unix:core' is not an address of the form unix:/absolute/path"),
        (doors(core="127.0.0.1:7000"), "doors.core = '127.0.0.1:7000' is where listen = '0.0.0.0:7000' is"),
        (doors(link="0.0.0.0:7000"), "doors.link = '0.0.0.0:7000' is where listen"),
        (doors(core="10.0.0.1:7100"), "doors.link = '0.0.0.0:7100' is where doors.core"),
        (doors(link="0.0.0.0:0"), "doors.link = '0.0.0.0:0': the system would choose a port"),
        (doors() | {"listen": "0.0.0.0:0"}, "listen = '0.0.0.0:0': the system would choose a port"),
        (doors() | {"listen": "unix:/run/s0"}, "one process alone can listen at unix:/run/s0"),
        (doors() | {"transport": "here:Own"}, "transport = 'here:Own' cannot be used with \\[doors\\]"),
        (doors() | {"store": "memory"}, 'store = "memory" cannot be used with \\[doors\\]'),
        (doors(count=1_000), "doors.count must be"),
        (doors(secret="x"), "belongs in a file of its own"),
        (doors(cores="x"), "did you mean 'core'"),
    ],
)
def test_a_mistake_is_named(tmp_path, table, words):
    with pytest.raises(MisuseError, match=words):
        load(tmp_path, table)


def test_a_system_that_cannot_share_ports_is_named(tmp_path, monkeypatch):
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    with pytest.raises(MisuseError, match="no SO_REUSEPORT"):
        load(tmp_path, WITH_DOORS)
    assert load(tmp_path, doors(count=1) | {"listen": "unix:/run/s0"}).doors


def test_doors_have_one_task(tmp_path):
    own = ("task", "model", "store", "clients")
    common = {key: value for key, value in WITH_DOORS.items() if key not in own}
    path = tmp_path / "s0.toml"
    path.write_text(to_toml(common | {"tasks": [{key: SERVER[key] for key in own}]}))
    with pytest.raises(MisuseError, match=r"\[doors\] and tables \[\[tasks\]\] do not go together yet"):
        HostFile.load(path, {})


# ---- the link


def deployment(folder, **link) -> Deployment:
    keys = [Identity.generate(name).public for name in ("s0", "s1")]
    write_deployment(folder, TASK, keys, ["a.example:7000", "b.example:7000"], [])
    text = (folder / "task.toml").read_text()
    for index, address in link.items():
        place = {"s0": "a", "s1": "b"}[index]
        text = text.replace(
            f'address = "{place}.example:7000"', f'address = "{place}.example:7000"\nlink = "{address}"'
        )
    (folder / "task.toml").write_text(text)
    return Deployment.load(folder / "task.toml")


def test_without_a_link_s1_dials_where_clients_do(tmp_path):
    assert deployment(tmp_path).link == "a.example:7000"
    assert deployment(tmp_path, s0="a.example:7100").link == "a.example:7100"


def test_a_link_that_is_none_is_refused(tmp_path):
    with pytest.raises(MisuseError, match="its address for clients, where its doors listen"):
        deployment(tmp_path, s0="a.example:7000")
    with pytest.raises(MisuseError, match="S1 has a link, and nobody uses it"):
        deployment(tmp_path, s1="b.example:7100")


def test_doors_and_a_link_belong_together(tmp_path):
    plain, linked = deployment(tmp_path), deployment(tmp_path, s0="a.example:7100")
    check_link(load(tmp_path, SERVER), plain)
    check_link(load(tmp_path, WITH_DOORS), linked)
    with pytest.raises(MisuseError, match="S0 has doors, and so needs a link"):
        check_link(load(tmp_path, WITH_DOORS), plain)
    with pytest.raises(MisuseError, match="where only a server with \\[doors\\] listens"):
        check_link(load(tmp_path, SERVER), linked)
    check_link(load(tmp_path, doors(link=None) | {"server": 1}), plain)


async def test_a_server_is_not_made_of_files_that_contradict_each_other(tmp_path):
    identities = [Identity.generate(name) for name in ("s0", "s1")]
    identities[0].save(tmp_path / "s0.key")
    save_model(tmp_path / "model.npz", model())
    write_deployment(tmp_path, TASK, [one.public for one in identities], ["a:7000", "b:7000"], [])
    load(tmp_path, WITH_DOORS)
    with pytest.raises(MisuseError, match=r"peers add .* --server 0 --link HOST:PORT"):
        await server_setup(tmp_path / "s0.toml")
