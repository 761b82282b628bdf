"""The command: what it says without a fuzzer, and that it finds what is planted for it to find."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import ROOT

from . import __main__ as command
from .campaign import Engine, Plan, Tally, shares
from .catalogue import PARSERS, PLANTED
from .engine import available
from .minimise import minimised
from .parser import FAST, HEAVY

with_fuzzer = pytest.mark.skipif(bool(available()), reason="atheris, which is optional, is not installed")


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.system.fuzzing", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120
    )


@with_fuzzer
def test_a_planted_bug_is_found_minimised_and_replayed(tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "planted-crash").mkdir(parents=True)
    (corpus / "planted-crash" / "near").write_bytes(b"FSxxxx")
    done = run(
        *("--target", "planted-crash", "--runs", "400000", "--json", "--seed", "5"),
        *("--corpus", str(corpus), "--artifacts", str(tmp_path)),
    )
    assert done.returncode == 1, done.stderr
    assert "KeyError: " in done.stderr
    assert "hex: 46534c\nbase64: RlNM\n" in done.stderr
    told = json.loads(done.stdout)
    (parser,) = told["parsers"]
    assert 0 < told["executions"] == parser["executions"] <= 400_000
    assert 0 < parser["resident_mib"][0] <= parser["resident_mib"][1]
    done = run(
        *("--target", "planted-crash", "--runs", "400000", "--seed", "5"),
        *("--corpus", str(corpus), "--artifacts", str(tmp_path)),
    )
    assert done.returncode == 1, "found again where it is known already"
    again = next(line for line in done.stderr.splitlines() if line.startswith("again: ")).split()
    with pytest.raises(KeyError):
        command.main(again[4:])


class _Starved(Engine):
    """An engine whose processes end like this, one after the other."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self._scratch = tempfile.TemporaryDirectory()

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def _run(self, arguments: list[str], told: object) -> int:
        return self._statuses.pop(0)


def test_a_process_that_ends_and_leaves_no_input_is_run_again(tmp_path):
    plan = Plan(tmp_path / "corpus", tmp_path / "artifacts", runs=9, seconds=0.0, timeout=1, seed=1)
    with _Starved(-14, 0) as engine:
        assert engine.fuzz(PARSERS["token"], plan, print).failures == ()
    with _Starved(-14, -14) as engine, pytest.raises(RuntimeError, match="the fuzzer of token ended with -14"):
        engine.fuzz(PARSERS["token"], plan, print)


def test_an_input_is_made_shorter_as_long_as_it_fails_alike():
    assert minimised(PLANTED["planted-crash"], b"FSL and a lot more") == b"FSL"
    assert minimised(PLANTED["planted-crash"], b"nothing wrong") == b"nothing wrong"


def test_an_input_is_replayed(tmp_path, capsys):
    (tmp_path / "input").write_bytes(PARSERS["entries"].samples[0])
    assert command.main(["--replay", "entries", str(tmp_path / "input")]) == 0
    (tmp_path / "input").write_bytes(b"junk")
    assert command.main(["--replay", "entries", str(tmp_path / "input")]) == 0
    assert capsys.readouterr().out == (
        "entries reads these 1 bytes, as it may\nentries refuses these 4 bytes, as it may\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--target", "nobody"], "no parser is called 'nobody'"), (["--replay", "entries", "/nowhere"], "No such file")],
)
def test_what_cannot_be_done_is_said(arguments, said, capsys):
    assert command.main(arguments) == 2
    assert said in capsys.readouterr().err


def test_without_a_fuzzer_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setattr(command, "available", lambda: "atheris is not installed: …")
    assert command.main(["--target", "entries"]) == 2
    assert "atheris is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--runs", "0"], ["--runs", "many"], ["--runs", "5", "--seconds", "5"]])
def test_usage_errors_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_all_parsers_are_listed(capsys):
    with pytest.raises(SystemExit):
        command.main(["--list"])
    assert capsys.readouterr().out.split() == list(PARSERS)


def test_slow_parsers_get_fewer_executions():
    share = shares(list(PARSERS.values()), 10**7)
    assert abs(sum(share.values()) - 10**7) < len(PARSERS)
    assert share["from-client"] == share["entries"] > 90 * share["store-file"]
    assert {PARSERS[name].share for name in ("from-client", "store-file")} == {FAST, HEAVY}


def test_figures_add_up():
    tallies = [Tally("one", runs=10, seconds=2.0, resident=(5, 6)), Tally("two", runs=5)]
    told = command.figures(tallies, 4.0)
    assert (told["executions"], told["failures"]) == (15, 0)
    assert [parser["per_second"] for parser in told["parsers"]] == [5, 0]
