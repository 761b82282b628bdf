"""The demo, as `fsl-async demo` runs it: exact, better than before, and the same for the same seed."""

import json
import sys
from functools import partial

import numpy as np
import pytest

from parties.commands.demo.client_cost import client_cost
from parties.commands.report import ExitCode

SMALL = ("--clients", "3", "--rounds", "2")


@pytest.fixture
def demo(in_process, monkeypatch):
    """Runs the demo in this process; gives its exit code and what it said where. What a client costs is given."""
    costs = {"installed_megabytes": 1.0, "first_call_seconds": 1.0, "memory_megabytes": 1.0}
    monkeypatch.setattr("parties.commands.demo.run.client_cost", lambda: costs)
    return partial(in_process, "demo")


@pytest.fixture
def result(demo):
    """The result of a demo."""

    def run(*words: str) -> dict:
        code, out, error = demo(*words, "--format", "json")
        assert code == ExitCode.OK, error
        envelope = json.loads(out)
        assert (envelope["version"], envelope["command"]) == (1, "demo")
        return envelope["result"]

    return run


def test_the_demo_learns_and_is_exact_and_its_text_says_what_its_object_says(demo, result):
    told = result(*SMALL)
    assert told["exact"] is True
    assert told["accuracy_after"] > told["accuracy_before"] + 0.1
    assert told["accuracy_after"] > told["accuracy_majority"]
    assert told["select"] / told["rows"] < 0.02
    assert told["bytes_up_per_client_and_round"] < told["trivial_bytes_up"] / 10
    assert told["bytes_down_per_client_and_round"] < told["trivial_bytes_down"] / 10
    assert told["tree_bytes"] < told["bytes_up_per_client_and_round"]
    code, out, _ = demo(*SMALL)
    assert code == ExitCode.OK
    for said in (
        "3 clients, 2 rounds, memory",
        f"{told['bytes_up_per_client_and_round']:,} bytes",
        f"{told['bytes_down_per_client_and_round']:,} bytes",
        f"{told['accuracy_after']:.1%}",
        "yes, bit for bit",
        *(" ".join(words) for words in told["telling_words"].values()),
    ):
        assert said in out
    assert max(map(len, out.splitlines())) <= 120


def without_seconds(told: dict) -> dict:
    return {name: value for name, value in told.items() if name not in ("seconds", "client")}


def test_one_seed_gives_one_result(result):
    first, again, other = (result("--clients", "2", "--rounds", "1", "--seed", seed) for seed in ("1", "1", "2"))
    assert without_seconds(first) == without_seconds(again)
    assert first["telling_words"] != other["telling_words"]


def test_a_single_differing_bit_is_a_failure(demo, monkeypatch):
    from parties.commands.demo import run

    def almost(*words, clear=False, on_round=None):
        history = exact(*words, clear=clear)
        if clear:
            history.model["words"][0, 0] = np.nextafter(history.model["words"][0, 0], np.float32(1))
        return history

    exact = run.learn
    monkeypatch.setattr(run, "learn", almost)
    code, out, error = demo(*SMALL, "--format", "json")
    assert code == ExitCode.ROUND
    assert json.loads(out)["error"]["message"] in error
    assert "differs from the one trained in the clear" in error


@pytest.mark.slow
def test_a_small_demo_on_a_cluster_is_exact_too(demo):
    """A scheduler and two workers are processes, too, and S0 adds up nothing itself."""
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    code, out, error = demo("--clients", "2", "--rounds", "1", "--transport", "tcp", "--compute", "dask")
    assert code == ExitCode.OK, error
    assert "2 clients, 1 rounds, tcp; two workers of a cluster add up for S0." in out
    assert "yes, bit for bit" in out


@pytest.mark.parametrize("transport", ["memory", "unix"])
def test_a_cluster_without_tcp_is_refused(demo, transport):
    code, out, error = demo(*SMALL, "--transport", transport, "--compute", "dask")
    assert (code, out) == (ExitCode.MISUSE, "")
    assert "--compute dask needs --transport tcp" in error


@pytest.mark.parametrize("words", [(), ("--format", "json")])
def test_a_cluster_without_dask_is_refused_with_what_to_install(demo, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, out, error = demo(*SMALL, "--transport", "tcp", "--compute", "dask", *words)
    assert code == ExitCode.MISUSE
    assert "pip install 'fsl-async[dask]'" in error
    assert "exact" not in out


@pytest.mark.slow
def test_a_small_demo_in_processes_is_exact_too(result):
    """S0, S1 and both clients are processes of their own; over TCP they are beside a cluster."""
    told = result("--clients", "2", "--rounds", "1", "--transport", "unix")
    assert told["exact"] is True
    assert told["transport"] == "unix"
    assert told["accuracy_after"] > told["accuracy_before"]


def test_what_a_client_costs_is_measured():
    cost = client_cost()
    assert 20 < cost["installed_megabytes"] < 1_000
    assert cost["first_call_seconds"] > 0
    assert cost["memory_megabytes"] > 10
