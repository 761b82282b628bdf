"""`bench cluster`: processes of a cluster beside this one, in tiny sizes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from fsl_async.errors import FslError, MisuseError
from parties.commands.bench.workload import Case
from parties.commands.report import ExitCode
from tests.bench.__main__ import app
from tests.bench.cluster import suite
from tests.bench.cluster.suite import cluster_suite
from tests.bench.workload import Options

TINY = Case(rows=2_000, select=20, bits=64, clients=6)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    for name, value in {"CASE": TINY, "KILL_CASE": TINY, "TURNS": 1, "ANSWERS": 1, "KILLS": 2}.items():
        monkeypatch.setattr(suite, name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_workers_are_compared_with_this_process_and_killed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["cluster", "--format", "json"], result_action="return_value") == ExitCode.OK
    told = json.loads(capsys.readouterr().out)["results"]
    names = [each["name"] for each in told]
    assert [name.partition(",")[0] for name in names] == [
        "sum of 6 on one worker",
        "sum of 6 on 2 workers",
        "gain of two workers over one",
        "16 queries in a pass",
        "2 kills of workers",
    ]
    assert told[-1]["rate"] == 2


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_sum_of_workers_that_is_another_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, number = suite.add_up, iter(range(100))

    async def add_up(*args):
        return replace(await plain(*args), digest=bytes([next(number)]))

    monkeypatch.setattr(suite, "add_up", add_up)
    with pytest.raises(FslError, match="do not come to the same sum"):
        list(cluster_suite(Options()))


def test_threads_are_not_the_caller_s_to_choose() -> None:
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with pytest.raises(MisuseError, match="workers have one each"):
        list(cluster_suite(Options(threads=2)))


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MisuseError, match=r"fsl-async\[dask\]"):
        list(cluster_suite(Options()))
