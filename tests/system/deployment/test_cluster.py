"""A server whose sums a Dask cluster computes, as people run it: scheduler and workers as processes, with TLS."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from parties.settings.writing import free_addresses, to_toml
from tests.support.certificates import write_certificates
from tests.system.deployment.deployed import Deployed, deployed

pytest.importorskip("distributed", reason="the extra `dask` is not installed")

CLIENTS = ("alice", "bob")

LOST = r"worker fsl-\S+ (is gone|has failed)"
"""What a server logs of a worker that has ended: that it is gone, or that it has failed if a call was on its way."""

CONFINED = (
    "import ctypes, os, sys; refused = ctypes.CDLL(None).prctl(65, 1, 0, 0, 0);"  # PR_SET_MDWE
    "sys.exit(77) if refused else os.execv(sys.argv[1], sys.argv[1:])"
)
"""Runs a command that can make nothing executable that it has written, as `MemoryDenyWriteExecute=yes` has it."""


@pytest.fixture
def site(tmp_path) -> Iterator[Deployed]:
    with deployed(tmp_path) as made:
        made.lay_out(free_addresses(2), CLIENTS, rounds={"clients": 2, "seconds": 3600.0})
        yield made


def give_cluster(site: Deployed, name: str, scheme: str = "tls", **more: object) -> None:
    """Write [compute] into a server's file, and make certificates."""
    (address,) = free_addresses(1)
    table: dict[str, object] = {"engine": "dask", "scheduler": f"{scheme}://{address}", "worker_ttl": 2.0}
    if scheme == "tls":
        write_certificates(site.home(name))
        table |= {"ca": "ca.pem", "certificate": "compute.pem", "key": "compute.key"}
    with (site.home(name) / f"{name}.toml").open("a") as file:
        file.write(to_toml({"compute": table | more}))


def start_workers(site: Deployed, name: str, count: int = 2) -> list[str]:
    workers = [f"{name}-worker-{number}" for number in range(1, count + 1)]
    for worker in workers:
        site.start(worker, name, "worker", f"{name}.toml")
    return workers


def served(site: Deployed, name: str, count: int = 2) -> list[str]:
    """Both servers, as soon as the one named has so many workers and a round is open."""
    site.start("scheduler", name, "scheduler", f"{name}.toml")
    site.until("scheduler", "scheduler listens at")
    for server in ("s0", "s1"):
        site.serve(server)
    site.until(name, '"round opened"')  # the server has made the place of its blobs
    workers = start_workers(site, name, count)
    site.until(name, r"worker fsl-\S+ on \S+ computes", times=count)
    return workers


@pytest.mark.slow
def test_a_round_on_a_cluster_is_exact_shows_no_secret_and_everything_ends(site):
    give_cluster(site, "s0")
    workers = served(site, "s0")
    checked = site.run("s0", "preflight", "s0.toml")
    found = {each["check"]: each for each in checked.said["result"]["findings"]}
    assert found["certificates"]["verdict"] == found["workers"]["verdict"] == "good", found
    assert found["workers"]["words"].startswith("2 at tls://")
    for client in CLIENTS:
        ended = site.submit(client)
        assert ended.code == 0, ended.words
    seen = b""
    for name in (*workers, "scheduler", "s0"):
        pid = site.running[name].child.pid
        seen += b"".join(Path(f"/proc/{pid}/{what}").read_bytes() for what in ("cmdline", "environ"))
        assert re.search(r"Max core file size +0 +0 ", Path(f"/proc/{pid}/limits").read_text())
    site.assert_sum(*CLIENTS)
    for name in workers:
        opened = [os.readlink(each) for each in Path(f"/proc/{site.running[name].child.pid}/fd").iterdir()]
        assert not any("s0.sqlite" in place or place.endswith("s0.key") for place in opened)
    listening = {
        (connection.laddr, name)
        for name, process in site.running.items()
        for connection in psutil.Process(process.child.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(listening) == len(site.running), f"one port each and no other: {listening}"
    assert {address.ip for address, _ in listening} == {"127.0.0.1"}, f"the address that is named: {listening}"
    for name in ("s0", "s1", *workers, "scheduler"):
        assert site.stop(name) == 0, site.log(name)
        seen += site.log(name).encode()
    secrets = re.findall(r'secret = "(\w+)"', (site.home("s0") / "s0.key").read_text())
    assert secrets
    assert not any(secret.encode() in seen for secret in secrets)
    assert b"msk=b" not in seen


@pytest.mark.slow
def test_workers_that_are_killed_and_started_again_lose_nothing(site):
    give_cluster(site, "s1")
    first, second = served(site, "s1")
    assert site.submit("alice").code == 0
    site.stop(first, signal.SIGKILL)
    site.stop(second, signal.SIGKILL)
    site.until("s1", LOST, times=2)
    assert site.submit("bob").code == 0
    site.start(first, "s1", "worker", "s1.toml")
    site.assert_sum(*CLIENTS)


@pytest.mark.slow
def test_a_cluster_that_is_lost_is_waited_for_and_computes_again(site):
    give_cluster(site, "s0")
    workers = served(site, "s0")
    assert site.submit("alice").code == 0
    site.stop("scheduler", signal.SIGKILL)
    for worker in workers:
        assert site.ended(worker) == 4, site.log(worker)
        assert "has ended or let this worker go" in site.log(worker)
    site.until("s0", r"the scheduler at tls://\S+ cannot be reached: .*; what it computes waits")
    assert site.submit("bob").code == 0
    site.start("scheduler", "s0", "scheduler", "s0.toml")
    site.start(workers[0], "s0", "worker", "s0.toml")
    site.assert_sum(*CLIENTS)


@pytest.mark.slow
def test_a_worker_that_is_stopped_and_goes_on_changes_nothing(site):
    give_cluster(site, "s0", worker_patience=2.0)
    first, second = served(site, "s0")
    site.running[first].child.send_signal(signal.SIGSTOP)
    for client in CLIENTS:
        assert site.submit(client).code == 0
    site.assert_sum(*CLIENTS)
    site.until("s0", LOST)
    site.running[first].child.send_signal(signal.SIGCONT)
    assert site.ended(first) == 4, "the scheduler has let it go, and it ends"
    assert site.stop("s0") == 0
    assert site.stop(second) == 0


@pytest.mark.slow
def test_a_scheduler_runs_where_written_memory_cannot_be_executed_as_its_unit_has_it(site):
    confined = (sys.executable, "-c", CONFINED)
    if subprocess.run([*confined, "/bin/true"], check=False).returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE")
    site.within = {"scheduler": confined}
    give_cluster(site, "s0")
    served(site, "s0", count=1)
    for client in CLIENTS:
        assert site.submit(client).code == 0
    site.assert_sum(*CLIENTS)
    assert site.stop("scheduler") == 0


@pytest.mark.slow
def test_dask_that_cannot_read_proc_is_refused_with_the_unit_s_line(site):
    """What a server's unit hides, in namespaces of its own: /proc without anything but processes."""
    hide = 'mount -t proc -o subset=pid proc /proc && exec "$@"'
    hidden = ("unshare", "--mount", "--pid", "--fork", "sh", "-c", hide, "sh")
    if subprocess.run([*hidden, "true"], check=False, capture_output=True).returncode:
        pytest.skip("making namespaces needs root")
    site.within = {"scheduler": hidden}
    give_cluster(site, "s0")
    site.start("scheduler", "s0", "scheduler", "s0.toml")
    assert site.ended("scheduler") == 3
    assert "/proc/meminfo" in site.log("scheduler")
    assert "ProcSubset=all" in " ".join(site.log("scheduler").split())


@pytest.mark.slow
def test_a_certificate_of_another_authority_is_refused_by_name_and_the_round_waits(site):
    give_cluster(site, "s0")
    site.start("scheduler", "s0", "scheduler", "s0.toml")
    site.until("scheduler", "scheduler listens at")
    write_certificates(site.home("s0"))  # of a new authority
    for server in ("s0", "s1"):
        site.serve(server)
    site.start("worker", "s0", "worker", "s0.toml")
    assert site.ended("worker") == 3
    assert "is not of the authority of compute.ca" in " ".join(site.log("worker").split())
    assert len(site.log("worker").splitlines()) < 8, site.log("worker")
    checked = {each["check"]: each for each in site.run("s0", "preflight", "s0.toml").said["result"]["findings"]}
    assert checked["workers"]["verdict"] == "bad"
    site.until("s0", r"the scheduler at tls://\S+ cannot be reached: .*certificate.*; what it computes waits")
    site.until("s0", '"round opened"')
