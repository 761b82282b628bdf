"""What the processes of a server listen at: what its file asks for, and nothing else."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parties.settings.writing import free_addresses
from tests.system.deployment.deployed import Deployed, deployed

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


def test_a_server_listens_where_it_is_told(site):
    addresses, looking = free_addresses(2), free_addresses(1)
    site.lay_out(addresses, [], operator={"listen": looking[0]})
    site.serve("s0")
    site.until("s0", "S0 listens at")
    site.until("s0", "the operator's page is at")
    assert heard(site.running["s0"].child.pid) == {port(addresses[0]), port(looking[0])}
