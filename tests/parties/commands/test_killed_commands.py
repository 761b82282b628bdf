"""`fsl-async submit`, killed on its way: the same command again finishes what it began, and nothing counts twice.

Real processes over TCP, ended by SIGKILL at each point where what a client keeps, or what a server has, is another.
"""

import signal
import textwrap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fsl_async.errors import ChannelError, FslError, PeerViolationError
from parties.commands import submitting
from parties.commands.report import ExitCode, Report
from parties.errors import OutcomeUnknownError, RoundClosedError, StillInDoubtError, SumRefusedError
from tests.support.cases import often
from tests.support.serving import Ended, processes
from tests.support.shop import ROWS, WIDTH, Basket, assert_exact, model
from tests.support.town import Town

KILLED = """
    import os, signal, sys
    from contextlib import contextmanager
    import trio
    from parties.client import client, submitting
    from parties.client import state as client_state
    from parties.commands.report import Report

    def dies(*words, **more):
        os.kill(os.getpid(), signal.SIGKILL)

    def after(kind, name):
        whole = getattr(kind, name)

        async def half(*words, **more):
            await whole(*words, **more)
            dies()

        setattr(kind, name, half)

    point = sys.argv.pop(1)
    if point == "before anything is kept":
        client_state.ClientState.store_draft = dies
    elif point == "before the first byte":
        after(client_state.ClientState, "store_draft")
    elif point == "before the first receipt is kept":
        client_state.ClientState.store_receipt = dies
    elif point == "after the first receipt":
        after(client_state.ClientState, "store_receipt")
    elif point == "after both receipts":
        whole = submitting.Submitter.deliver

        async def deliver(*words):
            await whole(*words)
            dies()

        submitting.Submitter.deliver = deliver
    elif point == "before it tells":
        Report.result = dies
    elif point == "after it has told":
        client.Client.mark_reported = dies
    elif point == "its time is over while it waits for the outcome":
        fail_after, outcome, scopes = trio.fail_after, client.Client.outcome, []

        @contextmanager
        def watched(seconds):
            with fail_after(seconds) as scope:
                if seconds == 600:
                    scopes.append(scope)
                yield scope

        async def late(self):
            (scope,) = scopes
            scope.deadline = trio.current_time()
            return await outcome(self)

        trio.fail_after, client.Client.outcome = watched, late
    from parties.commands.application import main
    main()
"""
POINTS = (
    "before the first byte",
    "before the first receipt is kept",
    "after the first receipt",
    "after both receipts",
    "before it tells",
    "after it has told",
)
OFTEN = ("before the first byte", "after the first receipt")
"""The points that every run of the tests tries; the others are slow."""

AT_EVERY_POINT = [pytest.param(point, marks=() if point in OFTEN else pytest.mark.slow, id=point) for point in POINTS]


@pytest.fixture
def town(tmp_path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        for name in ("anna", "ben", "other"):
            Basket(name).save(town.folder / f"{name}.npz")
        yield town


def submission(town: Town, point: str, *more: str) -> Ended:
    """Anna's command in a process that ends, or is late, at a point."""
    words = (point, "submit", "task.toml", "--identity", "anna.key", "--update", "anna.npz", *more)
    with processes() as start:
        return start(town.folder, *words, program=("-c", textwrap.dedent(KILLED))).ended()


@pytest.fixture
def command(town, monkeypatch, answer) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """A command of Anna's that nobody kills runs in this process: its exit code, its JSON object, and its stderr."""
    monkeypatch.chdir(town.folder)
    return lambda name, *words: answer(name, "task.toml", "--identity", "anna.key", *words)


@pytest.fixture
def submit(command) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Submits Anna's update, or another one."""
    return lambda update="anna", *more: command("submit", "--update", f"{update}.npz", *more)


def kill(town: Town, point: str) -> None:
    ended = submission(town, point)
    assert ended.code == -signal.SIGKILL, ended.words


def others(town: Town, *names: str) -> None:
    for name in names:
        with town.connect(name) as client:
            client.submit(Basket(name).update)


@pytest.mark.parametrize("point", AT_EVERY_POINT)
def test_the_same_command_again_finishes_what_was_begun(town, submit, point):
    kill(town, point)
    code, said, error = submit()
    assert code == ExitCode.OK, error
    assert said["result"]["resumed"] is True
    assert said["result"]["round"] == 1
    assert "counted" not in said["result"]
    others(town, "ben")
    assert_exact(town.finish_round(), "anna", "ben")


def test_what_was_killed_before_it_kept_anything_is_submitted_anew(town, submit):
    kill(town, "before anything is kept")
    code, said, _ = submit()
    assert (code, said["result"]["resumed"]) == (ExitCode.OK, False)
    others(town, "ben")
    assert_exact(town.finish_round(), "anna", "ben")


@pytest.mark.parametrize("point", AT_EVERY_POINT)
def test_once_the_round_is_over_it_tells_what_became_of_it_and_submits_nothing(town, submit, point):
    kill(town, point)
    others(town, "ben", "carol")
    first = town.finish_round()
    code, said, error = submit()
    assert code == ExitCode.OK, error
    result = said["result"]
    assert (result["round"], result["resumed"]) == (1, True)
    assert result["counted"] == ("anna" in first.clients)
    others(town, "ben", "carol")
    assert town.finish_round().clients == ("ben", "carol")


def test_once_it_is_told_the_same_update_is_another_submission(town, submit):
    """As it is for whoever submits the same every round on purpose."""
    kill(town, "after both receipts")
    assert submit()[1]["result"]["resumed"] is True
    others(town, "ben")
    town.finish_round()
    code, said, error = submit()
    assert code == ExitCode.OK, error
    assert (said["result"]["round"], said["result"]["resumed"]) == (2, False)


@pytest.mark.parametrize("point", often(1, ["after the first receipt", "after both receipts"]))
def test_another_update_waits_until_the_first_one_is_finished_and_told(town, submit, point):
    kill(town, point)
    others(town, "ben")
    code, said, error = submit("other")
    assert code == ExitCode.MISUSE, said
    assert "round 1" in said["error"]["message"]
    assert "an earlier update was submitted first: round 1" in error
    assert_exact(town.finish_round(), "anna", "ben")
    code, said, error = submit("other")
    assert (code, said["result"]["round"]) == (ExitCode.OK, 2), error


def test_resume_and_outcome_tell_what_submit_could_not(town, command):
    kill(town, "before the first byte")
    _, said, error = command("resume")
    assert said["result"]["round"] == 1, error
    code, said, _ = command("resume")
    assert code == ExitCode.MISUSE
    assert "nothing to resume" in said["error"]["message"]
    others(town, "ben")
    town.finish_round()
    _, said, _ = command("outcome")
    assert said["result"] == {"round": 1, "counted": True, "reason": "", "participants": 2}


def test_a_command_whose_time_is_over_says_that_its_update_may_count(town, submit):
    """Its 600 seconds end once both servers have the update, however long that took."""
    point = "its time is over while it waits for the outcome"
    code, told, words = submission(town, point, "--wait", "--timeout", "600")
    assert (code, told["error"]["kind"]) == (ExitCode.SENT, "TookTooLongError"), words
    assert "may be counted" in told["error"]["message"]
    others(town, "ben")
    town.finish_round()
    code, told, words = submit("anna", "--wait")
    assert code == ExitCode.OK, words
    assert (told["result"]["resumed"], told["result"]["counted"]) == (True, True)


async def test_a_submission_whose_end_is_waited_for_goes_to_the_next_round_where_one_closes_first(capsys):
    closed = iter([RoundClosedError("S0: the round of this request is not open")] * 2)

    async def submission() -> str:
        for error in closed:
            raise error
        return "received"

    assert await submitting._in_some_round(Report("submit", "text"), submission) == "received"
    assert capsys.readouterr().err.count("the round of this request is not open; going on with the next round") == 2


def test_an_error_names_the_options_of_the_command_line_on_the_command_line_alone(capsys):
    error = StillInDoubtError(3)
    assert "--" not in str(error)
    Report("submit", "text").failure(error)
    assert capsys.readouterr().err.endswith("(here: --again)\n")


class Teller:
    """A client whose earlier submission, or present one, ends in an error; it writes down what is told and noted."""

    unreported, pending, bytes_sent = None, 0, 0

    def __init__(self, form: str = "json") -> None:
        self.form, self.seen = form, []

    def failure(self, error: FslError) -> None:
        self.seen.append("told")

    async def mark_reported(self, *words: bytes) -> None:
        self.seen.append("noted")


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (RoundClosedError("over"), ["told", "noted"]),
        (OutcomeUnknownError("denied", 1, {}), ["told", "noted"]),
        (SumRefusedError(1, "too much"), ["told", "noted"]),
        (PeerViolationError("S0", "signed with another key"), []),
        (ChannelError("away"), []),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_only_what_is_sure_is_noted_as_told_and_only_after_it_was(error, seen):
    teller = Teller()

    async def fails() -> None:
        raise error

    with pytest.raises(ExceptionGroup):
        await submitting._submit_once(teller, teller, b"", fails, wait=False)
    assert teller.seen == seen


async def test_a_receipt_with_another_signature_leaves_the_submission_to_be_resumed():
    teller = Teller()
    teller.unreported, teller.pending = SimpleNamespace(mark=b"the same", digest=b""), 1

    async def resume() -> None:
        raise PeerViolationError("S0", "signed its receipt with another key than the pinned one")

    teller.resume = resume
    with pytest.raises(ExceptionGroup):
        await submitting._submit_once(teller, teller, b"the same", resume, wait=False)
    assert teller.seen == []


def test_a_table_is_retrieved_whole(town, command):
    code, said, _ = command("retrieve", "--block", "items", "--rows", "all", "--output", "table.npz")
    assert (code, said["result"]["shape"]) == (ExitCode.OK, [ROWS, WIDTH])
    with np.load(town.folder / "table.npz") as saved:
        assert list(saved) == ["values"]
        np.testing.assert_array_equal(saved["values"], model()["items"])


def test_retrieving_no_rows_is_a_mistake(command):
    code, said, _ = command("retrieve", "--block", "items", "--output", "rows.npz")
    assert code == ExitCode.MISUSE
    assert "name its rows, as in --rows 3,17,99, or fetch it whole with --rows all" in said["error"]["message"]
