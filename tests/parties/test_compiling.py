"""A first use of the kernels says why it takes long: to the logger, to a person on stderr, and to nobody twice."""

import io
import itertools
import logging
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from numba import njit

from fsl_async import Dense, Ring, Sparse, Task, kernels
from parties import compiling
from parties.compiling import NOTICE, Notice, watched
from parties.compute import InlineLane
from parties.deployment import process
from parties.simulation.rehearsal import rehearse
from tests.support.shop import TASK, Shop, all_take_part, assert_exact, opened


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Compiler:
    """Compiles kernels that each take so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds
        self.notice = Notice(lambda: self.now)

    def compile(self, kernels: int) -> None:
        for _ in range(kernels):
            self.notice.on_start(None)
            self.notice.on_start(None)  # a kernel that it calls
            self.notice.on_end(None)
            self.now += self.seconds
            self.notice.on_end(None)


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(compiling, "sys", SimpleNamespace(stderr=terminal))  # pytest takes sys.stderr for itself
    monkeypatch.setattr(compiling, "_log", logging.Logger("parties.kernels"))  # pytest listens to the root
    return terminal


def test_a_person_is_told_once_when_it_takes_noticeable_time(terminal):
    compiler = Compiler(0.3)
    compiler.compile(2)
    assert terminal.getvalue() == ""
    compiler.compile(5)
    assert terminal.getvalue() == f"fsl-async: {NOTICE}\n"


def test_nobody_is_told_on_a_stream_that_is_no_terminal(terminal, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(compiling, "sys", SimpleNamespace(stderr=stream))
    Compiler(1.0).compile(3)
    assert stream.getvalue() == ""
    monkeypatch.setattr(compiling, "sys", SimpleNamespace(stderr=None))
    Compiler(1.0).compile(3)


def test_the_logger_is_told_and_then_the_terminal_is_not(terminal, monkeypatch):
    heard = io.StringIO()
    compiling._log.addHandler(logging.StreamHandler(heard))
    Compiler(1.0).compile(3)
    assert heard.getvalue() == f"{NOTICE}\n"
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("name", ["parties.kernels", "parties"])
def test_a_level_switches_it_off(terminal, monkeypatch, name):
    logger = compiling._log if name == compiling._log.name else logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        Compiler(1.0).compile(3)
    finally:
        logger.setLevel(before)
    assert terminal.getvalue() == ""


def test_the_compiler_tells_us_of_what_it_compiles_and_not_of_what_it_has(monkeypatch, terminal):
    """When this fails, numba's events have changed, and `parties/compiling.py` hears nothing."""
    told: list[str] = []
    monkeypatch.setattr(compiling, "Notice", _noting(told))
    compiling._watch.cache_clear()
    try:
        kernel = njit(lambda number: number + 1)
        assert watched(lambda: kernel(1)) == 2
        assert told == ["start", "end"]
        assert watched(lambda: kernel(2)) == 3
        assert told == ["start", "end"]
    finally:
        compiling._watch.cache_clear()


def _noting(told: list[str]) -> type:
    class Noting:
        def notify(self, event) -> None:
            told.append("start" if event.is_start else "end")

    return Noting


FIRST_USE = """
import numpy as np
from fsl_async import Ring, Sparse, Task
from parties import simulate_blocking
ring = Ring(64, fraction_bits=8)
task = Task(name="a", blocks=[Sparse("items", rows=100, select=4)], ring=ring, min_clients=2, max_clients=2)
with simulate_blocking(task, {"items": np.zeros((100, 1))}, 1) as net, net.client("anna") as anna:
    print(anna.retrieve({"items": [1]}))
"""


@pytest.mark.slow
def test_the_first_use_of_an_installation_and_the_second(tmp_path):
    assert f"fsl-async: {NOTICE}" in on_a_terminal(tmp_path)
    assert on_a_terminal(tmp_path).strip() == ""


def on_a_terminal(cache) -> str:
    """What a script that uses kernels says on a terminal's stderr."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    with open(ours, "rb", buffering=0) as read:
        process = subprocess.Popen(
            [sys.executable, "-c", FIRST_USE], env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
        )
        os.close(theirs)
        printed, _ = process.communicate(timeout=240)
        assert process.returncode == 0
        assert NOTICE not in printed
        try:
            return read.read(65_536).decode().replace("\r\n", "\n")
        except OSError:  # the terminal is closed, and nothing was written
            return ""


def test_it_is_cold_until_a_kernel_of_this_source_is_on_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert compiling.is_cold()
    index = tmp_path / "somewhere" / f"evaluation_kernels.add-31.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    index.parent.mkdir()
    index.touch()
    assert not compiling.is_cold()
    os.utime(index, (0, 0))
    assert compiling.is_cold()
    monkeypatch.setattr(kernels, "compiles", lambda: False)
    assert not compiling.is_cold()


FATES = {
    "done": ("", ""),
    "failed": ("echo no room >&2; exit 3", "with 3: no room"),
    "killed": ("kill -9 $$", "-9: it"),
}


@pytest.mark.parametrize(("does", "why"), FATES.values(), ids=FATES)
async def test_while_kernels_are_rehearsed_the_lane_is_plain_and_a_server_changes_once_they_are_there(
    monkeypatch, caplog, tmp_path, does, why
) -> None:
    """One whose kernels could not be compiled says why, and does not compile them itself."""
    before = kernels.active_isa()
    (tmp_path / "python").write_text(f"#!/bin/sh\ncat\n{does}\n")
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(compiling, "is_cold", lambda: True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(process, "LOOK_SECONDS", 0.001)
    caplog.set_level("INFO")
    try:
        with compiling.rehearsed(list) as rehearsal:
            assert kernels.active_isa() == "plain"
            await process._change_over(rehearsal)
            assert kernels.active_isa() == ("plain" if why else before)
        assert ("kernels are compiled, and compute from now on" in caplog.text) == (not why)
        assert ("kernels are not used" in caplog.text) == bool(why)
        assert why in caplog.text
    finally:
        kernels.select_isa(before)


class Changing(InlineLane):
    """Computes with these instruction sets, in turn: the n-th piece of work with the n-th."""

    def __init__(self, *names: str) -> None:
        self.names = itertools.cycle(names)

    async def run(self, work):
        kernels.select_isa(next(self.names))
        return await super().run(work)


CHANGES = {
    "servers in different lanes": (("plain",), ("compiled",)),
    "both change again and again": (("plain", "compiled", "compiled"), ("compiled", "plain")),
}


@pytest.mark.parametrize("lanes", CHANGES.values(), ids=CHANGES)
async def test_rounds_in_which_lanes_differ_and_change_are_exact(nursery, lanes) -> None:
    before = kernels.active_isa()
    shop = Shop(nursery, msgspec.structs.replace(TASK, bound=200.0, bound_proof="projected"))
    try:
        for index, names in enumerate(lanes):
            shop.lane = Changing(*(before if name == "compiled" else name for name in names))
            await shop.open_one(index)
        async with opened(shop.client("anna"), shop.client("ben")) as clients:
            for _ in range(2):
                await all_take_part(*clients)
                assert_exact(await shop.finish_round(), "anna", "ben")
        for block, array in shop.servers[0].setup.model.items():
            np.testing.assert_array_equal(array, shop.servers[1].setup.model[block])
        assert not shop.failures
    finally:
        kernels.select_isa(before)


def test_a_rehearsal_is_a_round_of_the_task() -> None:
    blocks = (Sparse("items", rows=40, width=3, select=4), Dense("head", size=2))
    rehearse(Task(name="t", blocks=blocks, ring=Ring(64), min_clients=16, max_clients=100, bound=1.0))
