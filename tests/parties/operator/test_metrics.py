"""The metrics: what is counted, that labels stay few, and how late the event loop runs."""

import random
import re
import secrets

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from fsl_async.protocols import ssa
from parties import events
from parties.operator.lag import ALARM, INTERVAL, LONG, MANY, QUIET, STUCK, EventLoopLag
from parties.operator.metrics import OTHER, STATES, TOSSING, WARNINGS
from tests import ROOT
from tests.parties.operator.paper import SAMPLES
from tests.parties.operator.stage import NASTY, NOTE, Stage, play_blobs, play_day, play_workers, settled_round

PARTIES = ROOT / "parties"


@pytest.fixture
def stage():
    return Stage()


def sample(stage: Stage, name: str, **labels: str) -> float | None:
    stage.scrape()
    return stage.observer.metrics.registry.get_sample_value(name, labels)


def label_sets(stage: Stage) -> dict[str, set[tuple]]:
    text = stage.scrape()
    found: dict[str, set[tuple]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            found.setdefault(each.name, set()).add(tuple(sorted(each.labels.items())))
    return found


def test_the_figures_of_a_note_are_metrics(stage):
    assert {name: sample(stage, f"fsl_{name}") for name in NOTE.figures} == NOTE.figures


BLOBS = ("fsl_blobs_bytes{} 2.5e+09", "fsl_blobs_free_bytes{} 8e+10", "fsl_blobs_to_erase{} 1.0")
WORKERS = (
    *("fsl_cluster_connected{} 1.0", "fsl_workers{} 2.0", "fsl_workers_waiting{} 1204.0", "fsl_partials_open{} 2.0"),
    *("fsl_partials_sealed{} 7.0", "fsl_given_again{} 31.0", "fsl_partials_bytes{} 3.5e+08"),
)


@pytest.mark.parametrize(("play", "lines"), [(play_blobs, BLOBS), (play_workers, WORKERS)])
def test_blobs_and_workers_are_counted_and_none_is_named(play, lines):
    stage = Stage()
    text = stage.scrape()
    name = "fsl_blobs_bytes" if play is play_blobs else "fsl_workers"
    assert f'{name}{{task="goods"}} NaN' in text
    play(stage)
    text = stage.scrape()
    for line in lines:
        assert line.replace("{}", '{task="goods"}') in text, line
    assert "fsl-5f" not in text


def test_the_running_round_is_in_exactly_one_state(stage):
    assert sample(stage, "fsl_round_state", state=TOSSING) == 1
    stage.open_round(7)
    for state in STATES[1:]:
        stage.move(state)
        ones = [name for name in STATES if sample(stage, "fsl_round_state", state=name) == 1]
        assert ones == [state]
    assert sample(stage, "fsl_round_number") == 7
    assert sample(stage, "fsl_round_closes_timestamp_seconds") == stage.now + 300


def test_every_state_of_the_machine_is_known():
    assert set(STATES) == {TOSSING, *(state.__name__ for state in ssa.ACCEPTS)}


def test_every_warning_that_is_given_has_a_label_of_its_own():
    sources = [file.read_text(encoding="utf-8") for file in PARTIES.rglob("*.py")]
    given = {
        about
        for source in sources
        for about in re.findall(r"(?:Warned\(\s*about=|\b_?warn\(\s*|WatchedFile\(path, )\"([^\"]+)\"", source)
    }
    assert given == set(WARNINGS)


def test_rounds_and_their_clients_are_counted_by_how_they_ended(stage):
    stage.tell(
        events.RoundSettled(past=settled_round(1, ["a", "b", "c"], {"d": "proof", "e": "proof"}, "", 10.0, 50.0, 2.0))
    )
    stage.tell(events.RoundSettled(past=settled_round(2, ["a"], {"d": "only_s1"}, "", 10.0, 50.0, 2.0)))
    stage.tell(events.RoundSettled(past=settled_round(3, [], {}, "S1 was away", 10.0, 50.0, 2.0)))
    stage.tell(events.Resumed(number=4, state="Open"))
    assert sample(stage, "fsl_rounds_total", outcome="done") == 2
    assert sample(stage, "fsl_rounds_total", outcome="aborted") == 1
    assert sample(stage, "fsl_rounds_resumed_total") == 1
    assert sample(stage, "fsl_clients_counted_total") == 4
    assert sample(stage, "fsl_clients_excluded_total", reason="proof") == 2
    assert sample(stage, "fsl_clients_excluded_total", reason="only_s1") == 1
    assert sample(stage, "fsl_clients_excluded_total", reason="mismatch") == 0
    assert sample(stage, "fsl_round_seconds_sum") == 120


def test_submissions_wait_until_they_are_evaluated(stage):
    stage.open_round(1)
    for name in "abcde":
        stage.submit(name)
    for name in "ab":
        stage.evaluate(name, 0.25)
    assert sample(stage, "fsl_submissions_total") == 5
    assert sample(stage, "fsl_round_submissions") == 5
    assert sample(stage, "fsl_submissions_waiting") == 3
    assert sample(stage, "fsl_evaluation_seconds_count") == 2
    assert sample(stage, "fsl_evaluation_seconds_sum") == 0.5
    assert sample(stage, "fsl_evaluation_seconds_bucket", le="0.1") == 0
    assert sample(stage, "fsl_evaluation_seconds_bucket", le="0.3") == 2


def test_bytes_are_counted_by_message_and_direction(stage):
    stage.tell(events.MessageSent(receiver="S1", kind="RosterList", size=100))
    stage.tell(events.MessageSent(receiver="S1", kind="roster", size=11))
    stage.tell(events.MessageReceived(sender="S1", kind="RosterList", size=7))
    assert sample(stage, "fsl_message_bytes_total", kind="roster", direction="out") == 111
    assert sample(stage, "fsl_messages_total", kind="roster", direction="out") == 2
    assert sample(stage, "fsl_message_bytes_total", kind="roster", direction="in") == 7


def test_whoever_is_connected_is_counted_now_and_refusals_since_the_start(stage):
    stage.connect("a", "b")
    stage.leave("a")
    stage.meet_peer()
    assert sample(stage, "fsl_clients_connected") == 1
    assert sample(stage, "fsl_peer_connected") == 1
    stage.lose_peer()
    assert sample(stage, "fsl_peer_connected") == 0
    assert sample(stage, "fsl_peer_lost_total") == 1
    for reason in ("round-closed", "round-closed", "busy"):
        stage.tell(events.RequestRefused(client="a", reason=reason, explanation=""))
    stage.tell(events.ConnectionFailed(origin="x", kind="TooSlowError", explanation=""))
    stage.tell(events.Warned(about="store", explanation=""))
    stage.tell(events.Violated(number=1, about="S1", kind="violation", explanation=""))
    stage.tell(events.Enrolled(client="a", key="00"))
    stage.tell(events.Revoked(client="a"))
    stage.tell(events.BudgetMoved(used=3, limit=9))
    assert sample(stage, "fsl_requests_refused_total", reason="round-closed") == 2
    assert sample(stage, "fsl_requests_refused_total", reason="busy") == 1
    assert sample(stage, "fsl_connections_failed_total", kind="TooSlowError") == 1
    assert sample(stage, "fsl_warnings_total", about="store") == 1
    assert sample(stage, "fsl_violations_total", kind="violation") == 1
    assert sample(stage, "fsl_clients_enrolled_total") == 1
    assert sample(stage, "fsl_clients_revoked_total") == 1
    assert sample(stage, "fsl_memory_budget_bytes", of="used") == 3
    assert sample(stage, "fsl_memory_budget_bytes", of="limit") == 9
    assert sample(stage, "process_resident_memory_bytes") > 1e6


def test_labels_stay_few_whatever_strangers_send(stage):
    seed = secrets.randbits(32)
    chance = random.Random(seed)
    for event in SAMPLES:
        stage.tell(event)
    before = label_sets(stage)
    for _ in range(1_000):
        word = f"{chance.choice(['S', 'only_s', 'Submit', NASTY])}{chance.randrange(10**9)}"
        stage.tell(events.MessageReceived(sender=word, kind=word, size=1))
        stage.tell(events.MessageSent(receiver=word, kind=word, size=1))
        stage.tell(events.RequestRefused(client=word, reason=word, explanation=word))
        stage.tell(events.ConnectionFailed(origin=word, kind=word, explanation=word))
        stage.tell(events.Warned(about=word, explanation=word))
        stage.tell(events.Violated(number=1, about=word, kind=word, explanation=word))
        stage.tell(events.SubmissionIn(number=1, client=word, total=1))
        stage.tell(events.Evaluated(number=1, client=word, seconds=1, total=1))
        stage.tell(events.RoundSettled(past=settled_round(1, [word], {word + "x": word}, "", 1, 2, 1)))
        stage.connect(word)
    after = label_sets(stage)
    assert before.keys() == after.keys()
    for name, labels in after.items():
        fresh = labels - before[name]
        assert all(OTHER in dict(each).values() for each in fresh), f"{name}: {fresh}, seed {seed}"
        assert len(labels) < 100


def test_the_text_is_what_prometheus_parses_and_every_metric_says_what_it_is(stage):
    play_day(stage, rounds=2)
    families = list(text_string_to_metric_families(stage.scrape()))
    ours = [family for family in families if family.name.startswith("fsl_")]
    assert len(ours) > 20
    assert all(family.documentation.endswith(".") for family in ours)


# ---- the event loop


class Ear:
    def __init__(self) -> None:
        self.measured: list[tuple[float, bool]] = []
        self.heard: list[events.Warned] = []
        self.lag = EventLoopLag(lambda *one: self.measured.append(one), self.heard.append)


@pytest.fixture
def ticking() -> MockClock:
    return MockClock(autojump_threshold=0)


async def test_a_loop_that_runs_in_time_is_no_trouble(ticking):
    ear = Ear()
    assert "not measured" in ear.lag.problem
    with trio.move_on_after(10 * INTERVAL + 0.01):
        await ear.lag.watch()
    assert ear.measured == [(pytest.approx(0, abs=1e-6), False)] * 10
    assert ear.heard == []
    assert ear.lag.problem == ""


async def test_a_lag_is_measured_and_warned_of_once_a_minute(ticking):
    ear = Ear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ear.lag.watch)
        for second in range(130):
            await trio.sleep(1)
            ear.lag.take(0.2 + second / 1000)
        nursery.cancel_scope.cancel()
    assert sum(stalled for _, stalled in ear.measured) == 130
    assert len(ear.heard) == 2
    assert ear.heard[0].about == "event-loop"
    words = rf"tasks ran more than 50 ms late {MANY} of the last (59|60) times, 211 ms at worst"
    assert re.search(words, ear.heard[0].explanation)
    assert QUIET == 60
    assert ear.lag.worst == pytest.approx(0.329)


async def test_short_stalls_now_and_then_are_measured_and_nobody_is_told(ticking):
    """A shared machine that is idle lets every process wait for some milliseconds, a few times a minute."""
    ear = Ear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ear.lag.watch)
        for _ in range(60):
            await trio.sleep(60 / (MANY - 2))
            ear.lag.take(0.9 * LONG)
        nursery.cancel_scope.cancel()
    assert sum(stalled for _, stalled in ear.measured) == 60
    assert ear.heard == []


async def test_one_long_stall_is_told_at_once(ticking):
    ear = Ear()
    ear.lag.take(1.1 * LONG)
    (warning,) = ear.heard
    assert "1100 ms at worst" in warning.explanation


async def test_a_blocked_loop_is_seen(ticking):
    ear = Ear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ear.lag.watch)
        await trio.sleep(INTERVAL / 2)
        ticking.jump(INTERVAL / 2 + 3 * ALARM)  # a computation that belongs in a thread
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert ear.measured[0] == (pytest.approx(3 * ALARM), True)


async def test_a_pulse_that_has_stopped_is_trouble(ticking):
    ear = Ear()
    ear.lag.take(0.0)
    await trio.sleep(STUCK / 2)
    assert ear.lag.problem == ""
    await trio.sleep(STUCK)
    assert "15 s late" in ear.lag.problem
