"""What a server's file says of rules: the function that it may run, the state to go on from, the files it writes."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from fsl_async import Adam, Dense, MisuseError, Ring, RoundFacts, Task
from fsl_async.server.rules import describe_state
from parties import Server, load_model, save_model, server_setup
from parties.commands.demo.processes import write_parties, write_server
from parties.deployment.backup import back_up
from parties.deployment.round_files import prepare_files, write_files
from parties.files.models import checkpoints, state_path
from parties.schedule import Schedule
from parties.settings.party_file import ServerFile
from parties.testing.world import world

MODULE = (
    "def trimmed(model, update, facts):\n    return {name: array + update[name] for name, array in model.items()}\n"
)


def task(**changes: Any) -> Task:
    fields = {
        "name": "t",
        "blocks": (Dense("head", size=3),),
        "ring": Ring(64, fraction_bits=24),
        "min_clients": 2,
        "max_clients": 3,
    }
    return Task(**(fields | changes))


FED_ADAM: dict[str, Any] = {"apply": "mean", "optimizer": Adam(0.1)}
MODEL = {"head": np.zeros(3, dtype=np.float32)}


def files_of(folder: Path, made: Task, *lines: str) -> Path:
    write_parties(folder, made, ["127.0.0.1:1", "127.0.0.1:2"], [])
    save_model(folder / "model.npz", MODEL)
    path = write_server(folder, 0, "127.0.0.1:1")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


# ---- the function


@pytest.mark.parametrize(
    ("apply", "lines", "words"),
    [
        ("rules_of_test:trimmed", (), "S0 names none. The server would run it with all its rights: read it"),
        ("rules_of_test:trimmed", ('apply = "rules_of_test:other"',), "S0 names rules_of_test:other. The server"),
        ("mean", ('apply = "rules_of_test:trimmed"',), 'applies the "mean", and no function; remove the line'),
        ("no.module:f", ('apply = "no.module:f"',), "cannot be imported: ModuleNotFoundError"),
        ("__main__:f", ('apply = "__main__:f"',), "a function of the script that made the task; move it into a module"),
    ],
)
async def test_a_server_runs_only_what_its_own_file_names(
    apply: str, lines: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    config = files_of(tmp_path, task(apply=apply), *lines)
    with pytest.raises(MisuseError, match=words):
        await server_setup(config)
    assert not (tmp_path / "S0.sqlite").exists(), "refused before anything is written"


async def test_a_server_imports_what_its_own_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_test.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = files_of(tmp_path, task(apply="rules_of_test:trimmed"), 'apply = "rules_of_test:trimmed"')
    setup = await server_setup(config)
    await setup.store.aclose()
    await setup.bulk.aclose()
    assert setup.apply is sys.modules["rules_of_test"].trimmed


# ---- the files that are written


async def lived(folder: Path, made: Task, file: ServerFile) -> Server:
    """Two rounds of two clients; the files as they are after each."""

    async def take_part(client: Any) -> None:
        for _ in range(2):
            await client.submit({"head": [1.0, -2.0, 0.5]})
            await client.outcome()

    def kept(setup: Any) -> Server:
        return Server(replace(setup, keeps_update=True))

    async with world(made, MODEL, 1, [], Schedule(clients=2, rounds=2), (kept, kept)) as here:
        for name in ("anna", "ben"):
            here.start(name, take_part)
        for number in (1, 2):
            await here.wait_settled(number)
            write_files(file, here.servers[0], number)
        return here.servers[0]


async def test_states_and_sums_are_written_beside_models(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    lines = ('save_model = "now.npz"', 'save_update = "sum.safetensors"', 'checkpoints = "made"')
    file = ServerFile.load(files_of(tmp_path, task(**FED_ADAM), *lines))
    prepare_files(file, task(**FED_ADAM))
    server = await lived(tmp_path, task(**FED_ADAM), file)
    assert describe_state(load_model(tmp_path / "now.state.npz")) == describe_state(server.rule_state)
    made = checkpoints(tmp_path / "made")
    assert [(point.number, point.state) for point in made] == [
        (number, tmp_path / "made" / f"round-{number:08}.state.npz") for number in (1, 2)
    ]
    summed = load_model(tmp_path / "sum.safetensors")
    assert {name: array.tolist() for name, array in summed.items()} == {
        "number": 2,
        "clients": 2,
        "update/head": [2.0, -4.0, 1.0],
    }


async def test_a_new_deployment_goes_on_from_a_checkpoint(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    file = ServerFile.load(files_of(tmp_path, task(**FED_ADAM), 'checkpoints = "made"'))
    prepare_files(file, task(**FED_ADAM))
    server = await lived(tmp_path, task(**FED_ADAM), file)
    point = checkpoints(tmp_path / "made")[-1]
    assert point.state is not None
    (tmp_path / "anew").mkdir()
    config = files_of(tmp_path / "anew", task(**FED_ADAM), f'state = "{point.state}"')
    setup = await server_setup(config)
    try:
        assert describe_state(Server(setup).rule_state) == describe_state(server.rule_state)
    finally:
        await setup.store.aclose()
        await setup.bulk.aclose()


def test_old_checkpoints_go_with_their_states(tmp_path: Path) -> None:
    from parties.files.models import checkpoint

    for number in (1, 2, 3):
        checkpoint(tmp_path, number, MODEL, keep=2, state={"velocity/head": np.zeros(3)})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"round-0000000{number}{kind}.npz" for number in (2, 3) for kind in ("", ".state")
    ]


def counted_once(model: Any, update: Any, facts: RoundFacts) -> Any:
    """Keeps something in the first round, and nothing after it."""
    if facts.state.pop("seen", None) is None:
        facts.state["seen"] = np.ones(1)
    return dict(model)


async def test_no_state_of_an_earlier_round_stays_beside_a_model_without_one(
    tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    made = task(apply=counted_once)
    file = ServerFile.load(files_of(tmp_path, made, 'save_model = "now.npz"', 'checkpoints = "made"'))
    prepare_files(file, made)
    save_model(tmp_path / "made" / "round-00000002.state.npz", {"another": np.ones(1)})
    await lived(tmp_path, made, file)
    assert not (tmp_path / "now.state.npz").exists()
    assert [point.state is None for point in checkpoints(tmp_path / "made")] == [False, True]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (('save_update = "model.npz"',), "save_update = .*model.npz' is the file of model as well"),
        (('save_model = "now.npz"', 'save_update = "./now.npz"'), "is the file of save_model as well"),
        (('save_model = "now.npz"', 'save_update = "now.state.npz"'), "is the file of save_model's state as well"),
        (('state = "begun.npz"', 'save_model = "begun.npz"'), "save_model = .* is the file of state as well"),
    ],
)
def test_no_file_is_written_over_another(lines: tuple[str, ...], words: str, tmp_path: Path) -> None:
    file = ServerFile.load(files_of(tmp_path, task(**FED_ADAM), *lines))
    with pytest.raises(MisuseError, match=words):
        prepare_files(file, task(**FED_ADAM))


def test_a_model_may_be_saved_where_it_was_read_and_its_state_as_well(tmp_path: Path) -> None:
    lines = ('save_model = "model.npz"', 'state = "model.state.npz"')
    file = ServerFile.load(files_of(tmp_path, task(**FED_ADAM), *lines))
    prepare_files(file, task(**FED_ADAM))


def test_sums_that_no_file_can_hold_are_refused_at_the_start(tmp_path: Path) -> None:
    made = task(ring=Ring(128))
    file = ServerFile.load(files_of(tmp_path, made, 'save_update = "sum.npz"'))
    with pytest.raises(MisuseError, match="save_update: no file holds sums of whole numbers of 128 bits"):
        prepare_files(file, made)


# ---- copies of a store


async def test_a_copy_has_the_state_and_writes_it_beside_the_model(tmp_path: Path) -> None:
    state = {name: np.arange(3.0) for name in ("first/head", "second/head")}
    save_model(tmp_path / "begun.npz", state)
    config = files_of(tmp_path, task(**FED_ADAM), 'state = "begun.npz"')
    setup = await server_setup(config)
    await Server(setup).restore()
    await setup.store.aclose()
    await setup.bulk.aclose()
    await trio.to_thread.run_sync(back_up, ServerFile.load(config), tmp_path / "copy.db", tmp_path / "copied.npz")
    copied = load_model(state_path(tmp_path / "copied.npz"))
    assert describe_state(copied) == describe_state(state)
