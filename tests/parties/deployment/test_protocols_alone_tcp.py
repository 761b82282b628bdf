"""Each protocol alone over TCP: two servers of files, and clients that are commands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsl_async import Sparse, Task
from parties.files.models import load_model
from tests.support.shop import Basket
from tests.support.town import Town, deploy

PSR = Task(
    name="lookup", protocol="psr", blocks=[Sparse("items", rows=300, select=4, width=2)], retrievals=2, max_clients=6
)
PSU = Task(name="seen", protocol="psu", blocks=[Sparse("items", rows=300, select=4)], min_clients=2, max_clients=6)
MODEL = {"items": np.arange(600, dtype=np.float32).reshape(300, 2)}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any) -> Any:
    """Runs a client's command about rows of the items: its exit code, and its JSON object."""
    monkeypatch.chdir(tmp_path)

    def ask(name: str, command: str, rows: str, *words: str) -> tuple[int, dict[str, Any]]:
        return answer(command, f"{name}.toml", "--block", "items", "--rows", rows, *words)[:2]

    return ask


def test_rows_are_retrieved(tmp_path: Path, asked: Any, answer: Any) -> None:
    with Town(tmp_path, PSR, start=MODEL, rounds={"seconds": 60}):
        code, said = asked("anna", "retrieve", "3,14", "--output", "rows.npz")
        assert (code, said["result"]["shape"]) == (0, [2, 2])
        assert np.array_equal(load_model(tmp_path / "rows.npz")["values"], MODEL["items"][[3, 14]])
        Basket("anna", PSR).save(tmp_path / "update.npz")
        code, said, _ = answer("submit", "anna.toml", "--update", "update.npz")
        assert code != 0
        assert "only serve retrievals" in said["error"]["message"]


def test_a_union_is_found_and_printed(tmp_path: Path, asked: Any) -> None:
    with Town(tmp_path, PSU, rounds={"clients": 2}):
        code, said = asked("ben", "retrieve", "3", "--output", "x.npz")
        assert code != 0
        assert "only find a union" in said["error"]["message"]
        assert asked("anna", "unite", "3,14")[0] == 0
        code, said = asked("ben", "unite", "14,200", "--wait")
    assert (code, said["result"]["counted"]) == (0, True)
    assert said["result"]["union"] == {"items": [3, 14, 200]}


@pytest.mark.parametrize(
    ("task", "rounds", "expected"),
    [
        (PSR, {"seconds": 0}, "rounds.seconds = 0"),
        (PSU, {"clients": 7}, "rounds.clients must be at most 6"),
    ],
)
def test_serve_and_preflight_refuse_rounds_that_never_end(
    task: Task, rounds: dict[str, int], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    deploy(tmp_path, ["anna"], task=task, start=MODEL, rounds=rounds)
    monkeypatch.chdir(tmp_path)
    code, said, _ = answer("serve", "S0.toml")
    assert (code != 0, expected in said["error"]["message"]) == (True, True)
    code, said, _ = answer("preflight", "S0.toml")
    (finding,) = [each for each in said["result"]["findings"] if each["check"] == "rounds"]
    assert (code != 0, finding["verdict"], expected in finding["words"]) == (True, "bad", True)
