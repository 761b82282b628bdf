"""What the processes of a server listen at, with doors and without: what its file asks for, and nothing else."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parties.settings.writing import free_addresses
from tests.system.deployment.deployed import Deployed, deployed, give_doors

INODE = re.compile(r"socket:\[(\d+)\]")
LISTENS = "0A"
ACCEPTS = 1 << 16
"""The flag of /proc/net/unix of a socket that listens."""


def family(pid: int) -> Iterator[int]:
    """A process, and those that it has started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def sockets(pid: int) -> set[str]:
    """The numbers of a process's sockets."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = INODE.fullmatch(os.readlink(descriptor))
        except FileNotFoundError:
            continue
        found |= {match[1]} if match else set()
    return found


def heard(pid: int) -> set[str]:
    """Where a process and its children can be sent something: TCP and UDP ports, Unix-domain sockets by their path."""
    own = set().union(*map(sockets, family(pid)))
    places = set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[9] in own and (kind.startswith("udp") or columns[3] == LISTENS):
                places.add(f"{kind}:{int(columns[1].rpartition(':')[2], 16)}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[6] in own and int(columns[3], 16) & ACCEPTS:
            places.add(f"unix:{columns[7] if len(columns) > 7 else ''}")
    return places


def port(address: str) -> str:
    return f"tcp:{address.rpartition(':')[2]}"


@pytest.fixture
def site(tmp_path) -> Iterator[Deployed]:
    with deployed(tmp_path) as made:
        yield made


def test_a_server_without_doors_listens_where_it_is_told(site):
    addresses, looking = free_addresses(2), free_addresses(1)
    site.lay_out(addresses, addresses, [], operator={"listen": looking[0]})
    site.serve("s0")
    site.until("s0", "S0 listens at")
    site.until("s0", "the operator's page is at")
    assert heard(site.running["s0"].pid) == {port(addresses[0]), port(looking[0])}


def test_a_server_with_doors_listens_at_two_places_more_and_its_doors_where_clients_come(site):
    """S0's core has a socket in its own folder and the link to S1; S1's has a port for doors alone."""
    addresses, looking, core = free_addresses(2), free_addresses(2), free_addresses(1)[0]
    site.lay_out(addresses, addresses, [])
    give_doors(site.folder, "s0", 2)
    give_doors(site.folder, "s1", 1, core=core)
    for name, address in zip(("s0", "s1"), looking, strict=True):
        with (site.home(name) / f"{name}.toml").open("a") as file:
            file.write(f'[operator]\nlisten = "{address}"\n')
        site.serve(name)
    for name, count in (("s0", 2), ("s1", 1)):
        site.until(name, '"door connected"', times=count)
        site.until(name, r"door-\d of S\d listens at", times=count)
    (link,) = re.findall(r'^link = "(.*)"$', (site.home("s0") / "s0.toml").read_text(), re.MULTILINE)
    socket = f"unix:{site.home('s0')}/run/core"
    assert heard(site.running["s0"].pid) == {port(addresses[0]), port(looking[0]), port(link), socket}
    assert heard(site.running["s1"].pid) == {port(addresses[1]), port(looking[1]), port(core)}
    assert (site.home("s0") / "run" / "core").stat().st_mode & 0o777 == 0o600
    for name in ("s0", "s1"):
        assert site.stop(name) == 0
    assert not (site.home("s0") / "run" / "core").exists()
