"""Hosts of a deployment, as network namespaces on this machine, and a shell on each of them.

    s0 ──┬── internet ──┬── clients        internet: a router whose firewall lets clients dial the servers, and
    s1 ──┘              ┘                   nobody dial a client
    s0 ──── line ──── s1                   the servers' own way to each other, a switch that can be unplugged

Each shell has a home folder of its own; nothing goes from one to another but through the network, or by `Hosts.carry`,
which stands for a person with an e-mail. No host reaches anything outside. Needs root, `ip` and `nft`.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

HANGS = 600.0  # seconds; a hang, not slowness, is what this is to end
ADDRESSES = {"s0": "10.77.0.10", "s1": "10.77.1.10", "clients": "10.77.2.10"}
LINE = {"s0": "10.77.9.1", "s1": "10.77.9.2"}
NAMES = {"s0": "s0.example.org", "s1": "s1.example.org"}
FIREWALL = """
table ip firewall {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname "clients" tcp dport 7000 accept
    }
}
"""


def missing() -> str:
    """What this machine lacks to have such hosts, in words; nothing where it lacks nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [tool for tool in ("ip", "nft", "bash") if shutil.which(tool) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    probe = f"probe-{secrets.token_hex(3)}"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if done.returncode:
        return f"this machine allows no network namespaces: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


@dataclass
class Said:
    """How a command ended."""

    code: int
    output: str


class Shell:
    """A bash that stays, as in a terminal: jobs, variables and the folder outlive each command.

    Args:
        name: whose it is.
        home: the folder it begins in.
        environment: its variables, besides HOME.
        within: the words that run a command where the shell is to be; none for here.
    """

    def __init__(self, name: str, home: Path, environment: dict[str, str], within: Sequence[str] = ()) -> None:
        self.name = name
        self.home = home
        self._scripts = tempfile.TemporaryDirectory()  # beside the home, which may be full
        self._said: list[str] = []
        self._news = threading.Condition()
        self._child = subprocess.Popen(
            [*within, "bash", "--noprofile", "--norc"],
            cwd=home,
            env=environment | {"HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self._child.stdout is not None
        self._reader = threading.Thread(target=self._listen, args=(self._child.stdout,), daemon=True)
        self._reader.start()

    def run(self, command: str, seconds: float = HANGS) -> Said:
        """Type a command, and wait until it has ended, or runs in the background."""
        mark = secrets.token_hex(8)
        script = Path(self._scripts.name) / mark
        script.write_text(command + "\n")
        begin = len(self._said)
        assert self._child.stdin is not None
        self._child.stdin.write(f'. {script} </dev/null; printf "\\n%s %d\\n" {mark} $?\n')
        self._child.stdin.flush()
        with self._news:
            ended = self._news.wait_for(lambda: any(line.startswith(mark) for line in self._said[begin:]), seconds)
            said = self._said[begin:]
        script.unlink()
        if not ended:
            raise TimeoutError(f"{self.name}$ {command}\nnot ended after {seconds} s; it said:\n{''.join(said)}")
        output, (ending,) = (
            [line for line in said if not line.startswith(mark)],
            [line for line in said if line.startswith(mark)],
        )
        return Said(int(ending.split()[1]), "".join(output).strip("\n"))

    @property
    def transcript(self) -> str:
        """All that was printed here."""
        return "".join(self._said)

    def close(self) -> None:
        """Log out: the shell ends, and with it everything that it started."""
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._reader.join()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        self._scripts.cleanup()

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            with self._news:
                self._said.append(line)
                self._news.notify_all()


@dataclass
class Hosts:
    """Two servers' hosts, the clients' one, and what is between them.

    Attributes:
        folder: below it every shell has its home.
        prefix: of the namespaces' names, so that two test runs at a time do not meet.
    """

    folder: Path
    prefix: str = field(default_factory=lambda: f"fsl-{secrets.token_hex(3)}")
    shells: dict[str, Shell] = field(default_factory=dict)

    def namespace(self, host: str) -> str:
        """The name of a host's namespace."""
        return f"{self.prefix}-{host}"

    def log_in(self, name: str, host: str, **environment: str) -> Shell:
        """A shell with a fresh home on a host, in an environment without anything of this process but the path."""
        home = self.folder / name
        home.mkdir()
        plain = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "dumb"}
        self.shells[name] = Shell(name, home, plain | environment, ("ip", "netns", "exec", self.namespace(host)))
        return self.shells[name]

    def carry(self, path: str, giver: str, taker: str) -> None:
        """Copy a file from one home to the same place in another."""
        target = self.shells[taker].home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.shells[giver].home / path, target)

    def unplug(self, switch: str, host: str) -> None:
        """Take down the link between a host and `line` or `internet`."""
        _ip("-n", self.namespace(switch), "link", "set", host, "down")

    def plug_in(self, switch: str, host: str) -> None:
        """Bring such a link up again."""
        _ip("-n", self.namespace(switch), "link", "set", host, "up")


@contextmanager
def hosts(folder: Path) -> Iterator[Hosts]:
    """Make the hosts; whatever they started ends with them."""
    made = Hosts(folder)
    try:
        _build(made)
        yield made
    finally:
        for shell in made.shells.values():
            shell.close()
        for name in (*ADDRESSES, "internet", "line"):
            subprocess.run(["ip", "netns", "del", made.namespace(name)], capture_output=True)
            shutil.rmtree(Path("/etc/netns") / made.namespace(name), ignore_errors=True)


def dependencies(folder: Path) -> Path:
    """Gather what the tests' environment has installed, but for this project: hosts reach no index."""
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("fsl_async", "_fsl_async", "_editable", "pip", "setuptools", "__pycache__")):
            (folder / entry.name).symlink_to(entry)
    return folder


def warm(packages: Path, sources: Path) -> None:
    """Give an installation what numba has compiled from the same sources here, so that it need not do so again.

    A file's compiled code counts for numba if it was made from a source of that size and time.
    """
    for compiled in sources.rglob("__pycache__/*.nb[ci]"):
        target = packages / compiled.relative_to(sources)
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(compiled, target)
    for source in sources.rglob("*.py"):
        times = source.stat()
        os.utime(packages / source.relative_to(sources), ns=(times.st_atime_ns, times.st_mtime_ns))


def _build(made: Hosts) -> None:
    for name in (*ADDRESSES, "internet", "line"):
        _ip("netns", "add", made.namespace(name))
        _ip("-n", made.namespace(name), "link", "set", "lo", "up")
    for host, address in ADDRESSES.items():
        gateway = address.rpartition(".")[0] + ".1"
        _cable(made, host, "internet")
        _ip("-n", made.namespace(host), "addr", "add", f"{address}/24", "dev", "internet")
        _ip("-n", made.namespace("internet"), "addr", "add", f"{gateway}/24", "dev", host)
        _ip("-n", made.namespace(host), "route", "add", "default", "via", gateway)
        _name_servers(made, host)
    _ip("-n", made.namespace("line"), "link", "add", "switch", "type", "bridge")
    _ip("-n", made.namespace("line"), "link", "set", "switch", "up")
    for host, other in (("s0", "s1"), ("s1", "s0")):
        _cable(made, host, "line")
        _ip("-n", made.namespace("line"), "link", "set", host, "master", "switch")
        _ip("-n", made.namespace(host), "addr", "add", f"{LINE[host]}/24", "dev", "line")
        _ip("-n", made.namespace(host), "route", "add", ADDRESSES[other], "via", LINE[other])
    inside = ["ip", "netns", "exec", made.namespace("internet")]
    subprocess.run([*inside, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"], check=True, capture_output=True)
    subprocess.run([*inside, "nft", "-f", "-"], input=FIREWALL, text=True, check=True, capture_output=True)


def _cable(made: Hosts, host: str, switch: str) -> None:
    """Connect a host, whose end is called like the switch, to a switch, whose end is called like the host."""
    ends = ["name", switch, "netns", made.namespace(host)], ["name", host, "netns", made.namespace(switch)]
    _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
    _ip("-n", made.namespace(host), "link", "set", switch, "up")
    _ip("-n", made.namespace(switch), "link", "set", host, "up")


def _name_servers(made: Hosts, host: str) -> None:
    """Let a host know the servers by name: `ip netns exec` lays this file over /etc/hosts."""
    folder = Path("/etc/netns") / made.namespace(host)
    folder.mkdir(parents=True)
    known = [f"{ADDRESSES[server]} {name}" for server, name in NAMES.items()]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known, ""]))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
