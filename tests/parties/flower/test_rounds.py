"""Rounds with Flower's nodes in this process, and two real servers."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra `flower`, in an environment of its own: `make learn` makes it")

from flwr.app import ConfigRecord, MetricRecord

from fsl_async.errors import ChannelError, FslError, MisuseError
from parties.flower import SubmodelMod, SubmodelStrategy
from parties.flower.servers import Servers
from parties.flower.strategy import append_line
from tests.support.flower_nodes import (
    MAPPING,
    NODES,
    STATE,
    TASK,
    InProcess,
    answered,
    app_of,
    deployed,
    laid_out,
    message_for,
)
from transport import UnreachableError


def rows_of(message, context):
    first = context.node_config["partition-id"]
    return {"embedding.weight": [[first, first + 1], [first, 7]]}


def learn(state, partition):
    state["embedding.weight"][partition] += 1.0
    state["head.bias"] += partition
    return {"train_loss": float(partition), "secret": 42.0, "num-examples": 10}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with deployed(tmp_path_factory.mktemp("deployment")) as made:
        yield made


@pytest.fixture
def mod(deployment):
    return SubmodelMod(MAPPING, STATE, rows=rows_of, client=deployment.client, metrics={"train_loss"}, patience=30)


@pytest.fixture
def strategy(deployment, tmp_path):
    def make(**words):
        given = {
            "operator": f"http://{deployment.port}",
            "token_file": deployment.token,
            "nodes": NODES,
            "patience": 30,
        }
        given |= {"client": deployment.folder / "coordinator.toml"}
        return SubmodelStrategy(MAPPING, STATE, **(given | words))

    return make


@pytest.fixture
def servers(deployment):
    """Both servers; what a test has submitted is in no round of the next test."""
    client = deployment.folder / "coordinator.toml"
    both = Servers.of(f"http://{deployment.port}", client, deployment.token, patience=30)
    yield both
    both.close(both.open_round())


def plain(arrays):
    return {name: array.numpy() for name, array in arrays.items()}


def test_the_servers_aggregate_and_flower_hears_what_is_allowed(mod, strategy, tmp_path):
    grid = InProcess([app_of(mod, learn)] * NODES)
    driving = strategy(checkpoints=tmp_path, evaluating=2)
    before = plain(driving.arrays())
    seen = []
    result = driving.start(
        grid,
        num_rounds=2,
        train_config=ConfigRecord({"lr": 0.1}),
        evaluate_fn=lambda number, arrays: seen.append(plain(arrays)) or MetricRecord({"number": number}),
    )

    expected = before["embedding.weight"].copy()
    expected[:NODES] += 2 / NODES
    assert np.array_equal(seen[-1]["embedding.weight"], expected)
    assert np.array_equal(seen[-1]["head.bias"], before["head.bias"] + 2 * 1.5)
    assert {name: tensor.dtype for name, tensor in seen[-1].items()} == {
        name: each.dtype for name, each in STATE.items()
    }
    assert dict(result.train_metrics_clientapp[1]) == {"train_loss": 1.5, "fsl-counted": 4}
    assert result.evaluate_metrics_clientapp == {}, "what nodes evaluate is not allowed either, unless it is named"

    for message in grid.asked:
        assert not message.content.array_records, "the model does not go through Flower"
    assert grid.asked[0].content["config"]["lr"] == 0.1
    account = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [line["fsl-counted"] for line in account] == [4, 4]
    for line in account:
        assert (tmp_path / f"round-{line['round']:08}.npz").exists()


def fail(state, partition):
    raise ValueError("the word is xyzzy")


def leave(state, partition):
    sys.exit("the word is xyzzy")


def test_a_node_whose_training_fails_submits_zeros_and_is_counted_like_the_others(mod, strategy, caplog):
    grid = InProcess([app_of(mod, learn)] * 3 + [app_of(mod, fail)])
    result = strategy().start(grid, num_rounds=1)
    assert result.train_metrics_clientapp[1]["fsl-counted"] == 4
    assert "does not take part" not in caplog.text


@pytest.mark.parametrize("train", [fail, leave])
def test_what_failed_is_in_the_node_s_log_and_neither_the_servers_nor_flower_hear_of_it(mod, servers, caplog, train):
    """A server that marks a row, and Flower's, would see from an error who has the row."""
    silent = replace(mod, metrics=())
    number = servers.open_round()
    replies = [answered(app_of(silent, work), message_for(number), place) for place, work in enumerate((learn, train))]
    assert [dict(reply.content["metrics"]) for reply in replies] == [{}, {}]
    servers.close(number)
    assert servers.outcome(number).counted == 2
    (record,) = [each for each in caplog.records if each.name == "parties.client"]
    assert record.exc_info


def test_a_node_that_has_gone_does_not_hold_the_round_either(mod, strategy):
    grid = InProcess([*[app_of(mod, learn)] * 3, None])
    begun = time.monotonic()
    result = strategy(stragglers=2.0).start(grid, num_rounds=1)
    assert time.monotonic() - begun < 30
    assert result.train_metrics_clientapp[1]["fsl-counted"] == 3


def test_where_too_few_submit_the_round_is_aborted_and_the_next_one_counts(mod, strategy, servers):
    before = servers.open_round()
    result = strategy(stragglers=2.0).start(InProcess([app_of(mod, learn), None, None, None]), num_rounds=1)
    assert result.train_metrics_clientapp[1]["fsl-counted"] == 0
    assert servers.outcome(before).ended == "aborted"
    assert "1 of the 2 submissions" in servers.outcome(before).explanation
    result = strategy().start(InProcess([app_of(mod, learn)] * NODES), num_rounds=1)
    assert result.train_metrics_clientapp[1]["fsl-counted"] == 4


def test_a_node_that_is_asked_twice_says_the_same_and_submits_once(mod, servers):
    trained = []
    app = app_of(mod, lambda state, partition: trained.append(partition) or learn(state, partition))
    message = message_for(servers.open_round())
    first, second = answered(app, message, 1), answered(app, message, 1)
    assert dict(first.content["metrics"]) == dict(second.content["metrics"]) == {"train_loss": 1.0}
    assert list(first.content) == ["metrics"]
    assert trained == [1]


def test_a_node_that_dies_after_its_submission_says_when_asked_again_what_it_would_have_said(mod, servers, monkeypatch):
    app = app_of(mod, learn)
    message = message_for(servers.open_round())
    with monkeypatch.context() as patched:
        patched.setattr("parties.flower.mod.metrics_reply", lambda *words: 1 / 0)
        assert answered(app, message, 2).has_error()
    assert dict(answered(app, message, 2).content["metrics"]) == {"train_loss": 2.0}


def test_a_message_about_a_round_that_is_over_changes_nothing(mod, servers):
    reply = answered(app_of(mod, learn), message_for(servers.open_round() - 1), 3)
    assert "is over: the servers are at round" in reply.error.reason


def test_simulated_nodes_need_no_file_and_leave_none(mod, servers, deployment):
    number, before = servers.open_round(), sorted(deployment.folder.glob("*.[kt][eo]*"))
    simulated = {"fsl-task": str(deployment.folder / "task.toml")}
    for partition in (0, 1, 2, 0):  # each message is a new client's
        reply = answered(app_of(mod, learn), message_for(number), partition, simulated)
        assert dict(reply.content["metrics"]) == {"train_loss": float(partition)}
    servers.close(number)
    assert servers.outcome(number).counted == 4
    assert sorted(deployment.folder.glob("*.[kt][eo]*")) == before


def test_two_nodes_that_are_one_client_are_told_so(deployment, mod, servers):
    message = message_for(servers.open_round())
    nested = []

    def train(state, partition):
        nested.append(answered(app_of(mod, learn), message, partition))
        return learn(state, partition)

    assert not answered(app_of(mod, train), message, 3).has_error()
    assert "is in use: a client runs once at a time" in nested[0].error.reason


@pytest.mark.parametrize(
    ("train", "logged"),
    [
        (lambda state, _: state["head.bias"].fill(np.nan) or {}, "head.bias"),
        (
            lambda state, _: state["embedding.weight"].__setitem__(33, 1.0) or {},
            "row 33 was changed, and was not retrieved",
        ),
        (lambda state, _: state["head.bias"].__iadd__(state["embedding.weight"][33, 0]) is None or {}, "head.bias"),
        (lambda state, _: state["head.bias"].__imul__(1e30) is None or {}, "head.bias"),
        (lambda state, _: state.pop("head.bias") is None or {}, "'head.bias' is missing"),
        (lambda state, _: state.update({"head.bias": np.ones(4, np.float32)}) or {}, "head.bias"),
    ],
    ids=["nan", "row changed", "row used", "too large", "tensor missing", "other shape"],
)
def test_an_update_that_cannot_be_submitted_is_named_in_the_node_s_log_and_zeros_are_sent(
    mod, servers, caplog, train, logged
):
    assert not answered(app_of(mod, train), message_for(servers.open_round()), 0).has_error()
    (record,) = [each for each in caplog.records if each.name == "parties.client"]
    assert logged in str(record.exc_info[1])


def test_ids_that_do_not_fit_are_refused_at_the_node(deployment, servers, caplog):
    for ids, logged in (([50], "id 50"), (range(5), "select")):
        caplog.clear()
        mod = SubmodelMod(MAPPING, STATE, rows=lambda *_, ids=ids: {"embedding.weight": ids}, client=deployment.client)
        assert answered(app_of(mod, learn), message_for(servers.open_round()), 0).has_error()
        assert any(logged in str(record.exc_info[1]) for record in caplog.records if record.exc_info)


def test_a_node_that_names_no_client_is_told_how_to(servers):
    reply = answered(app_of(SubmodelMod(MAPPING, STATE, rows=rows_of), learn), message_for(servers.open_round()), 0)
    assert reply.has_error()


# ---- servers that are not there


def test_a_run_whose_servers_are_not_there_ends_at_once_and_names_the_address(tmp_path):
    absent = laid_out(tmp_path)
    token = tmp_path / "token"
    token.write_text("0" * 64)
    strategy = SubmodelStrategy(
        MAPPING, STATE, operator=f"http://{absent.port}", token_file=token, client=tmp_path / "coordinator.toml"
    )
    begun = time.monotonic()
    with pytest.raises(ChannelError, match=f"nothing answers at http://{absent.port} .*is the server running"):
        strategy.start(InProcess([]), num_rounds=1)
    assert time.monotonic() - begun < 10


def test_a_node_whose_servers_are_not_there_says_so_with_the_address(tmp_path):
    absent = laid_out(tmp_path)
    mod = SubmodelMod(MAPPING, STATE, rows=rows_of, client=absent.client, patience=1)
    begun = time.monotonic()
    reply = answered(app_of(mod, learn), message_for(1), 0)
    assert "127.0.0.1:" in reply.error.reason
    assert time.monotonic() - begun < 20


def test_a_task_that_flower_cannot_drive_is_refused(tmp_path):
    from msgspec.structs import replace

    for change, named in (({"alignment": "union"}, "union"), ({"sample": 2}, "sample")):
        folder = tmp_path / named
        folder.mkdir()
        absent = laid_out(folder, replace(TASK, **change))
        with pytest.raises(MisuseError, match=named):
            SubmodelStrategy(
                MAPPING, STATE, operator=f"http://{absent.port}", token_file=folder, client=folder / "coordinator.toml"
            )


# ---- closing, while a server is started again


class Restarting:
    """An operator's port that gives these answers, one after the other; an error is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def get(self, path, kind, *, task):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def change(self, method, path, kind, *, task, **arguments):
        return await self.get(path, kind, task=task)


OPEN, CLOSING = (
    SimpleNamespace(round=SimpleNamespace(number=7, state=state, submissions=3, minimum=2))
    for state in ("Open", "Closing")
)
NO_ROUND, NONE_ENDED = SimpleNamespace(round=None), SimpleNamespace(rounds=())


def servers_with(port, patience=30.0):
    return Servers(TASK, port, Path("coordinator.toml"), patience)


def test_a_server_that_is_started_again_closes_the_round_when_it_is_back(monkeypatch):
    monkeypatch.setattr("parties.flower.servers.PAUSE", 0.0)
    away = UnreachableError("away")
    port = Restarting(away, NO_ROUND, NONE_ENDED, OPEN, FslError("the other server is not there"), OPEN, away, CLOSING)
    servers_with(port).close(7)
    assert port.answers == []


def test_a_round_that_cannot_be_closed_in_time_says_why():
    with pytest.raises(FslError, match="the other server is not there"):
        servers_with(Restarting(OPEN, FslError("the other server is not there")), patience=-1).close(7)


def test_a_wrong_token_is_told_at_once():
    with pytest.raises(MisuseError, match="token"):
        servers_with(Restarting(OPEN, MisuseError("the token"), NONE_ENDED)).close(7)


# ---- what must not leave, and what must stay


def test_one_string_is_no_set_of_names_that_may_leave():
    with pytest.raises(MisuseError, match=r"write \{'train_loss'\}"):
        SubmodelMod(MAPPING, STATE, rows=rows_of, metrics="train_loss")


def test_what_a_killed_run_left_of_a_line_is_no_part_of_the_next_one(tmp_path):
    account = tmp_path / "rounds.jsonl"
    account.write_text('{"round": 1}\n{"rou')
    append_line(account, '{"round": 2}')
    append_line(account, '{"round": 3}')
    assert [json.loads(line)["round"] for line in account.read_text().splitlines()] == [1, 2, 3]
