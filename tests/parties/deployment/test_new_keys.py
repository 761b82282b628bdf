"""A server gets new keys, from the first command to the next sum: docs/operations.md, New keys for a server."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import trio

from parties import connect
from parties.commands.doctor import doctor
from parties.commands.report import ExitCode
from parties.errors import BeganAnewError
from parties.events import ServerEvent, Warned
from parties.files.models import save_model
from parties.outcome import Model
from tests.support.shop import Basket, model, plain_sum
from tests.support.town import deploy, servers_of
from transport import WrongServerKeyError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    deploy(tmp_path, ("anna", "ben"))
    return tmp_path


async def a_round(folder: Path, before: Model, key: str = "anna.key") -> Model:
    """Both clients take part and are counted; returns the model of both servers then, with the exact sum in it."""
    async with servers_of(folder / "S0.toml", folder / "S1.toml") as servers:
        anna, ben = (connect(folder / "task.toml", folder / file) for file in (key, "ben.key"))
        async with anna as first, ben as second:
            await first.submit(Basket("anna").update, wait=True)
            await second.submit(Basket("ben").update, wait=True)
            assert (await first.outcome()).counted
            assert (await second.outcome()).counted
        for server in servers:
            for block, total in plain_sum(["anna", "ben"]).items():
                np.testing.assert_array_equal(server.model[block], (before[block] + total).astype(np.float32))
        return dict(servers[0].model)


async def first_warning(folder: Path, *files: str) -> str:
    """What of two servers that do not meet one tells its operator."""
    said, hears = trio.open_memory_channel[str](100)

    def observe(event: ServerEvent) -> None:
        if isinstance(event, Warned):
            said.send_nowait(event.explanation)

    async with servers_of(*(folder / file for file in files), observe=observe):
        return await hears.receive()


REFUSED = (
    "S0 cannot be met: .* it holds another key",
    "S0 refuses the link: a server of the task comes with a key that",
)
"""What S1 says where S0 has the old keys, and where it has them itself: S1 is the one that dials."""


@pytest.mark.parametrize("server", [0, 1])
def test_keys_are_replaced_and_both_servers_begin_anew(server, folder, in_process):
    """The server's, whose old ones are in other hands; and a client's, which are lost."""
    then = trio.run(a_round, folder, model())
    old, new, task = f"S{server}.old.toml", folder / f"s{server}-2.key", folder / "task.toml"
    shutil.copy(task, folder / "task.old.toml")
    shutil.copy(folder / f"S{server}.toml", folder / old)
    change(folder / old, "task.toml", "task.old.toml")
    change(folder / old, f"S{server}.sqlite", f"S{server}.old.sqlite")

    clients = folder / "clients.toml"
    for words in (
        ["keygen", new],
        ["peers", "revoke", task, "--server", server],
        ["peers", "add", task, new.with_suffix(".pub"), "--server", server],
        ["keygen", folder / "anna-2.key"],
        ["clients", "add", clients, folder / "anna-2.pub"],
        ["clients", "revoke", clients, "anna"],
    ):
        assert in_process(*map(str, words))[0] == ExitCode.OK
    change(folder / f"S{server}.toml", f"S{server}.key", new.name)
    said = {finding.check: finding for finding in trio.run(doctor, folder / f"S{server}.toml")}
    assert "a new one after its keys were replaced" in said["start"].text
    assert "holds the blobs of another server" in said["blobs"].text

    begin_anew(folder, then)
    files = ["S0.toml", "S1.toml"]
    files[server] = old
    assert re.match(REFUSED[server], trio.run(first_warning, folder, *files))
    trio.run(clients_are_told, folder, server)
    for state in folder.glob("*.state*"):
        state.unlink()
    trio.run(a_round, folder, then, "anna-2.key")


async def clients_are_told(folder: Path, server: int) -> None:
    """One that has the old file hears of new keys; one that has an old state, that its round is lost."""
    async with servers_of(folder / "S0.toml", folder / "S1.toml"):
        with pytest.raises(WrongServerKeyError, match=f"S{server}.*where the server has new keys, take the file"):
            async with connect(folder / "task.old.toml", folder / "anna-2.key", state=None, patience=0) as anna:
                await anna.submit(Basket("anna").update)
        with pytest.raises(BeganAnewError, match="forget_rounds"):
            async with connect(folder / "task.toml", folder / "ben.key", patience=0) as ben:
                await ben.submit(Basket("ben").update, wait=True)


def begin_anew(folder: Path, then: Model) -> None:
    """As docs/operations.md says, in a folder where both servers are."""
    (old := folder / "old").mkdir()
    for path in [*folder.glob("S?.sqlite*"), *folder.glob("S?.blobs")]:
        path.rename(old / path.name)
    save_model(folder / "model.npz", then)


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
