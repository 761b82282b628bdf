"""Two operators and two clients at terminals of this one machine, as the guide leaves them: their files are there.

Both servers on one host is for the tests' sake, which are about what is typed and what is seen.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from parties.settings.writing import free_addresses
from tests import ROOT
from tests.support.serving import ENDS_WITHIN
from tests.system.deployment.deployed import SERVERS, Homes
from tests.system.deployment.hosts import Shell
from tests.system.deployment.walkthrough import Typed

CLIENTS = ("alice", "bob")
SERVE = "fsl-async serve"


@dataclass
class Terminals(Homes):
    """Everybody's shell, each in a home of its own.

    Attributes:
        shells: by party.
        started: by server, how often it was.
    """

    shells: dict[str, Shell] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SERVERS, 0))

    def carry(self, path: str, giver: str, taker: str) -> None:
        """Copy a file from one home to another."""
        (self.home(taker) / path).write_bytes((self.home(giver) / path).read_bytes())

    def type(self, name: str, command: str, code: int = 0) -> str:
        """Type something that the document does not say; returns what is printed."""
        said = self.shells[name].run(command)
        assert said.code == code, f"{name}$ {command}\nended with {said.code}:\n{said.output}"
        self.typed(Typed(name, command, ()))
        return said.output

    def typed(self, typed: Typed) -> None:
        """Take note of what was typed: a server that was started in the background is waited for."""
        if SERVE in typed.command and typed.command.endswith("&"):
            self.started[typed.place] += 1
            listens = f'"{typed.place.upper()} listens at'
            self.until(lambda: self.lines(typed.place, listens) == self.started[typed.place], typed.place)

    def serve(self) -> None:
        """Start both servers, and wait for a round."""
        for name in SERVERS:
            self.type(name, f"{SERVE} {name}.toml 2>> {name}.log &")
        for name in SERVERS:
            self.until(lambda name=name: self.lines(name, '"round opened"') > 0, name)

    def round(self, number: int, *clients: str) -> None:
        """See a round through; it is counted from the last start with new stores."""
        for client in clients:
            self.type(client, f"fsl-async submit {client}.toml --update update.npz --patience {ENDS_WITHIN}")
        for name in SERVERS:
            self.until(lambda name=name: f"round-{number:08}.npz" in map(Path.name.fget, self.models(name)), name)

    def lines(self, name: str, words: str) -> int:
        """How many lines of a server's log have such words."""
        log = self.home(name) / f"{name}.log"
        return sum(words in line for line in log.read_text().splitlines()) if log.exists() else 0

    def until(self, is_so: Callable[[], bool], who: str) -> None:
        """Wait until something is so."""
        end = time.monotonic() + ENDS_WITHIN
        while not is_so():
            assert time.monotonic() < end, f"never so at {who}:\n{self.seen()}"
            time.sleep(0.05)

    def seen(self) -> str:
        """All that anybody has seen, in a log or on a screen; of a log's line in JSON the values."""
        logs = [log.read_text() for name in SERVERS for log in self.home(name).glob("*.log")]
        screens = [shell.transcript for shell in self.shells.values()]
        return "\n".join(_plain(line) for text in [*logs, *screens] for line in text.splitlines())


@contextmanager
def terminals(folder: Path) -> Iterator[Terminals]:
    """Shells at which the servers are not started yet; whatever runs in them ends with them."""
    addresses = free_addresses(4)
    rounds = {"clients": 2, "seconds": 3600.0, "patience": ENDS_WITHIN}
    made = Terminals(folder)
    made.lay_out(addresses[:2], CLIENTS, rounds=rounds)
    for name, address in zip(SERVERS, addresses[2:], strict=True):
        with (folder / name / f"{name}.toml").open("a") as file:
            file.write(f'[operator]\nlisten = "{address}"\n')
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "TERM": "dumb"}
    try:
        for name in (*SERVERS, *CLIENTS):
            made.shells[name] = Shell(name, folder / name, environment)
        yield made
    finally:
        for shell in made.shells.values():
            shell.close()


def _plain(line: str) -> str:
    if not line.startswith("{"):
        return line
    return " ".join(str(value) for value in json.loads(line).values())
