"""What passes the scheduler of a cluster is names and orders, and no bulk: a relay before its port counts every byte.

The scheduler listens where only the relay knows it; server and workers are told the relay's address. That the scheduler
has no connection of its own making is looked at as long as the round lasts.
"""

import threading
from collections.abc import Iterator

import psutil
import pytest

from fsl_async.bin_count import planned
from fsl_async.costs.message_sizes import folded_bytes
from fsl_async.ring import Ring
from fsl_async.task import Sparse, Task
from fsl_async.wire.public_part import Layout, Trees
from parties.settings.writing import free_addresses, to_toml
from tests.support.certificates import write_certificates
from tests.support.counting_relay import CountingRelay, counting_relay
from tests.system.deployment.deployed import Deployed, deployed

pytest.importorskip("distributed", reason="the extra `dask` is not installed")

CLIENTS = ("alice", "bob", "carol", "dave")
WORKERS = ("first", "second")
BLOCK = Sparse(name="items", rows=2**16, width=16, select=4096)
TASK = Task(name="wide", blocks=(BLOCK,), ring=Ring(64, fraction_bits=16), min_clients=2, max_clients=16)
CERTIFICATES = {"ca": "ca.pem", "certificate": "compute.pem", "key": "compute.key"}


@pytest.fixture
def site(tmp_path) -> Iterator[Deployed]:
    """A task of which each client brings more than a megabyte, and each partial sum is of 25."""
    with deployed(tmp_path) as made:
        made.lay_out(free_addresses(2), CLIENTS, TASK, rounds={"clients": len(CLIENTS), "seconds": 3600.0})
        yield made


@pytest.fixture
def relay(site) -> Iterator[CountingRelay]:
    """Before the scheduler of S0's cluster: s0.toml has the relay's address, and scheduler.toml the scheduler's own."""
    listen, to, operator = free_addresses(3)
    home = site.home("s0")
    write_certificates(home)
    server = (home / "s0.toml").read_text()
    for name, address in (("s0", listen), ("scheduler", to)):
        compute = {"engine": "dask", "scheduler": f"tls://{address}"} | CERTIFICATES
        (home / f"{name}.toml").write_text(server + to_toml({"compute": compute, "operator": {"listen": operator}}))
    with counting_relay(listen, to) as made:
        yield made


class Watch(threading.Thread):
    """Looks at a process's connections again and again; `strange` are those to others than a relay."""

    def __init__(self, pid: int, relay: CountingRelay) -> None:
        super().__init__(daemon=True)
        self.process, self.relay = psutil.Process(pid), relay
        self.strange: set[str] = set()
        self.looked = 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Until told to end."""
        while not self.ended.wait(0.02):
            for each in self.process.net_connections("inet"):
                if each.status == psutil.CONN_ESTABLISHED and each.raddr.port not in self.relay.ports:
                    self.strange.add(f"{each.laddr} {each.raddr}")
            self.looked += 1


@pytest.mark.slow
def test_no_bulk_passes_the_scheduler(site, relay):
    site.start("scheduler", "s0", "scheduler", "scheduler.toml")
    site.until("scheduler", "scheduler listens at")
    watch = Watch(site.running["scheduler"].child.pid, relay)
    watch.start()
    for server in ("s0", "s1"):
        site.serve(server)
    site.until("s0", '"round opened"')
    for worker in WORKERS:
        site.start(worker, "s0", "worker", "s0.toml")
    site.until("s0", r"worker fsl-\S+ on \S+ computes", times=len(WORKERS))
    before = relay.passed
    for client in CLIENTS:
        assert site.submit(client).code == 0
    site.assert_sum(*CLIENTS, task=TASK)
    passed = relay.passed - before
    watch.ended.set()
    watch.join()
    standing = site.run("s0", "status", "s0.toml").said["result"]
    partials, brought = standing["engine"]["bytes_taken"], Layout.submission(planned(TASK), Trees.OWN).size
    assert partials >= folded_bytes(planned(TASK)) > 20_000_000, "partial sums have come from workers"
    assert brought > 1_000_000
    assert watch.looked > 20
    assert not watch.strange, "the scheduler has connections that the relay does not see"
    assert 0 < passed < brought, f"{passed:,} bytes have passed, and one client brings {brought:,}"
