"""The page in a real browser: what stands on it, that it lives, and that names stay names."""

import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from fsl_async.errors import StorageError
from fsl_async.protocols import ssa
from parties.events import Warned
from parties.operator.metrics import EXCLUSIONS
from tests import ROOT
from tests.parties.operator.asking import serving
from tests.parties.operator.browser import MISSING, Browser, browser
from tests.parties.operator.paper import Paper
from tests.parties.operator.stage import (
    ACTIVITIES,
    NASTY,
    NOTE,
    Host,
    OneTask,
    Stage,
    play_blobs,
    play_computing,
    play_day,
    play_workers,
)
from tests.parties.operator.test_real_server import CLIENTS, Observed, take_part
from tests.support.cases import often

PAGE = ROOT / "parties" / "operator" / "page"
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "never")


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def stage(paper):
    return Stage(paper.log, now=time.time())


@asynccontextmanager
async def page(window: Browser, stage: Stage | Host, tmp_path: Path) -> AsyncGenerator[str, None]:
    """The stage's page, open in the window; whatever it asks for and complains of is checked at the end."""
    async with serving(stage, tmp_path / "token") as address:
        await trio.to_thread.run_sync(window.open, f"http://{address}/")
        await see(window, "document.getElementById('live').textContent === 'live'")
        yield address
        console, requests = await trio.to_thread.run_sync(lambda: (window.console(), window.requests()))
        await trio.to_thread.run_sync(window.forget)
    assert console == []
    assert [url for url in requests if not url.startswith((f"http://{address}/", "about:"))] == []
    assert len(requests) >= 6


async def fits(window: Browser, width: int) -> None:
    """Nothing is wider than the screen or cut off, and no card is empty."""
    assert await run(window, "return document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    assert await run(window, CUT_OFF) == []
    assert await run(window, EMPTY_CARDS) == []


async def see(window: Browser, condition: str) -> object:
    return await trio.to_thread.run_sync(window.wait_for, condition)


async def run(window: Browser, script: str) -> object:
    return await trio.to_thread.run_sync(window.run, script)


def text(selector: str) -> str:
    return f"(document.querySelector({json.dumps(selector)})?.textContent ?? '')"


def number(selector: str) -> str:
    return f"document.querySelectorAll({json.dumps(selector)}).length"


async def test_everything_that_happened_stands_on_the_page(window, stage, tmp_path):
    play_day(stage, rounds=24)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} === 10")
        shown = await run(window, "return document.body.innerText")
        for words in (
            "S0 goods",
            "S1 connected",
            "Round 25",
            "Clients send their submissions.",
            "closes in",
            "37, at most 100",
            "29 of 37",
        ):
            assert words in re.sub(r"\s+", " ", shown), words
        figures = await run(window, "return [...document.querySelectorAll('.tile dd')].map(each => each.textContent)")
        assert figures[:4] == ["22", "2", "23 of 65", "8"]
        assert figures[4].endswith(("MiB", "GiB"))
        countdown = await run(window, f"return {text('#countdown')}")
        minutes, seconds = map(int, countdown.split(":"))
        assert 180 < 60 * minutes + seconds <= 204
        assert await run(window, f"return {text('#steps .now .step')}") == "collect"
        assert "connection failed (HandshakeTimeoutError) ×2" in shown
        assert await run(window, "return document.title") == "S0 goods · round 25: collect · fsl-async"
        await run(window, "document.getElementById('troubles-more').click()")
        assert "round 15: S1 was away when the time was over" in await run(window, f"return {text('#troubles')}")


async def test_workers_stand_on_the_page_where_there_are_any(window, stage, tmp_path):
    play_day(stage, rounds=2)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} === 2")
        assert await run(window, "return document.getElementById('workers-card').hidden")
        play_workers(stage)
        stage.tell(Warned(about="compute", explanation="worker fsl-5f-03 has failed: it is gone"))
        await see(window, f"{number('#workers tr')} === 2")
        shown = await run(window, f"return {text('#workers-card')}")
        for words in ("fsl-5f-01", "10.0.0.7", "1,204 submissions wait for a worker", "31 submissions given out again"):
            assert words in re.sub(r"\s+", " ", shown), words
        stage.engine = msgspec.structs.replace(stage.engine, connected=False, workers=())
        stage.tell(Warned(about="compute", explanation="the scheduler is away"))
        away = "The cluster at tls://10.0.0.5:8786 is away, so rounds wait for it."
        await see(window, f"{text('#workers-none')} === {away!r}")


async def test_blobs_stand_on_the_page_where_there_are_any(window, stage, tmp_path):
    play_day(stage, rounds=2)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} === 2")
        assert await run(window, "return document.getElementById('blobs-card').hidden")
        play_blobs(stage)
        stage.tell(Warned(about="blobs", explanation="the folder of blobs has little room"))
        told = "2.3 GiB of blobs in /var/lib/fsl-async/s0/blobs, 75 GiB free, 1 to be erased."
        await see(window, f"{text('#blobs')} === {told!r}")


async def test_charts_have_a_column_for_every_round_as_high_as_its_figures(window, stage, tmp_path):
    play_day(stage, rounds=24)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#clients-chart g.column')} === 24")
        heights = await run(
            window,
            "return [...document.querySelectorAll('#clients-chart g.column')].map(g => "
            "['first', 'third'].map(look => Number(g.querySelector('rect.' + look)?.getAttribute('height') ?? 0)))",
        )
        figures = [(len(past.report.clients), len(past.report.excluded)) for past in stage.past]
        unit = heights[1][0] / figures[1][0]
        for (counted, lost), (first, third) in zip(figures, heights, strict=True):
            assert first == pytest.approx(counted * unit, abs=0.6)
            assert third == pytest.approx(lost * unit, abs=0.6)
        assert await run(window, f"return {number('#clients-chart .cross')}") == 3, "two aborted rounds, one legend"
        assert await run(window, f"return {number('#seconds-chart g.column')}") == 24
        label = await run(window, "return document.querySelector('#seconds-chart svg').getAttribute('aria-label')")
        assert "rounds 1 to 24" in label
        await run(
            window,
            "document.querySelector('#clients-chart [data-round=\"7\"]').dispatchEvent(new Event('pointerenter'))",
        )
        assert await run(window, f"return {text('#clients-chart .reading')}") == "Round 7: aborted"


async def test_names_are_shown_and_never_obeyed(window, stage, tmp_path):
    stage.meet_peer()
    stage.connect(NASTY)
    stage.open_round(1)
    stage.settle([NASTY], {"</td><script>alert(2)</script>": "proof"}, aborted="")
    stage.open_round(2)
    stage.settle([], {}, aborted=f"because {NASTY}")
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} === 2")
        await see(window, f"{text('#names .name')} === {json.dumps(NASTY)}")
        await run(window, "document.querySelectorAll('#past .unfold')[1].click()")
        await see(window, f"{number('#past td.unfolded p')} === 2")
        names = await run(window, f"return {text('#past td.unfolded')}")
        assert f"Counted: {NASTY}" in names
        assert "Not counted: </td><script>alert(2)</script>, the proof did not hold" in names
        assert f"aborted: because {NASTY}" in await run(window, f"return {text('#past')}")
        assert await run(window, f"return {number('img')} + {number('body script')}") == 0


async def test_the_page_lives(window, stage, tmp_path):
    async with page(window, stage, tmp_path):
        assert "S1 is not connected. Round 1 opens" in await run(window, f"return {text('#state')}")
        assert await run(window, f"return {text('#round-title')}") == "Before the first round"
        assert "once it has ended" in await run(window, f"return {text('#past-none')}")
        stage.meet_peer()
        await see(window, f"{text('#peer')} === 'S1 connected'")
        stage.open_round(1, seconds=float("inf"), minimum=3, maximum=5)
        stage.connect("alice")
        stage.submit("alice")
        await see(window, f"{text('#submissions-text')} === '1, 3 needed'")
        assert await run(window, f"return {text('#countdown-text')}") == "closes when enough clients are in"
        for name in ("bob", "carol"):
            stage.submit(name)
        stage.evaluate("alice")
        await see(window, f"{text('#evaluated-text')} === '1 of 3'")
        bar = await run(window, "return document.querySelector('#submissions .fill').style.width")
        assert bar == "60%"
        stage.move("Committed", "S1's commitment")
        await see(window, f"{text('#steps .now .step')} === 'compute'")
        assert await run(window, f"return {text('#path .now b')}") == "Committed"
        assert (await run(window, f"return {text('#state')}")).endswith("Waiting for: S1's commitment.")
        stage.settle(["alice", "bob"], {"carol": "only_s0"})
        await see(window, f"{number('#clients-chart g.column')} === 1 && {number('#past tr')} === 1")
        assert await run(window, f"return {text('#done')}") == "1"
        assert await run(window, f"return {text('#round-title')}") == "Round 1 is oversecure aggregation"
        assert await run(window, f"return {text('#steps .now .step')}") == "done"
        ticks = "[...document.querySelectorAll('#clients-chart text[text-anchor=end]')].map(each => each.textContent)"
        assert await run(window, f"return {ticks}") == ["0", "1", "2", "3"]
        stage.lose_peer()
        await see(window, f"{text('#peer')} === 'S1 not connected'")
        await see(window, f"{text('#troubles')}.includes('peer lost')")


@pytest.mark.parametrize("protocol", often(1, ["ssa", "psu", "psr"]))
async def test_every_state_of_the_machine_has_its_words_and_one_of_three_steps(window, stage, tmp_path, protocol):
    stage.open_round(1, protocol=protocol)
    async with page(window, stage, tmp_path):
        for state in ACTIVITIES:
            stage.move(state)
            await see(window, f"{text('#path .now b')} === '{state}'")
            assert (await run(window, f"return {text('#path .now')}")).endswith("."), f"{state} has no words"
            step = "collect" if ACTIVITIES[state] == "collecting" else "compute"
            assert await run(window, f"return {text('#steps .now .step')}") == step
            assert await run(window, "return document.title") == f"S0 goods · round 1: {step} · fsl-async"


async def test_a_row_unfolds_by_keyboard_and_stays_so_when_rounds_are_added(window, stage, tmp_path):
    stage.open_round(1)
    stage.settle(["alice"], {})
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past .unfold')} === 1")
        await run(window, "document.querySelector('#past .unfold').focus()")
        await trio.to_thread.run_sync(window.enter)
        await see(window, f"{number('#past td.unfolded')} === 1")
        expanded = (
            "document.querySelector('#past tr:last-child').previousElementSibling.querySelector('button').ariaExpanded"
        )
        assert await see(window, f"{expanded} === 'true'")
        stage.open_round(2)
        stage.settle(["bob"], {})
        await see(window, f"{number('#past .unfold')} === 2")
        assert await run(window, f"return {text('#past td.unfolded')}") == "Counted: alice"
        await run(window, "document.querySelectorAll('#past .unfold')[1].click()")
        assert await run(window, f"return {number('#past td.unfolded')}") == 0


async def test_a_lost_server_is_seen_and_found_again(window, stage, tmp_path):
    stage.meet_peer()
    async with serving(stage, tmp_path / "token") as address:
        await trio.to_thread.run_sync(window.open, f"http://{address}/")
        await see(window, f"{text('#live')} === 'live'")
    await see(window, f"{text('#live')}.includes('trying again')")
    assert await run(window, "return document.getElementById('main').className") == "stale"
    async with serving(stage, tmp_path / "token", address):
        await see(window, f"{text('#live')} === 'live' && document.getElementById('main').className === ''")
        await trio.to_thread.run_sync(window.forget)


async def test_rounds_that_cannot_be_read_are_asked_for_again(window, stage, tmp_path, monkeypatch):
    async def fail(most: int, before: int = 0) -> None:
        raise StorageError("the store cannot be read")

    stage.open_round(1)
    stage.settle(["alice"], {})
    async with serving(stage, tmp_path / "token") as address:
        with monkeypatch.context() as broken:
            broken.setattr(stage, "past_rounds", fail)
            await trio.to_thread.run_sync(window.open, f"http://{address}/")
            await see(window, f"{text('#live')} === 'past rounds cannot be read'")
        stage.meet_peer()
        await see(window, f"{text('#live')} === 'live' && {number('#past .unfold')} === 1")
        await trio.to_thread.run_sync(window.forget)


async def test_a_round_of_real_servers_is_seen_from_collecting_to_done(window, tmp_path):
    paper = Paper()
    with paper.log.installed():
        net = Observed(paper.log)
        async with trio.open_nursery() as nursery:
            await nursery.start(net.run)
            async with page(window, Host(OneTask(net.observers[0], net.servers[0])), tmp_path):
                await see(window, f"{text('#steps .now .step')} === 'collect'")
                await see(window, f"{text('#state')}.includes('2 more clients are needed.')")
                for many, name in enumerate(CLIENTS, start=1):
                    await take_part(net, name)
                    await see(window, f"{text('#submissions-text')}.startsWith('{many}')")
                await see(window, f"{text('#evaluated-text')} === '3 of 3'")
                await see(window, f"{text('#groups')}.startsWith('Submitted 3Not yet 0')")
                spelled = await run(window, f"return {text('#compare dd:nth-of-type(3) .letters')}")
                other = await net.port(1).json("/status.json")
                assert spelled.strip() == other["round"]["fingerprint"], "the other operator reads the same"
                await net.finish_round()
                await see(window, f"{number('#past tr')} === 1 && {text('#done')} === '1'")
                await see(window, f"{text('#round-title')}.startsWith('Round 2')")
                await fits(window, 1180)
            nursery.cancel_scope.cancel()


def play_nothing(stage: Stage) -> None:
    """The server has just started."""


def play_first_round(stage: Stage) -> None:
    stage.known = ["alice", "bob", "carol", NASTY]
    stage.meet_peer()
    stage.open_round(1, minimum=3, maximum=6)
    stage.connect("alice", NASTY)
    stage.submit("alice")


def play_compute(stage: Stage) -> None:
    play_day(stage)
    play_computing(stage)


def play_after(stage: Stage) -> None:
    play_compute(stage)
    stage.settle(["alice"], {"bob": "proof"}, evaluating=21.0)


def play_long_names(stage: Stage) -> None:
    """Names and texts as long as they may be, without a place to break them."""
    stage.known = [letter * 64 for letter in "abcdefgh"]
    stage.meet_peer()
    stage.open_round(1_000_000, maximum=100_000)
    stage.connect(*stage.known[:3])
    stage.submit(stage.known[0])
    stage.settle(stage.known[:4], {stage.known[5]: "mismatch"}, aborted="x" * 200)
    stage.open_round(1_000_001)
    stage.tell(Warned(about="store", explanation="/a/very/long/path" * 20))


def play_days_ago(stage: Stage) -> None:
    """Every time has a date."""
    stage.now -= 3 * 86_400
    play_day(stage)


def play_aborted(stage: Stage) -> None:
    play_compute(stage)
    stage.settle([], {}, aborted="S1 was away when the time was over")


def play_peer_gone(stage: Stage) -> None:
    """Two minutes after the other server's death, which struck between two rounds."""
    play_after(stage)
    stage.lose_peer()
    stage.peer_away_since = stage.now - 120


def play_peer_gone_in_round(stage: Stage) -> None:
    play_day(stage)
    stage.lose_peer()


def play_peer_stops(stage: Stage) -> None:
    play_peer_gone(stage)
    stage.peer_stops_since = stage.now - 120


def play_disk_full(stage: Stage) -> None:
    play_compute(stage)
    stage.held_up = ("this server's own store, out of room or of reach", stage.now - 60)
    stage.tell(
        Warned(about="store", explanation="no space left on device; the server waits, and resumes when that is over")
    )


def play_not_ready(stage: Stage) -> None:
    """It was started, has never met the other server, and its store cannot be written."""
    stage.known = ["alice", "bob"]
    stage.store = "no space left on device"
    stage.peer_away_since = stage.now - 300
    stage.held_up = ("this server's own store, out of room or of reach", stage.now - 290)


WORST = {
    "compute": (play_compute, [], "1 past"),
    "aborted": (play_aborted, ["Round 25 was aborted"], "failed"),
    "peer gone": (play_peer_gone, ["S1 is not connected"], "none"),
    "peer gone in a round": (play_peer_gone_in_round, ["S1 is not connected"], "now"),
    "peer stops": (play_peer_stops, ["S1 has stopped as planned"], "none"),
    "disk full": (play_disk_full, ["S0 is held up"], "1 past"),
    "not ready": (play_not_ready, ["S0 is held up", "S1 is not connected"], "none"),
}
"""By scene, what plays it, what stands above all else, and how the steps of the round look."""

SCENES = {
    "long names": play_long_names,
    "peer gone": play_peer_gone,
    "days ago": play_days_ago,
    "before": play_nothing,
    "first round": play_first_round,
    "collect": play_day,
    "compute": play_compute,
    "after": play_after,
    "disk full": play_disk_full,
    "not ready": play_not_ready,
}
SIZES = [(1180, "light"), (768, "dark"), (360, "light")]


@pytest.mark.parametrize("scene", often(2, list(SCENES)))
async def test_it_fits_the_screen_and_can_be_read(window, stage, tmp_path, scene):
    SCENES[scene](stage)
    for width, scheme in SIZES:
        window.resize(width, 900)
        window.prefer(scheme)
        async with page(window, stage, tmp_path):
            await see(window, f"{number('#past tr')} >= {min(len(stage.past), 5)}")
            if stage.known:
                await see(window, f"{number('#names li')} > 0")
            await run(window, "for (const each of document.querySelectorAll('details')) each.open = true")
            await fits(window, width)
            for ratio, who in await run(window, CONTRAST):
                assert ratio >= 4.5, f"{who}: contrast {ratio:.1f}"
            dark = await run(window, "return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", dark)[:3])) < 200) == (scheme == "dark")


@pytest.mark.parametrize("scene", WORST)
async def test_what_waits_or_is_gone_stands_above_all_else(window, stage, tmp_path, scene):
    """Since when, what waits for what and what to do; and the steps of a round are never calmer than that."""
    play, heads, look = WORST[scene]
    play(stage)
    window.resize(390, 844)
    async with page(window, stage, tmp_path):
        shown = await run(
            window, "return [...document.querySelectorAll('#attention > div')].map(each => each.innerText)"
        )
        assert [each.split(" since ")[0].split("\n")[0] for each in shown] == heads
        for each in shown:
            assert " since " in each
            assert "See operations.md, “" in each
        assert await run(window, "return document.getElementById('attention').hidden") == (not heads)
        top = "return document.querySelector('#attention > div, #round').getBoundingClientRect().top"
        assert await run(window, top) < 250, "it is seen without scrolling"
        steps = await run(window, "return [...document.querySelectorAll('#steps li')].map(each => each.className)")
        assert (
            steps
            == {
                "1 past": ["past", "now", ""],
                "failed": ["", "", "now failed"],
                "none": ["", "", ""],
                "now": ["now", "", ""],
            }[look]
        )


async def test_on_a_phone_the_state_comes_first_and_fingerprints_last(window, stage, tmp_path):
    play_day(stage)
    window.resize(390, 844)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} > 4")
        places = await run(
            window,
            "return ['round', 'figures', 'clients', 'history', 'who'].map(id => document.getElementById(id).offsetTop)",
        )
        assert places == sorted(places)
        small = await run(
            window,
            "return [...document.querySelectorAll('button, summary, select, input, a')]"
            ".filter(each => each.offsetParent && !each.matches('.skip'))"
            ".filter(each => Math.min(each.offsetWidth, each.offsetHeight) < 24).map(each => each.outerHTML)",
        )
        assert small == [], "too small to be hit with a finger"


async def test_a_note_is_a_tile(window, stage, tmp_path):
    async with page(window, stage, tmp_path):
        assert await run(window, f"return {text('#figures .note dd')}") == NOTE.text
        assert await run(window, "return document.querySelectorAll('#figures .note').length") == 1


async def test_cards_without_contents_are_left_out(window, stage, tmp_path):
    async with page(window, stage, tmp_path):
        for card in ("problems", "charts", "past-table", "clients-some", "spent", "progress", "states"):
            assert await run(window, f"return document.getElementById('{card}').offsetParent === null"), card
        assert "No client is known yet." in await run(window, f"return {text('#clients-none')}")


async def test_clients_are_found_by_group_and_by_name(window, stage, tmp_path):
    stage.known = [f"phone-{number:03}" for number in range(95)]
    stage.meet_peer()
    stage.open_round(1)
    stage.connect("phone-007", "phone-090")
    stage.submit("phone-007")
    async with page(window, stage, tmp_path):
        await see(window, f"{text('#groups')} === 'Submitted 1Not yet 94Connected 2All 95'")
        assert await run(window, f"return {text('#names')}") == "phone-007 online"
        await run(window, "document.querySelectorAll('#groups button')[1].click()")
        await see(window, f"{text('#page')} === '1 of 3, 94 clients'")
        await run(window, "document.getElementById('next').focus()")
        await trio.to_thread.run_sync(window.enter)
        await see(window, f"{text('#page')} === '2 of 3, 94 clients'")
        stage.submit("phone-090")
        await see(window, f"{text('#page')} === '2 of 3, 93 clients'")
        find = (
            "const box = document.getElementById('search'); box.value = 'E-09'; box.dispatchEvent(new Event('input'))"
        )
        await run(window, find)
        await see(window, f"{number('#names li')} === 4")
        assert await run(window, "return document.getElementById('pager').hidden")
        await run(window, find.replace("E-09", "nobody"))
        await see(window, f"{text('#names')}.includes('Nobody here has “nobody” in the name.')")


async def test_clients_that_ask_and_those_that_are_drawn(window, stage, tmp_path):
    stage.known = ["alice", "bob", "carol"]
    stage.meet_peer()
    stage.asked = 2
    async with page(window, stage, tmp_path):
        assert "Clients ask to take part in round 1: 2 so far." in await run(window, f"return {text('#state')}")
        stage.asked = 0
        stage.drawn = frozenset({"alice", "carol"})
        stage.open_round(1)
        stage.submit("alice")
        await see(window, f"{text('#groups')} === 'Submitted 1Not yet 1Connected 0All 3'")
        await run(window, "document.querySelectorAll('#groups button')[3].click()")
        await see(window, f"{number('#names li')} === 3")
        shown = await run(window, "return [...document.querySelectorAll('#names li')].map(each => each.textContent)")
        assert shown == ["alice submitted, away", "bob not drawn, away", "carol not yet, away"]


async def test_a_round_of_retrievals_speaks_of_no_submissions(window, stage, tmp_path):
    stage.known = ["alice"]
    stage.meet_peer()
    stage.open_round(1, protocol="psr", minimum=0)
    stage.connect("alice")
    async with page(window, stage, tmp_path):
        stage.retrieve("alice")
        await see(window, f"{text('#state')}.includes('1 retrieval answered so far.')")
        assert "Nothing is submitted in this round." in await run(window, f"return {text('#state')}")
        assert await run(window, "return document.getElementById('progress').offsetParent === null")
        await see(window, f"{text('#groups')} === 'All 1Connected 1'")
        states = await run(window, "return [...document.querySelectorAll('#path b')].map(each => each.textContent)")
        assert states == ["Open", "Closed", "Concluded", "Done"]


async def test_an_aborted_round_has_changed_nothing_and_says_so(window, stage, tmp_path):
    stage.meet_peer()
    stage.open_round(1)
    stage.settle([], {}, aborted="too few clients")
    async with page(window, stage, tmp_path):
        steps = await run(window, "return [...document.querySelectorAll('#steps li')].map(each => each.innerText)")
        assert steps == ["Collect\nclients submit", "Compute\nservers add up", "Aborted\nmodel as before"]
        assert await run(window, f"return {number('#steps .past')}") == 0
        assert (await run(window, f"return {text('#state')}")).startswith("Round 1 was aborted: too few clients. Next:")


async def test_times_name_their_zone_and_columns_their_unit(window, stage, tmp_path):
    play_day(stage, rounds=3)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} === 3")
        heads = await run(
            window, "return [...document.querySelectorAll('#past-head th')].map(each => each.textContent)"
        )
        zone = time.strftime("%Z")
        columns = ["Total (s)", "Collecting (s)", "Computing (s)", "Waiting (s)", "Evaluation (s)", f"Settled ({zone})"]
        assert heads[5:] == columns
        since = await run(
            window, "const each = document.querySelector('#since time'); return [each.textContent, each.title]"
        )
        assert re.fullmatch(rf"[-\d: ]+ {zone}", since[0])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", since[1])
        rows = await run(window, "return [...document.querySelectorAll('#past tr')].map(row => row.innerText)")
        for past, row in zip(reversed(stage.past), rows, strict=True):
            assert f"{past.seconds:.0f}" in row.split()
        label = await run(window, "return document.querySelector('#past .timebar').getAttribute('aria-label')")
        assert re.fullmatch(
            r"collecting [\d.]+ s, computing [\d.]+ s, waiting for the other server [\d.]+ s, evaluation [\d.]+ s",
            label,
        )


async def test_the_time_of_the_present_activity_goes_on_between_events(window, stage, tmp_path):
    play_day(stage, rounds=1)
    shown = "Number(document.querySelector('#spent .legend .collecting').textContent.split(' ')[1])"
    async with page(window, stage, tmp_path):
        before = await run(window, f"return {shown}")
        await see(window, f"{shown} > {before}")
        assert await run(window, f"return {text('#spent .legend .computing')}") == "computing 0.0 s"


async def test_a_server_with_several_tasks_shows_one_and_lets_choose(window, stage, tmp_path):
    play_first_round(stage)
    other = Stage(stage.log, now=time.time(), task="spring sale")
    other.known = ["dora"]
    async with page(window, Host(stage, other), tmp_path):
        await see(window, f"{text('#round-title')}.startsWith('Round 1')")
        words = "return [...document.querySelectorAll('#choice option')].map(each => each.textContent)"
        assert await run(window, words) == ["goods, round 1", "spring sale"]
        for width in (1180, 360):
            window.resize(width, 900)
            await fits(window, width)
        choose = "const box = document.getElementById('choice'); box.value = 'spring sale'"
        await run(window, f"{choose}; box.dispatchEvent(new Event('change'))")
        await see(window, f"{text('#round-title')} === 'Before the first round'")
        assert await run(window, "return location.search") == "?task=spring+sale"
        await see(window, f"{text('#groups')} === 'All 1Connected 0' && {text('#names')} === 'dora away'")
        assert "S0 spring sale" in await run(window, "return document.title")


async def test_it_can_be_used_without_seeing_it(window, stage, tmp_path):
    play_day(stage, rounds=2)
    async with page(window, stage, tmp_path):
        await see(window, f"{number('#past tr')} === 2")
        assert await run(window, "return document.documentElement.lang") == "en"
        unnamed = await run(
            window,
            "return [...document.querySelectorAll('button, [role=progressbar], [role=img], [role=region], section')]"
            ".filter(each => !(each.ariaLabel || each.getAttribute('aria-labelledby') || each.textContent.trim()))"
            ".map(each => each.outerHTML)",
        )
        assert unnamed == []
        dangling = await run(
            window,
            "return [...document.querySelectorAll('[aria-labelledby]')]"
            ".map(each => each.getAttribute('aria-labelledby')).filter(id => !document.getElementById(id))",
        )
        assert dangling == []
        assert await run(window, "return document.querySelector('#submissions').getAttribute('aria-valuenow')") == "37"
        levels = await run(window, "return [...document.querySelectorAll('h1, h2, h3')].map(each => each.tagName)")
        assert levels[0] == "H1"
        assert set(levels[1:]) == {"H2", "H3"}
        assert levels[1] == "H2"


CUT_OFF = """
const outside = ({ left, right }) => left < -0.5 || right > innerWidth + 0.5;
const wide = (each) => each.clientWidth > 0 && getComputedStyle(each).display !== 'inline'
  && each.scrollWidth > each.clientWidth + 1;
const high = (each) => each.clientHeight > 0 && getComputedStyle(each).overflowY !== 'visible'
  && each.scrollHeight > each.clientHeight + 1;
return [...document.querySelectorAll('body *')]
  .filter(each => each.offsetParent && !each.closest('svg') && !each.matches('.skip'))
  .filter(each => outside(each.getBoundingClientRect()) || wide(each) || high(each))
  .map(each => each.outerHTML.slice(0, 120));
"""
EMPTY_CARDS = """
const filled = (part) => part.tagName === 'rect' || (part.offsetParent && part.textContent.trim());
return [...document.querySelectorAll('.card')]
  .filter(each => each.offsetParent && ![...each.querySelectorAll('p, li, dd, td, rect')].some(filled))
  .map(each => each.id || each.textContent);
"""
CONTRAST = """
const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const colour = parts(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('body *')]
  .filter(each => [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
  .filter(each => each.offsetParent && !each.closest('svg') && !each.matches('.skip'))
  .map(each => {
    const [a, b] = [light(parts(getComputedStyle(each).color)), light(ground(each))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), each.id || each.className || each.tagName];
  });
"""


# ---- the files themselves


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline():
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r"<script(?![^>]*\bsrc=)", html)
    assert not re.findall(r"\sstyle=|\son\w+=|<style", html)
    for file in PAGE.iterdir():
        words = file.read_text(encoding="utf-8")
        assert re.findall(r"https?://[^\"')\s]+", words) in ([], ["http://www.w3.org/2000/svg"]), file
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", words), file


def test_words_know_every_state_and_reason():
    words = (PAGE / "labels.js").read_text(encoding="utf-8")
    for name in (*(state.__name__ for state in ssa.ACCEPTS), *EXCLUSIONS):
        assert re.search(rf"^  {name}: ", words, re.MULTILINE), name


def test_every_file_is_short_and_says_what_it_keeps_to():
    for file in PAGE.iterdir():
        lines = file.read_text(encoding="utf-8").splitlines()
        assert len(lines) < 300, file
        if file.suffix == ".js":
            heading = [line for line in lines[:3] if line.startswith("// ")]
            assert any("Rule" in line for line in heading), file
