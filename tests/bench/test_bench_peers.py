"""Other libraries beside ours: programs that are right and wrong, turns, and an idle machine; nothing is timed."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fsl_async.errors import FslError, MisuseError
from parties.commands.bench.workload import Case
from parties.commands.report import ExitCode
from tests import ROOT
from tests.bench.__main__ import app
from tests.bench.peers import quiet
from tests.bench.peers import run as peers_run
from tests.bench.peers.program import OURS, Program, programs_of
from tests.bench.peers.quiet import busy_processors, on_one_processor, wait_until_idle
from tests.bench.peers.shares import points_of, what_is_wrong

PEERS = ROOT / "docs" / "benchmarks" / "peers"
CASES = tuple(Case(rows=600, select=select, security="semi-honest") for select in (9, 60))
LONG = 300.0


@pytest.fixture
def program(tmp_path: Path):
    """A program that does what it is told, as an executable file."""

    def make(how: str) -> Path:
        path = tmp_path / how
        script = Path(__file__).with_name("peer_program.py")
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} {how} "$@"\n')
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small cases, on a machine that is always idle."""
    monkeypatch.setattr(peers_run, "SET", CASES)
    monkeypatch.setattr(quiet, "busy_processors", lambda: 0.0)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = app(["peers", *map(str, words)], exit_on_error=False, print_error=False)
    captured = capsys.readouterr()
    return int(code), captured.out, " ".join(captured.err.split())


@pytest.mark.parametrize("how", ["right", "add"])
def test_a_program_whose_shares_add_up_is_accepted(how: str, program) -> None:
    turn = Program(how, program(how)).turn(50, 5, LONG)
    assert (turn.leaves, turn.seconds) == (50 * 32, 0.01)


WRONG = {
    "beside": "0 of 50 trees have another value at their point, and 1 leaves elsewhere are not 0",
    "moved": "1 of 50 trees have another value at their point, and 1 leaves elsewhere are not 0",
    "another": "1 of 50 trees have another value at their point, and 0 leaves elsewhere are not 0",
    "open": "server 0 has leaves that are 0 by themselves",
    "crash": "it has failed with exit code 1: the cat sat on the keys",
    "killed": "it has failed with signal 6",
    "rubbish": "its line is not what is expected",
    "list": "its line is not what is expected",
    "group": "its line is not what is expected",
    "more": "its line is not what is expected",
    "silent": "its line is not what is expected",
    "twice": "one line expected, and it has printed 2",
    "fewer": "it says that it has evaluated 1 leaves, and was asked for 1,600",
    "timeless": "it says that it took 0.0 seconds",
    "zero": "its value is 0",
    "digits": "its value must be 32 hexadecimal digits, not 'five'",
    "short": "server 1's shares have 3 bytes, not 25,600",
    "missing": "server 0's shares have 0 bytes, not 25,600",
}


@pytest.mark.parametrize("how", WRONG)
def test_a_program_that_does_something_else_is_refused_by_name(how: str, program) -> None:
    with pytest.raises(MisuseError) as refused:
        Program("them", program(how)).turn(50, 5, LONG)
    assert str(refused.value).startswith("--peer them: ")
    assert WRONG[how] in str(refused.value)


def test_a_program_that_hangs_is_named_and_stopped_with_what_it_has_started(program, tmp_path, monkeypatch) -> None:
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    monkeypatch.setenv("PEER_ALIVE", str(alive))
    reading = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(MisuseError, match="--peer them: it has not ended after 3 seconds, and was stopped"):
        Program("them", program("hang")).turn(50, 5, 3.0)
    os.set_blocking(reading, True)
    assert os.read(reading, 100).startswith(b"begun")
    assert os.read(reading, 1) == b""  # nobody holds the other end
    os.close(reading)


def test_what_cannot_be_executed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no program")
    path.chmod(0o755)
    with pytest.raises(MisuseError, match=r"--peer them: .* cannot be run"):
        Program("them", path).turn(50, 5, LONG)


# ---- shares


def halves(value: int) -> np.ndarray:
    return np.array([value % 2**64, value >> 64], dtype=np.uint64)


def test_carries_of_128_bits_are_carried() -> None:
    value = 2**64
    first = np.full((1, 2, 2), 2**64 - 1, dtype=np.uint64)
    second = np.empty_like(first)
    point = int(points_of(1, 1)[0])
    second[0, point], second[0, 1 - point] = halves(value + 1), halves(1)
    assert what_is_wrong(first, second, "add", halves(value)) == ""
    assert "do not add up" in what_is_wrong(first, second, "xor", halves(value))


@pytest.mark.parametrize("depth", [1, 5, 8, 30])
def test_points_are_leaves_and_spread(depth: int) -> None:
    points = points_of(1000, depth)
    assert points.max() < 2**depth
    assert len(set(points.tolist())) > min(2**depth, 1000) * 0.6


# ---- the command


@pytest.mark.usefixtures("small")
def test_libraries_take_turns_and_are_compared(program, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--peer={name}={program(how)}" for name, how in (("one", "right"), ("two", "add"))]
    code, out, err = run(capsys, *words, "--turns", 3, "--format", "json")
    result = json.loads(out)["result"]
    assert code == ExitCode.OK
    assert result["turns"] == 3
    assert [figure["library"] for figure in result["figures"]] == 2 * [OURS, "one", "two"]
    for figure in result["figures"]:
        assert figure["rate_min"] <= figure["rate"] <= figure["rate_max"]
        assert figure["rate"] == pytest.approx(figure["leaves"] / figure["seconds"])
    for ours, one, two in (result["figures"][:3], result["figures"][3:]):
        assert ours["ours_is_times_as_fast"] == pytest.approx(1)
        assert one["ours_is_times_as_fast"] == two["ours_is_times_as_fast"] == pytest.approx(ours["rate"] / one["rate"])
        assert one["leaves"] == one["parameters"]["trees"] << one["parameters"]["depth"]
    assert "turn 3 of 3" in err


@pytest.mark.usefixtures("small")
def test_people_read_the_fastest_of_the_others_first(program, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--peer", f"them={program('right')}", "--turns", 1)
    assert code == ExitCode.OK
    first, second, *_ = out.splitlines()
    for line in (first, second):
        assert f"{OURS} is " in line
        assert "as fast as them, the fastest of the others" in line
    assert "least–greatest" in out


@pytest.mark.usefixtures("small")
def test_ours_alone_is_measured_if_that_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--alone", "--turns", 1)
    assert code == ExitCode.OK
    assert "the others" not in out
    assert out.count(OURS) == 3  # a heading, and two cases


@pytest.mark.usefixtures("small")
def test_a_wrong_library_among_right_ones_is_refused_by_name(program, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--peer={name}={program(how)}" for name, how in (("good", "right"), ("bad", "beside"))]
    code, out, err = run(capsys, *words)
    assert code == ExitCode.MISUSE
    assert "--peer bad: its shares do not add up to point functions" in err
    assert not out


@pytest.mark.usefixtures("small")
def test_our_own_shares_are_checked_as_well(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(peers_run, "expected", lambda case, clients: case.task.ring.zeros(case.rows, 1))
    with pytest.raises(FslError, match="our own shares do not add up"):
        peers_run.check_ours(CASES[0])


@pytest.mark.parametrize(
    ("words", "reason"),
    [((), "give it as --peer NAME=PROGRAM"), (("--alone", "--peer", "a=b"), "--alone is for a run without --peer")],
)
def test_without_a_library_the_command_says_what_to_do(words, reason, capsys) -> None:
    code, _, err = run(capsys, *words)
    assert code == ExitCode.MISUSE
    assert reason in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["path"], "NAME=PROGRAM expected"),
        (["=path"], "NAME=PROGRAM expected"),
        (["them="], "NAME=PROGRAM expected"),
        (["a b=path"], "NAME=PROGRAM expected"),
        (["them=/bin/sh", "them=/bin/sh"], "is there already"),
        (["fsl-async=/bin/sh"], "is there already"),
        (["them=no/such/program"], "is no program that can be run"),
        (["them=/"], "is no program that can be run"),
    ],
)
def test_what_names_no_program_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(MisuseError, match=reason):
        programs_of(words)


@pytest.mark.parametrize("words", [("--turns", 0), ("--idle", -1), ("--patience", 0), ("--idle", "nan")])
def test_numbers_out_of_range_are_refused(words, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--alone", *words)
    assert code == ExitCode.MISUSE
    assert words[0] in err


# ---- an idle machine


def test_a_busy_machine_is_waited_for_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([2.0, 1.0, 0.05])
    told: list[str] = []
    monkeypatch.setattr(quiet, "busy_processors", lambda: next(loads))
    wait_until_idle(0.1, LONG, told.append)
    (line,) = told
    assert "others take 2 processors" in line


def test_a_machine_that_is_never_idle_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "busy_processors", lambda: 1.5)
    with pytest.raises(MisuseError, match=r"others take 1.5 processors .* more than --idle 0.1"):
        wait_until_idle(0.1, 0.0, lambda line: None)


def test_before_every_turn_the_machine_is_looked_at(program, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    looked: list[float] = []
    monkeypatch.setattr(peers_run, "SET", CASES)
    monkeypatch.setattr(peers_run, "wait_until_idle", lambda idle, patience, told: looked.append(idle))
    run(capsys, "--peer", f"them={program('right')}", "--turns", 2, "--idle", 0.25)
    assert looked == [0.25] * (len(CASES) * 2 * 2)


def test_the_work_of_others_is_a_number_of_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "LOOK", 0.0)
    assert busy_processors() >= 0
    monkeypatch.setattr(quiet, "STAT", Path("/no/such/file"))
    assert busy_processors() == os.getloadavg()[0]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot do that")
def test_turns_stay_on_one_processor() -> None:
    before = os.sched_getaffinity(0)
    with on_one_processor():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


# ---- the folder of drivers


def test_the_script_takes_the_drivers_that_are_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = runpy.run_path(str(PEERS / "compare.py"))["command"]
    assert command(tmp_path, ["--turns", "3"]) == ["bench", "peers", "--alone", "--turns", "3"]
    (tmp_path / "google").touch()
    assert command(tmp_path, []) == ["bench", "peers", "--peer", f"google={tmp_path / 'google'}"]
    assert "dkales is not there and is left out" in " ".join(capsys.readouterr().err.split())


def test_every_driver_has_its_source_and_its_place_on_the_page() -> None:
    drivers = runpy.run_path(str(PEERS / "compare.py"))["DRIVERS"]
    sources = {path.stem for path in PEERS.iterdir() if path.suffix in (".cpp", ".cu")}
    page = (PEERS / "README.md").read_text(encoding="utf-8")
    assert sources == set(drivers)
    for path in PEERS.iterdir():
        assert path.name == "README.md" or path.name in page, path.name


PEER = """
#include "driver.hpp"
struct Peer {
    unsigned depth; std::vector<std::uint64_t> points; int server = 0; std::vector<peers::Leaf> made;
    Peer(unsigned d, const std::vector<std::uint64_t>& p) : depth(d), points(p) {}
    const char* group() const { return "xor"; }
    peers::Leaf value() const { return {0, 9}; }
    void prepare(int which) { server = which; }
    void evaluate() {
        made.assign(points.size() << depth, peers::Leaf{1, 2, 3});
        for (std::size_t tree = 0; server == 1 && tree < points.size(); ++tree)
            made[(tree << depth) + points[tree]][1] ^= 9;
    }
    void leaves(std::vector<peers::Leaf>& out) const { out = made; }
};
int main(int argc, char** argv) { return peers::drive<Peer>(argc, argv); }
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
def test_what_all_drivers_share_says_what_the_command_expects(tmp_path: Path) -> None:
    source, built = tmp_path / "peer.cpp", tmp_path / "peer"
    source.write_text(PEER)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{PEERS}"]
    subprocess.run(["g++", *flags, str(source), "-o", str(built)], check=True, timeout=LONG)
    for trees, depth in ((1, 1), (137, 5), (20, 8)):
        assert Program("them", built).turn(trees, depth, LONG).leaves == trees << depth
    assert subprocess.run([built, "0", "5", str(tmp_path)], capture_output=True, timeout=LONG).returncode == 2
    assert subprocess.run([built, "3", "5", str(tmp_path / "no")], capture_output=True, timeout=LONG).returncode == 1
