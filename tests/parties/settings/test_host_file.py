"""A server's file with several tasks: what is whose, and what two tasks cannot share."""

from pathlib import Path

import msgspec
import pytest

from fsl_async.errors import MisuseError
from parties.identity.keys import Identity
from parties.settings.host_file import COMMON, HostFile, TaskTable, task_settings
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk, settings
from parties.settings.writing import write_deployment
from tests.support.shop import TASK

TOP = 'server = 0\nidentity = "S0.key"\nlisten = "127.0.0.1:0"\n'
SHOP = '[[tasks]]\ntask = "shop/task.toml"\nmodel = "shop.npz"\nstore = "shop.sqlite"\nclients = "clients.toml"\n'
TOWN = SHOP.replace("shop", "town")
ADDRESSES = ("127.0.0.1:7000", "127.0.0.1:7001")


def read(folder: Path, text: str, **environment: str) -> HostFile:
    (folder / "S0.toml").write_text(text)
    return HostFile.load(folder / "S0.toml", environment)


def refused(folder: Path, text: str, **environment: str) -> str:
    with pytest.raises(MisuseError) as refusal:
        read(folder, text, **environment)
    return str(refusal.value)


def test_each_task_has_the_settings_of_a_server_with_this_task_alone(tmp_path):
    limits = "[limits]\nmemory_bytes = 1000\nper_key = 7\n"
    rounds = "[tasks.rounds]\nseconds = 5\n"
    file = read(tmp_path, TOP + limits + SHOP + TOWN + "memory_bytes = 2000\n" + rounds)
    shop, town = file.tasks
    assert file.listed
    assert (
        (shop.server, shop.listen, shop.limits.per_key)
        == (town.server, town.listen, town.limits.per_key)
        == (0, "127.0.0.1:0", 7)
    )
    assert (shop.limits.memory_bytes, town.limits.memory_bytes) == (1000, 2000)
    assert (shop.rounds.seconds, town.rounds.seconds) == (0, 5)
    assert (shop.store, town.store) == (OnDisk(tmp_path / "shop.sqlite"), OnDisk(tmp_path / "town.sqlite"))
    assert shop.clients == town.clients == tmp_path / "clients.toml"


def test_a_file_without_tables_is_that_of_one_task(tmp_path):
    flat = TOP + SHOP.removeprefix("[[tasks]]\n")
    file = read(tmp_path, flat, FSL_ASYNC_STORE="memory")
    assert not file.listed
    assert file.tasks == (ServerFile.load(tmp_path / "S0.toml", {"FSL_ASYNC_STORE": "memory"}),)


def test_every_key_is_either_common_or_a_task_s():
    own = {found.section or found.name for found in settings(TaskTable)} - {"memory_bytes"}
    every = {field.name for field in msgspec.structs.fields(ServerFile)}
    assert own | set(COMMON) == every
    assert not own & set(COMMON)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOP + 'store = "x"\n' + SHOP, "S0.toml: store belongs to one task: write it into a table [[tasks]]"),
        (TOP + "[rounds]\nseconds = 4\n" + SHOP, "rounds belongs to one task"),
        (TOP + SHOP + 'listen = "127.0.0.1:1"\n', "[[tasks]] 1: listen is common to all tasks"),
        (TOP + SHOP + "[tasks.limits]\nburst = 4\n", "[[tasks]] 1: limits is common to all tasks"),
        (TOP + SHOP + TOWN + "stroe = 1\n", "S0.toml, [[tasks]] 2: unknown key 'stroe'; did you mean 'store'?"),
        (TOP + SHOP + "[tasks.rounds]\nseconds = -4\n", "[[tasks]] 1: rounds.seconds must be a number from 0"),
        (TOP + SHOP.replace('task = "shop/task.toml"\n', ""), "[[tasks]] 1: task is missing: the task file"),
        (TOP + SHOP.replace('clients = "clients.toml"\n', ""), '[[tasks]] 1: enrolment = "list" needs clients'),
        (SHOP, "S0.toml: server is missing"),
        (TOP + "tasks = []\n", "tasks must be tables [[tasks]], one for each task, and at least one"),
        (TOP + "tasks = 3\n", "tasks must be tables [[tasks]]"),
        (TOP + "".join(SHOP.replace("shop", f"shop{number}") for number in range(31)), "31 tasks; one server has 30"),
        (TOP + SHOP + TOWN.replace("town.sqlite", "./shop.sqlite"), "store of [[tasks]] 2 and store of"),
        (TOP + SHOP + 'save_model = "m.npz"\n' + TOWN + 'save_model = "m.npz"\n', "save_model of [[tasks]] 2 and"),
        (
            TOP + SHOP + 'save_model = "m.npz"\n' + TOWN + 'save_update = "m.state.npz"\n',
            "save_update of [[tasks]] 2 and the state beside save_model of [[tasks]] 1 are both",
        ),
        (TOP + SHOP + TOWN + 'checkpoints = "shop.sqlite"\n', "checkpoints of [[tasks]] 2 and store of"),
        (
            TOP + "".join(task + 'enrolment = "token"\ntokens = "t"\n' for task in (SHOP, TOWN)),
            "tokens of [[tasks]] 2 and tokens of [[tasks]] 1 are both",
        ),
    ],
)
def test_what_is_in_the_wrong_place_or_shared_is_refused_where_it_is_written(tmp_path, text, words):
    assert words in refused(tmp_path, text)


def test_variables_override_what_is_common_and_nothing_of_a_task(tmp_path):
    assert read(tmp_path, TOP + SHOP + TOWN, FSL_ASYNC_LISTEN="127.0.0.1:9").tasks[1].listen == "127.0.0.1:9"
    words = refused(tmp_path, TOP + SHOP + TOWN, FSL_ASYNC_ROUNDS_SECONDS="9")
    assert "FSL_ASYNC_ROUNDS_SECONDS in the environment would override rounds.seconds of every task" in words


# ---- their task files


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two tasks of the same two servers."""
    keys = [Identity.generate(name).public for name in ("S0", "S1", "anna")]
    for name in ("shop", "town"):
        (tmp_path / name).mkdir()
        task = msgspec.structs.replace(TASK, name=name)
        write_deployment(tmp_path / name, task, keys[:2], ADDRESSES, keys[2:])
    return tmp_path


def test_a_task_is_found_by_its_name(folder):
    file = read(folder, TOP + SHOP + TOWN)
    assert file.named("town").store == OnDisk(folder / "town.sqlite")
    with pytest.raises(MisuseError, match="has several tasks; name one with --task: shop, town"):
        file.named("")
    with pytest.raises(MisuseError, match="has no task 'city'; it has: shop, town"):
        file.named("city")
    (folder / "shop" / "task.toml").write_text("nonsense")  # what is wrong with one task is not in the way of another
    assert task_settings(folder / "S0.toml", "town").model == folder / "town.npz"


def test_tasks_that_cannot_be_served_together_are_refused(folder):
    file = read(folder, TOP + SHOP + TOWN)
    assert [deployment.task.name for _, deployment in file.deployments()] == ["shop", "town"]
    town = folder / "town" / "task.toml"
    right = town.read_text()
    other = Identity.generate("S1").public
    for old, new, words in (
        ('name = "town"', 'name = "shop"', "are called 'shop'; each task of a server has a name and a digest"),
        (ADDRESSES[1], "127.0.0.1:7002", "S1 is at 127.0.0.1:7002, and .* that it is at 127.0.0.1:7001"),
        (ADDRESSES[0], "127.0.0.1:7002", "S0 is at 127.0.0.1:7002"),
        ("[[servers]]", "[[servers]]", ""),
    ):
        town.write_text(right.replace(old, new))
        if words:
            with pytest.raises(MisuseError, match=words):
                file.deployments()
    write_deployment(
        folder / "town",
        msgspec.structs.replace(TASK, name="town"),
        [file.deployments()[0][1].identity(0), other],
        ADDRESSES,
        [],
    )
    with pytest.raises(MisuseError, match=r"town.task\.toml gives S1 other keys than .*shop.task\.toml"):
        file.deployments()
