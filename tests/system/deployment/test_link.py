"""Hosts lose each other in the middle of a round, and find each other again: the round ends, and nothing is lost."""

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.system.deployment.deployed import SERVERS, Deployed, deployed
from tests.system.deployment.hosts import NAMES, Hosts, hosts, missing

if missing():
    pytest.skip(missing(), allow_module_level=True)

CLIENTS = ("anna", "ben", "cleo")
ROUNDS = {"clients": 3, "seconds": 3600.0}


WITH_A_PAUSE = """
import sys
import numpy as np
import trio
from parties import connect

async def main():
    update = dict(np.load("update.npz"))
    async with connect("task.toml", "ben.key") as client:
        await client.retrieve({"items": update["items.rows"]})
        print("retrieved", file=sys.stderr, flush=True)
        input()
        await client.submit({"items": (update["items.rows"], update["items.values"]), "head": update["head"]})

trio.run(main)
"""


@pytest.fixture
def net(tmp_path) -> Iterator[Hosts]:
    folder = tmp_path / "hosts"
    folder.mkdir()
    with hosts(folder) as made:
        yield made


@pytest.fixture
def site(tmp_path, net) -> Iterator[Deployed]:
    """Both servers on their hosts, the first round open, and three clients on theirs."""
    places = {name: name for name in SERVERS} | dict.fromkeys(CLIENTS, "clients")
    within = {name: ("ip", "netns", "exec", net.namespace(host)) for name, host in places.items()}
    with deployed(tmp_path, within=within) as made:
        addresses = [f"{NAMES[name]}:7000" for name in SERVERS]
        made.lay_out(addresses, CLIENTS, listen="0.0.0.0:7000", rounds=ROUNDS, log={"level": "debug"})
        for name in SERVERS:
            made.serve(name)
        for name in SERVERS:
            made.until(name, '"round opened"')
        yield made


def submitted(site: Deployed, client: str) -> None:
    """A client's update is in: both servers have signed for it."""
    ended = site.submit(client)
    assert ended.code == 0, ended.words


def assert_whole(site: Deployed) -> None:
    """The first round ends at both servers, with everybody's update in its sum."""
    for name in SERVERS:
        site.until(name, '"round done".*"counted": 3, "not_counted": 0')
        site.until(name, '"round opened".*"round": 2')
    for name in SERVERS:
        assert site.stop(name) == 0
        assert len(site.models(name)) == 1
    site.assert_sum(*CLIENTS)


@contextmanager
def submitting(site: Deployed, *clients: str) -> Iterator[list[Future[None]]]:
    """Clients submit while the block runs; by its end both servers have signed for all of them."""
    with ThreadPoolExecutor() as pool:
        under_way = [pool.submit(submitted, site, client) for client in clients]
        yield under_way
        for each in under_way:
            each.result()


def has_asked(site: Deployed, server: str, client: str) -> None:
    """A client's submission has come to a server."""
    site.until(server, f'"message received".*"party": "{client}", "kind": "Submit"')


def test_the_line_between_the_servers_is_cut_and_mended(site, net):
    submitted(site, "anna")
    net.unplug("line", "s1")
    with submitting(site, "ben", "cleo") as under_way:
        for server in SERVERS:
            for client in ("ben", "cleo"):
                has_asked(site, server, client)
        assert not any(each.done() for each in under_way), "what a carrier cannot forward is not acknowledged by both"
        net.plug_in("line", "s1")
    assert_whole(site)


def test_a_server_is_killed_and_started_again_while_the_line_is_cut(site, net):
    submitted(site, "anna")
    net.unplug("line", "s1")
    site.stop("s1", signal.SIGKILL)
    site.serve("s1")
    site.until("s1", '"round resumed after a restart"')
    # nobody tells S0: whether or not it has become suspicious by now, the new connection takes the dead one's place
    net.plug_in("line", "s1")
    with submitting(site, "ben", "cleo"):
        pass
    assert_whole(site)


def test_a_client_loses_a_server_between_retrieving_and_submitting(site, net):
    for client in ("anna", "cleo"):
        submitted(site, client)
    ben = site.start("ben", "ben", program=("-c", WITH_A_PAUSE))
    ben.says("retrieved")
    net.unplug("internet", "s1")
    ben.child.stdin.write("\n")
    ben.child.stdin.flush()
    site.until("s0", '"message received".*"party": "ben", "kind": "Submit"')
    net.plug_in("internet", "s1")
    assert ben.ended().code == 0
    assert_whole(site)
