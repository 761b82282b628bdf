"""A server without a compiler says how fast it is, and warns of tasks that are too large for that."""

import pytest

from fsl_async import Ring, Sparse, Task, kernels
from parties.deployment import process
from parties.deployment.leaf_rate import leaves_of, measured_leaves, too_large


def task(rows: int, select: int, stash: int = 0) -> Task:
    return Task(name="demo", blocks=(Sparse("items", rows=rows, select=select, stash=stash),), ring=Ring(64))


def test_leaves_are_those_of_all_trees() -> None:
    assert 3 * 2**16 <= leaves_of(task(2**16, 512)) < 4 * 2**16
    assert leaves_of(task(2**16, 512, stash=2)) == leaves_of(task(2**16, 512)) + 2 * 2**16


def test_a_task_is_too_large_where_a_submission_takes_longer_than_a_second() -> None:
    large = task(2**20, 512)
    assert too_large(large, leaves_of(large)) == ""
    assert "takes 2.0 s of a core at 1.6 million a second" in too_large(large, leaves_of(large) / 2)


def test_a_server_without_a_compiler_says_so_once(monkeypatch, caplog) -> None:
    monkeypatch.setattr(process, "give_back_code", pytest.fail)
    before = kernels.active_isa()
    kernels.select_isa("plain")
    with caplog.at_level("INFO", "parties.serving"):
        process.load_kernels()
    kernels.select_isa(before)
    (said,) = caplog.messages
    assert said.startswith("nothing is compiled here, for want of numba")
    assert "million leaves a second of a core; pip install 'fsl-async[server]'" in said


def test_it_counts_what_it_has_computed() -> None:
    assert measured_leaves(True) > 0 < measured_leaves(False)
