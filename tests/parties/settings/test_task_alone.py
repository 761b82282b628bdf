"""A task in a file of its own, as a program writes and reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsl_async import Adam, Dense, MisuseError, Privacy, Ring, Sparse, StorageError, Task
from parties import load_task, save_task

TASKS = (
    Task(
        name="shop",
        blocks=[Sparse("items", rows=100, width=8, select=5), Dense("head", size=3), Dense("weight", size=1)],
        ring=Ring(64, fraction_bits=16),
        apply="weighted-mean",
        weights="weight",
        optimizer=Adam(rate=0.1),
        bound=2.0,
        largest_weight=1.0,
        privacy=Privacy(noise=3.0, delta=1e-6, budget=4.0),
    ),
    Task(name='seen "a"', protocol="psu", blocks=[Sparse("items", rows=100, select=5)], min_clients=5),
)


def test_a_task_that_was_saved_is_the_same_task(tmp_path: Path) -> None:
    for task in TASKS:
        save_task(tmp_path / "task.toml", task)
        assert load_task(tmp_path / "task.toml").digest() == task.digest()


def test_what_is_no_task_is_refused_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    with pytest.raises(StorageError, match="folder does not exist"):
        save_task(tmp_path / "no" / "task.toml", TASKS[0])
    for text, why in (
        ("", r"no table \[task\]"),
        ("task = 3\n", r"no table \[task\]"),
        ('[task]\nname = "a"\n', "blocks"),
        ("[task\n", "task.toml"),
        ('[task]\nname = "a"\ncolour = 3\n', "colour"),
    ):
        path.write_text(text)
        with pytest.raises(MisuseError, match=why):
            load_task(path)
