"""Experiments: the same run through both servers, in the clear, in threads and processes, at one go and resumed."""

import json
import math
from functools import partial

import msgspec
import numpy as np
import pytest

from fsl_async import Adam, Dense, MisuseError, Privacy, Ring, Sparse, StorageError, Task
from parties import History, Turn, run_experiment
from parties.simulation import experiment, ways
from parties.simulation.history import HistoryFile
from tests.support.cases import one_in

TASK = Task(
    name="shop",
    blocks=[Sparse("items", rows=40, width=2, select=3), Dense("head", size=2)],
    ring=Ring(64, fraction_bits=24),
    apply="mean",
    min_clients=2,
    max_clients=9,
)
ANY = msgspec.structs.replace(TASK, updates="any", apply="row-mean")
ROWS = msgspec.structs.replace(TASK, apply="row-mean")
UNION = msgspec.structs.replace(TASK, optimizer=Adam(rate=0.1), alignment="union")
MODEL = {"items": np.arange(80, dtype=np.float32).reshape(40, 2), "head": np.zeros(2)}
NAMES = ("anna", "ben", "cleo", "dan/a")


def train(ids, rows, turn):
    """Half of the way to what stays with the client, and a little chance."""
    turn.state["mine"] = turn.state.get("mine", np.zeros(2)) + turn.rng.normal(size=2)
    change = turn.state["mine"] - rows["items"]
    return {"items": (ids, change / 2), "head": turn.rng.normal(size=2)}, {"loss": float((change**2).mean())}


CLIENTS = {
    name: ({"items": [at, at + 1, 9], "head": ...}, partial(train, [at, at + 1, 9])) for at, name in enumerate(NAMES)
}


def norm(model):
    return {"norm": float(np.abs(model["items"]).sum())}


def run(**options) -> History:
    arguments = {"task": TASK, "model": MODEL, "clients": CLIENTS, "rounds": 2, "evaluate": norm} | options
    return run_experiment(**arguments)


@pytest.mark.parametrize(
    "task",
    [
        ROWS,
        ANY,
        msgspec.structs.replace(TASK, apply="sum"),
        msgspec.structs.replace(TASK, optimizer=Adam(rate=0.1)),
        msgspec.structs.replace(TASK, apply="tests.parties.simulation.test_experiment:own"),
        UNION,
    ],
    ids=["row-mean", "any", "sum", "adam", "own", "union"],
)
def test_both_servers_learn_bit_for_bit_what_is_learnt_in_the_clear(task):
    secure, clear = run(task=task, select=3), run(task=task, select=3, clear=True)
    moved = ("bytes_up", "bytes_down", "run")
    ours, theirs = ([{k: v for k, v in each.items() if k not in moved} for each in h.facts] for h in (secure, clear))
    assert ours == theirs
    assert len({record["model"] for record in ours}) == 2, "every round changes the model"
    assert [record["counted"] for record in ours] == [3, 3]
    assert all(
        record["bytes_up"] > 10 * other["bytes_up"] > 0 for record, other in zip(secure.facts, clear.facts, strict=True)
    )
    assert all(secure.model[name].tobytes() == clear.model[name].tobytes() for name in MODEL)


def facts(history):
    moved = ("bytes_up", "bytes_down", "run")
    return [{name: each[name] for name in each if name not in moved} for each in history.facts]


def test_what_a_late_update_has_outside_the_union_is_left_out_in_both_ways():
    task = msgspec.structs.replace(TASK, alignment="union", updates="any")
    settings = {"task": task, "select": 3, "rounds": 3, "late": 0.3}
    secure, clear = run(**settings), run(**settings, clear=True)
    assert facts(secure) == facts(clear)
    assert sum(record["late"] for record in clear.records) > 0
    everywhere = run(**settings | {"task": msgspec.structs.replace(task, alignment="all")}, clear=True)
    assert clear.records[-1]["norm"] != everywhere.records[-1]["norm"], "some rows were outside"


@pytest.mark.parametrize("clear", [False, True])
def test_without_a_union_nobody_trains_and_the_next_round_goes_on(clear):
    def breaks(turn):
        if turn.number == 1:
            raise ValueError("no rows yet")
        return {"items": [1, 2, 9], "head": ...}

    clients = {name: (breaks, partial(train, [1, 2, 9])) for name in NAMES}
    first, second = run(task=msgspec.structs.replace(TASK, alignment="union"), clients=clients, clear=clear).records
    assert (first["counted"], second["counted"]) == (0, 4)
    assert first["failed"] == dict.fromkeys(NAMES, "ValueError: no rows yet")
    assert first["aborted"]
    assert not second["aborted"]


def own(model, update, facts):
    facts.state["numbers"] = np.append(facts.state.get("numbers", np.zeros(0)), float(facts.number))
    return {
        name: model[name] + (update[name] * facts.state["numbers"].sum()).astype(model[name].dtype) for name in model
    }


def test_the_mean_of_each_row_is_what_numpy_says():
    history = run(rounds=1, task=ROWS)
    turns = {
        name: Turn(1, experiment._Experiment(TASK, CLIENTS, 1, None, False, 0.0, None)._draw(1, name)) for name in NAMES
    }
    total, counts = np.zeros((40, 2)), np.zeros(40)
    for at, name in enumerate(NAMES):
        ids = [at, at + 1, 9]
        update, _ = train(ids, {"items": MODEL["items"][ids]}, turns[name])
        total[ids] += update["items"][1]
        counts[ids] += 1
    expected = MODEL["items"] + total / np.maximum(counts, 1)[:, None]
    assert np.allclose(history.model["items"], expected, atol=1e-5)
    assert history.records[0]["norm"] == norm(history.model)["norm"]


def test_who_trains_at_the_same_time_changes_nothing():
    assert run(concurrency=3, clear=True).facts == run(clear=True).facts
    assert run(concurrency=3).facts == run().facts


NOISY = msgspec.structs.replace(
    TASK,
    bound=50.0,
    max_clients=1000,
    privacy=Privacy(noise=0.3, delta=1e-6, budget=1e4),
    ring=Ring(64, fraction_bits=16),
)


AT_ONCE = {"late": {"task": ANY, "late": 0.4}, "union": {"task": UNION}, "noise": {"task": NOISY}}


@pytest.mark.parametrize(("settings", "count"), one_in(2, AT_ONCE, (1, 3)))
def test_how_many_retrieve_at_the_same_time_changes_nothing(monkeypatch, settings, count):
    asked = AT_ONCE[settings] | {"clients": CLIENTS | {name: client for name, (client, _) in FAULTS.items()}}
    whole = run(**asked)
    monkeypatch.setattr(ways, "TOGETHER", count)
    assert run(**asked).facts == whole.facts


@pytest.mark.slow
def test_training_in_processes_changes_nothing():
    assert run(concurrency=2, processes=True, clear=True).facts == run(clear=True).facts


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("settings", [{}, {"clear": True}, {"task": ANY, "late": 0.4}], ids=["secure", "clear", "late"])
def test_a_run_that_is_killed_anywhere_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch, settings):
    whole = run(**settings, rounds=3, select=2, history=tmp_path / "whole.jsonl")
    path = tmp_path / "run.jsonl"
    rng = np.random.default_rng(5)

    def killing(method, chance):
        def perhaps(*args, **kwargs):
            if rng.random() < chance:
                raise KilledError
            return method(*args, **kwargs)

        return perhaps

    monkeypatch.setattr(HistoryFile, "_write", killing(HistoryFile._write, 0.4))
    monkeypatch.setattr(experiment._Round, "submit", killing(experiment._Round.submit, 0.2))
    kills = 0
    while True:
        try:
            resumed = run(**settings, rounds=3, select=2, history=path)
            break
        except KilledError:
            kills += 1
            if kills % 2:
                with path.open("ab") as file:
                    file.write(b'{"half')
    assert kills > 2
    assert resumed.facts == whole.facts
    assert resumed.model["items"].tobytes() == whole.model["items"].tobytes()
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == resumed.records


def test_the_first_kill_of_a_run_leaves_a_half_line_and_it_begins_anew(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"")
    assert len(run(rounds=1, history=path).records) == 1


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"select": 2}, {"task": ANY}, {"clear": False}, {"model": MODEL | {"head": np.ones(2)}}]
)
def test_the_history_of_another_run_is_refused_and_left_alone(tmp_path, change):
    path = tmp_path / "run.jsonl"
    run(rounds=1, clear=True, seed=3, history=path)
    before = path.read_bytes()
    with pytest.raises(MisuseError, match=r"not the history of this run.*another task, model, clients or settings"):
        run(**{"rounds": 2, "seed": 3, "clear": True, "history": path} | change)
    assert path.read_bytes() == before


def test_a_history_without_what_belongs_to_it_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    run(rounds=2, clear=True, history=path)
    lines = path.read_bytes().splitlines(keepends=True)
    for content in (b"", lines[0] * 2, b"{}\n{}\n", b"no json\n\n"):
        path.write_bytes(content)
        with pytest.raises(MisuseError, match="not the history of this run"):
            run(rounds=2, clear=True, history=path)
    with pytest.raises(MisuseError, match="Is a directory"):
        run(clear=True, history=tmp_path)
    with pytest.raises(StorageError, match="folder does not exist"):
        run(clear=True, history=tmp_path / "no" / "run.jsonl")
    path.write_bytes(b"".join(lines))
    path.with_name("run.jsonl.npz").unlink()
    with pytest.raises(MisuseError, match=r"run.jsonl.npz is not beside it"):
        run(rounds=2, clear=True, history=path)


def raises(rows, turn):
    raise ZeroDivisionError("nothing to divide")


def nan(rows, turn):
    return {"head": np.array([math.nan, 0.0])}


FAULTS = {
    "raises": (({"items": [5]}, raises), "ZeroDivisionError: nothing to divide"),
    "wants too much": (({"items": [1, 2, 3, 4]}, raises), "select"),
    "wants what raises": ((lambda turn: {}[turn.number], raises), "KeyError"),
    "submits NaN": (({"items": [5]}, nan), "finite"),
    "submits other rows": (({"items": [5]}, lambda rows, turn: {"items": ([6], [[1.0, 1.0]])}), "retrieved"),
    "returns nothing": (({"items": [5]}, lambda rows, turn: None), "returned NoneType"),
    "metrics are words": (({"items": [5]}, lambda rows, turn: ({}, {"loss": "low"})), "ValueError"),
}


@pytest.mark.parametrize("clear", [False, True])
def test_a_round_goes_on_without_a_client_that_fails_and_the_history_says_why(clear):
    clients = CLIENTS | {name: client for name, (client, _) in FAULTS.items()}
    (record,) = run(clients=clients, rounds=1, clear=clear, concurrency=2).records
    assert record["failed"].keys() == FAULTS.keys()
    assert all(text in record["failed"][name] for name, (_, text) in FAULTS.items()), record["failed"]
    assert (record["selected"], record["counted"]) == (11, 4)
    assert record["model"] == run(rounds=1, clear=clear).records[0]["model"]


def test_a_round_with_too_few_changes_nothing_and_the_next_one_goes_on():
    def sometimes(rows, turn):
        return raises(rows, turn) if turn.number == 1 else train([1, 2, 9], rows, turn)

    clients = {"anna": CLIENTS["anna"], "ben": ({"items": [1, 2, 9]}, sometimes)}
    for clear in (False, True):
        first, second = run(clients=clients, rounds=2, clear=clear).records
        assert (first["counted"], second["counted"]) == (0, 2)
        assert "1" in first["aborted"]
        assert first["norm"] == norm(MODEL)["norm"] != second["norm"]


def test_what_a_client_that_fails_did_to_its_state_is_undone(tmp_path):
    def counts(rows, turn):
        count = turn.state.setdefault("count", np.zeros(1))
        count += 1
        if turn.number == 2:
            raise ZeroDivisionError
        return {"head": np.array([count[0], 0.0])}

    clients = CLIENTS | {"eve": ({"items": [5]}, counts), "odd": ({"items": [5]}, odd)}
    threaded, inline = (run(clients=clients, rounds=3, clear=True, concurrency=many) for many in (3, 1))
    assert threaded.facts == inline.facts
    assert [sorted(record["failed"]) for record in inline.records] == [["odd"], ["eve", "odd"], ["odd"]]
    assert "turn.state['odd'] is no array of numbers" in inline.records[0]["failed"]["odd"]
    for rounds in (1, 2, 3):
        resumed = run(clients=clients, rounds=rounds, clear=True, history=tmp_path / "run.jsonl")
    assert resumed.facts == inline.facts


def odd(rows, turn):
    turn.state["odd"] = {"a": "dictionary"}
    return {}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clients": {"anna": CLIENTS["anna"]}}, "2 to 1 clients in a round expected"),
        ({"select": 1}, "2 to 4 clients in a round expected"),
        ({"select": 5}, "2 to 4 clients in a round expected"),
        ({"rounds": 0}, "at least 1 round"),
        ({"late": 0.5}, 'updates="any"'),
        ({"task": msgspec.structs.replace(TASK, sample=2)}, "say select="),
        ({"select": lambda number: ["anna", "zoe"]}, "no client 'zoe'"),
    ],
)
def test_what_cannot_be_run_is_refused(options, text):
    with pytest.raises(MisuseError, match=text):
        run(**options)


def test_noise_spends_the_budget_and_is_the_same_again():
    privacy = Privacy(noise=20.0, delta=1e-6, budget=1.5)
    task = msgspec.structs.replace(TASK, bound=50.0, max_clients=1000, privacy=privacy, ring=Ring(64, fraction_bits=16))
    quick = {name: (wanted, lambda rows, turn: {"head": np.ones(2)}) for name, (wanted, _) in CLIENTS.items()}
    with pytest.raises(MisuseError, match=f"lasts for {privacy.rounds} rounds"):
        run(task=task, rounds=privacy.rounds + 1)
    first, again = (run(task=task, clients=quick, rounds=2) for _ in range(2))
    assert first.facts == again.facts
    assert [record["epsilon"] for record in first.records] == [privacy.epsilon(1), privacy.epsilon(2)]
    assert run(task=task, clients=quick, rounds=1, clear=True).records[0]["model"] != first.records[0]["model"]


def test_late_updates_are_counted_a_round_later():
    history = run(task=ANY, clear=True, late=0.5, rounds=8)
    waited = [record["late"] for record in history.records]
    assert waited[0] == 0 < sum(waited)
    assert all(record["selected"] + late == 4 for record, late in zip(history.records, waited, strict=True))


def test_evaluation_held_out_clients_and_an_early_stop(tmp_path):
    told = []

    def patience(record):
        told.append(record["round"])
        return record["round"] == 2

    held_out = {"eve": ({"items": [0, 9]}, lambda rows, turn: ({}, {"mean": rows["items"].mean()}))}
    for _ in range(2):  # what was read back stops as well
        history = run(held_out=held_out, on_round=patience, history=tmp_path / "run.jsonl", rounds=5, clear=True)
        assert len(history.records) == 2
    assert told == [1, 2, 1, 2]
    assert history.records[1]["held_out.mean"] == pytest.approx(history.model["items"][[0, 9]].mean())


def test_a_history_has_curves_and_a_picture():
    history = run(clear=True, evaluate=lambda model: {"norm": 1.0, "never": math.inf})
    assert history.curve("norm") == [1.0, 1.0]
    assert all(math.isnan(value) for value in history.curve("never"))
    assert "rounds=2" in repr(history)
    with pytest.raises(MisuseError, match=r"no figure 'rmse'|no round has a figure 'rmse'"):
        history.curve("rmse")
    pytest.importorskip("matplotlib")
    (axes,) = history.plot("norm", other=history).axes
    assert len(axes.lines) == 2
