"""The hosts that the other tests of deployment stand on: what they let through, and what they do not."""

import pytest

from tests.system.deployment.hosts import ADDRESSES, Hosts, hosts, missing

if missing():
    pytest.skip(missing(), allow_module_level=True)

pytestmark = pytest.mark.timeout(1800)  # hosts of their own, where everything is installed first

LISTEN = """
python3 -c 'import socket, time; held = socket.create_server(("", {port})); open("up-{port}", "w"); time.sleep(600)' &
until [ -e up-{port} ]; do sleep 0.05; done
"""


@pytest.fixture
def made(tmp_path):
    with hosts(tmp_path) as made:
        yield made


def reached(made: Hosts, dialler: str, name: str, port: int, seconds: int = 100) -> bool:
    """Whether a connection comes about in time; a link that was just brought up may refuse the first dial."""
    dialled = f"until (exec 3<>/dev/tcp/{name}/{port}); do sleep 0.1; done; echo reached"
    dial = f"timeout {seconds} bash -c '{dialled}' 2>/dev/null"
    return made.shells[dialler].run(dial).output == "reached"


def kept_from(made: Hosts, dialler: str, name: str, port: int) -> bool:
    """Whether no connection comes about within a second."""
    return not reached(made, dialler, name, port, seconds=1)


def test_clients_dial_out_servers_meet_and_nobody_dials_a_client(made):
    for shell, host in (("s0", "s0"), ("s1", "s1"), ("alice", "clients")):
        made.log_in(shell, host).run(LISTEN.format(port=7000))
    made.shells["s0"].run(LISTEN.format(port=7100))
    assert reached(made, "alice", "s0.example.org", 7000)
    assert reached(made, "alice", "s1.example.org", 7000)
    assert reached(made, "s1", "s0.example.org", 7000)
    assert reached(made, "alice", "localhost", 7000)
    assert kept_from(made, "s0", ADDRESSES["clients"], 7000)
    assert kept_from(made, "s1", ADDRESSES["clients"], 7000)
    assert kept_from(made, "alice", "s0.example.org", 7100), "only the port that is meant for clients"

    made.unplug("line", "s1")
    assert kept_from(made, "s1", "s0.example.org", 7000)
    assert reached(made, "alice", "s1.example.org", 7000)
    made.plug_in("line", "s1")
    assert reached(made, "s1", "s0.example.org", 7000)


def test_a_shell_keeps_what_a_terminal_keeps(made):
    shell = made.log_in("s0", "s0")
    assert shell.run("x=3; mkdir there; cd there").code == 0
    assert shell.run("echo $x; pwd").output.splitlines() == ["3", f"{shell.home}/there"]
    assert shell.run("ls nothing-here").code == 2
    shell.run("sleep 600 &")
    assert shell.run("kill %1; wait %1").code == 143


def test_what_a_person_carries_is_all_that_gets_from_home_to_home(made):
    for name in ("s0", "s1"):
        made.log_in(name, name)
    made.shells["s0"].run("mkdir keys; echo public > keys/s0.pub; echo secret > s0.key")
    made.carry("keys/s0.pub", "s0", "s1")
    assert made.shells["s1"].run("cat keys/s0.pub; ls").output.splitlines() == ["public", "keys"]
