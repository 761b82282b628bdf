"""A server's file fits what the rounds of its task run, or is refused by the key that does not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsl_async import MisuseError, Ring, Sparse, Task
from parties.deployment.server import check_rounds, starting_model
from parties.files.models import save_model
from parties.settings.party_file import RoundsTable, ServerFile

BLOCK = Sparse("items", rows=10, select=2)
SSA = Task(name="sums", blocks=[BLOCK], ring=Ring(64, fraction_bits=24))
PSR = Task(name="lookup", protocol="psr", blocks=[BLOCK], retrievals=3)
PSU = Task(name="seen", protocol="psu", blocks=[BLOCK])


def file(**keys: Any) -> ServerFile:
    plain: dict[str, Any] = {"server": 0, "identity": "s0.key", "task": "task.toml", "listen": "h:1", "store": "memory"}
    return ServerFile(**(plain | keys))


@pytest.mark.parametrize("task", [SSA, PSR])
def test_a_model_is_needed_where_there_is_something_to_retrieve(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    save_model(path, {"items": np.ones((10, 1))})
    assert list(starting_model(file(model=path), task)) == ["items"]
    with pytest.raises(MisuseError, match=r"model is missing: task .* needs the file"):
        starting_model(file(), task)


def test_unions_need_no_model() -> None:
    assert starting_model(file(), PSU) == {}


@pytest.mark.parametrize("key", ["model", "save_model", "checkpoints"])
def test_a_model_of_unions_is_refused_by_its_key(key: str) -> None:
    with pytest.raises(MisuseError, match=rf"{key} = 'x': task 'seen' has protocol = .psu..* remove {key}"):
        starting_model(file(**{key: Path("x")}), PSU)


@pytest.mark.parametrize("task", [PSR, PSU])
def test_a_file_for_sums_is_refused_where_there_are_none(task: Task, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=rf"save_update = 'x.npz': .* = .{task.protocol}., its rounds sum nothing"):
        starting_model(file(save_update=Path("x.npz")), task)


def test_retrievals_that_nothing_ends_are_refused() -> None:
    check_rounds(RoundsTable(seconds=60), PSR)
    with pytest.raises(MisuseError, match=r"rounds\.seconds = 0: .* its 3 retrievals of a round would wait for ever"):
        check_rounds(RoundsTable(), PSR)


def test_retrievals_do_not_wait_for_submissions() -> None:
    with pytest.raises(MisuseError, match=r"rounds\.clients = 5: .* take no submissions"):
        check_rounds(RoundsTable(clients=5, seconds=60), PSR)


@pytest.mark.parametrize("task", [SSA, PSU])
def test_no_more_submissions_are_awaited_than_there_are_clients(task: Task) -> None:
    check_rounds(RoundsTable(clients=1000), task)
    with pytest.raises(MisuseError, match=r"rounds\.clients must be at most 1000, the max_clients of task"):
        check_rounds(RoundsTable(clients=1001), task)
