"""Where a client's state lies, whose it is, and what it is good for from one process to the next."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fsl_async.errors import MisuseError, StorageError
from parties.commands.report import ExitCode
from parties.files.disk import InUseError
from parties.identity.keys import Identity
from tests.support.shop import TASK, Basket
from tests.support.town import Town


@pytest.fixture
def command(town, monkeypatch, answer) -> Callable[..., tuple[int, dict]]:
    """Run a command of anna's in the town's folder; its exit code, and what stdout carries."""
    monkeypatch.chdir(town.folder)
    return lambda name, *words: answer(name, "task.toml", "--identity", "anna.key", *words)[:2]


def states(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.state"))


def test_the_state_lies_beside_the_keys_and_is_its_owner_s_alone(town):
    with town.connect("anna"):
        assert (town.folder / "anna.state").stat().st_mode & 0o777 == 0o600
    with town.connect("anna", state=town.folder / "elsewhere"):
        pass
    assert states(town.folder) == ["anna.state"]
    assert (town.folder / "elsewhere").exists()


def test_without_a_state_and_with_keys_of_no_file_nothing_is_kept(town):
    with town.connect("anna", state=None):
        pass
    from parties import connect_blocking

    with connect_blocking(town.folder / "task.toml", Identity.load(town.folder / "anna.key")):
        pass
    assert states(town.folder) == []


def test_a_client_goes_on_in_the_next_process(town):
    basket = Basket("anna")
    for _ in range(5):  # and each takes another retrieval's number
        with town.connect("anna") as anna:
            anna.retrieve({"items": basket.rows})
    with town.connect("anna") as anna:
        receipt = anna.submit(basket.update)
    with town.connect("ben") as ben:
        ben.submit(Basket("ben").update)
    town.finish_round()
    with town.connect("anna") as anna:
        outcome = anna.outcome()
    assert (outcome.number, outcome.counted) == (receipt.number, True)


def test_a_session_saves_from_one_process_to_the_next(tmp_path):
    task = msgspec.structs.replace(TASK, selection="fixed")
    sent = []
    with Town(tmp_path, task) as town:
        for _ in range(2):
            for name in ("anna", "ben"):
                with town.connect(name) as client:
                    sent.append(client.submit(Basket(name).update).bytes_sent)
            town.finish_round()
            for name in ("anna", "ben"):
                with town.connect(name) as client:
                    assert client.outcome().counted
    assert max(sent[2:]) < min(sent[:2]) / 2


@pytest.mark.parametrize("link", ["the same name", "a symbolic link"])
def test_a_second_process_of_the_same_client_is_refused_by_name(town, link):
    with town.connect("anna"):
        place = town.folder / "anna.state"
        if link == "a symbolic link":
            (town.folder / "other").symlink_to(place)
            place = town.folder / "other"
        with pytest.raises(InUseError, match=f"{place}, the state of client 'anna', is in use: a client runs once"):
            town.connect("anna", state=place)


def test_a_state_that_goes_by_two_names_is_refused(town):
    with town.connect("anna"):
        (town.folder / "other").hardlink_to(town.folder / "anna.state")
        with pytest.raises(StorageError, match=r"other is one of 2 names of the same file \(hard links\)"):
            town.connect("anna", state=town.folder / "other")


def test_another_s_state_is_refused_with_what_to_do(town):
    with town.connect("anna"):
        pass
    with pytest.raises(MisuseError, match=r"anna\.state: the state belongs to client 'anna', not .*state=None"):
        town.connect("ben", state=town.folder / "anna.state")
    text = (town.folder / "task.toml").read_text()
    (town.folder / "task.toml").write_text(text.replace(f'name = "{TASK.name}"', 'name = "another"'))
    with pytest.raises(MisuseError, match=r"anna\.state: the state belongs to another task: name is .*state=FILE"):
        town.connect("anna")


def test_a_place_that_cannot_be_used_is_told_with_what_to_do(town):
    for place in (town.folder, town.folder / "nowhere" / "state"):
        with pytest.raises(StorageError, match=r"cannot be written.* it is to be the state of client 'anna': name ano"):
            town.connect("anna", state=place)


# ---- on the command line


def test_the_command_keeps_a_state_unless_it_is_told_not_to(town, command):
    rows = ",".join(map(str, Basket("anna").rows))
    words = ("retrieve", "--block", "items", "--rows", rows, "--output", "rows.npz")
    assert command(*words, "--no-state")[0] == ExitCode.OK
    assert states(town.folder) == []
    for _ in range(4):
        assert command(*words)[0] == ExitCode.OK
    assert states(town.folder) == ["anna.state"]
    Basket("anna").save(town.folder / "update.npz")
    assert command("submit", "--update", "update.npz")[0] == ExitCode.OK


def test_with_and_without_a_state_at_once_is_misuse(town, command):
    code, said = command("submit", "--update", "update.npz", "--state", "x", "--no-state")
    assert (code, said["error"]["kind"]) == (ExitCode.MISUSE, "MisuseError")
