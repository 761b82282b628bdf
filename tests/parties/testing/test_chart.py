"""Sequence charts: what they show, how they are cut down, and that both kinds can be read."""

from xml.etree import ElementTree

import pytest

from fsl_async.wire.messages import Abort, AskTask, Forward, Refused
from parties.events import BudgetMoved, RoundMoved, RoundOpened, Violated, Warned
from parties.testing import AtCommit, AtTime, Chart, Crash, Cut, World
from parties.testing.chart.rows import Arrow, Mark, size_text
from parties.testing.round_legend import RoundLegend
from parties.testing.story import Began, Entry, Failed, Killed, Left
from parties.watch import Note
from tests.parties.testing import small_world

SEED = 4
FAULTS = [Crash("S1", AtTime(0.4), down=2.5), Cut("client 0", connection=1, outward=True, after=40, lost=False)]
ROUND = b"\x07" * 32


@pytest.fixture(scope="module")
def world() -> World:
    return small_world.one_round(SEED, FAULTS)


@pytest.fixture(scope="module")
def chart(world: World) -> Chart:
    return Chart.of(world)


def story(*told: object) -> list[Entry]:
    """One instant after another, on S0's part; of a message, on its sender's."""
    return [Entry(float(at), getattr(what, "sender", "S0"), what) for at, what in enumerate(told)]  # type: ignore[arg-type]


def of_story(entries: list[Entry]) -> Chart:
    return Chart.of_story(entries, RoundLegend())


def opened(number: int, round_id: bytes) -> RoundOpened:
    return RoundOpened(number=number, round_id=round_id, protocol="ssa", closes_at=float("inf"))


# ---- what it shows


def test_every_message_has_an_arrow_in_the_order_of_the_transcript(world: World, chart: Chart) -> None:
    arrows = [(row.at, row.drawn.sender, row.drawn.receiver) for row in chart.rows if isinstance(row.drawn, Arrow)]
    assert arrows == [(at, note.sender, note.receiver) for at, note in world.transcript]
    assert len(arrows) > 20


def test_the_servers_stand_at_the_edges_and_time_runs_downwards(chart: Chart) -> None:
    assert chart.parties[0] == "S0"
    assert chart.parties[-1] == "S1"
    assert sorted(chart.parties[1:-1]) == ["client 0", "client 1"]
    times = [row.at for row in chart.rows]
    assert times == sorted(times)


def test_crashes_and_what_servers_tell_are_marks(chart: Chart) -> None:
    marks = [(row.drawn.party, row.drawn.text) for row in chart.rows if isinstance(row.drawn, Mark)]
    for mark in [
        ("S1", "crash at 0.4 s"),
        ("S1", "killed, for 2.5 s"),
        ("S1", "starts again, life 2"),
        ("client 0", "connection 1 cut after 40 B out"),
        ("S0", "round 1 opens"),
        ("S0", "round 1 settled: client 0, client 1"),
    ]:
        assert mark in marks


def test_a_line_is_interrupted_while_a_process_is_dead(chart: Chart) -> None:
    dead = [row.at for row in chart.rows if "S1" not in row.running]
    assert 0.4 in dead
    assert all(at == 0.0 or 0.4 <= at <= 2.9 for at in dead)
    texts = [line for line in chart.text().splitlines() if line.strip().startswith("0.4")]
    assert texts[0].endswith("crash at 0.4 s !")
    after_death = chart.only(begin=0.5, end=2.8).text().splitlines()[1:-1]
    assert len(after_death) > 5
    assert all(len(line) <= 97 for line in after_death), "S1 has no line while it is dead"


def test_what_messages_tell_already_has_no_row() -> None:
    assert not RoundLegend().shown(BudgetMoved(used=1, limit=2))
    assert RoundLegend().shown(RoundMoved(number=1, state="Closed"))


def test_arrows_tell_more_where_there_is_more() -> None:
    notes = [
        Note("S0", "S1", Forward(round_id=ROUND, client="anna", purpose="submit", query=1), 9_000),
        Note("S0", "anna", Refused(reason="busy", explanation="later"), 0),
        Note("anna", "S1", AskTask(), 0),
    ]
    labels = [row.drawn.label for row in of_story(story(*notes)).rows if isinstance(row.drawn, Arrow)]
    assert labels == ["Forward anna", "Refused busy", "AskTask"]


def test_sizes_are_those_of_whole_messages(world: World, chart: Chart) -> None:
    bulks = [note.bulk for _, note in world.transcript]
    sizes = [row.drawn.size for row in chart.rows if isinstance(row.drawn, Arrow)]
    assert all(bulk < size <= bulk + 1000 for bulk, size in zip(bulks, sizes, strict=True))


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (123_456, "123 kB"), (7_250_000, "7.2 MB")],
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_text(size) == words


# ---- parts of it


def test_the_part_of_a_round() -> None:
    other = b"\x08" * 32
    chart = of_story(
        story(
            Began(1),
            opened(1, ROUND),
            Note("S0", "S1", Abort(ROUND, "why"), 0),
            Note("anna", "S0", AskTask(), 0),
            opened(2, other),
            Note("S0", "S1", Abort(other, "why"), 0),
            Note("anna", "S0", AskTask(), 0),
            Note("S1", "S0", Abort(ROUND, "late"), 0),
            Left(),
        )
    )
    assert [row.at for row in chart.only(number=1).rows] == [1, 2, 3, 6, 7]
    assert [row.at for row in chart.only(number=2).rows] == [4, 5]
    assert chart.only(number=3).rows == ()


def test_the_part_of_some_parties_and_of_a_time(chart: Chart) -> None:
    servers = chart.only(parties=["S1", "S0"])
    assert servers.parties == ("S0", "S1")
    assert {party for row in servers.rows for party in row.parties} == {"S0", "S1"}
    early = chart.only(begin=0.1, end=0.4)
    assert early.rows
    assert all(0.1 <= row.at <= 0.4 for row in early.rows)


def test_the_last_rows_say_how_many_were_before(chart: Chart) -> None:
    last = chart.last(5)
    assert last.rows == chart.rows[-5:]
    assert f"({len(chart.rows) - 5} rows before)" in last.text()
    assert f"{len(chart.rows) - 5} before" in last.svg()
    assert chart.last(10**6) == chart
    assert last.last(2).omitted == len(chart.rows) - 2


# ---- text


def test_text_of_seven_parties_fits_100_columns() -> None:
    chart = Chart.of(small_world.one_round(SEED, clients=5))
    lines = chart.text().splitlines()
    assert len(chart.parties) == 7
    assert max(map(len, lines)) <= 100
    assert len(lines) == len(chart.rows) + 2
    for row, line in zip(chart.rows, lines[1:-1], strict=True):
        if isinstance(row.drawn, Arrow):
            assert row.drawn.label.split()[0] in line, "the name of every message can be read"
            assert size_text(row.drawn.size) in line
            assert sum(head in line for head in "►◄×") == 1


@pytest.mark.parametrize("count", [0, 1, 2, 9, 40])
def test_text_and_picture_of_any_number_of_parties(count: int) -> None:
    notes = [Note(f"somebody with a long name {number}", "S1", AskTask(), 0) for number in range(count)]
    chart = of_story(story(Began(1), *notes))
    assert chart.text().count("AskTask") == count
    assert chart.svg().count("AskTask") == count


def test_a_chart_of_nothing_can_be_drawn() -> None:
    assert "S0" in str(of_story([]))
    assert of_story([]).only(parties=["nobody"]).text()
    ElementTree.fromstring(of_story([]).svg())


def test_long_words_are_cut_where_the_room_ends() -> None:
    told = Warned(about="disk", explanation="long " * 100)
    (line,) = of_story(story(told)).text().splitlines()[1:-1]
    assert len(line) <= 100
    assert "…" in line


def test_the_text_of_a_story() -> None:
    chart = of_story(
        [
            Entry(0.0, "S0", Began(1)),
            Entry(0.0, "S1", Began(1)),
            Entry(0.25, "anna", Note("anna", "S0", AskTask(), 0)),
            Entry(0.25, "S0", Killed(down=float("inf"))),
            Entry(1.5, "S1", Note("S1", "anna", AskTask(), 123_000)),
            Entry(2.0, "anna", Failed(ValueError("no"))),
        ]
    )
    assert chart.text(width=70).splitlines() == [
        "  seconds   S0                        anna                         S1",
        "    0.000   ○ starts",
        "            │                                               starts ○",
        "    0.250   │◄───── AskTask 15 B ──────┤                           │",
        "            × killed, for good         │                           │",
        "    1.500                              │◄──── AskTask 123 kB ──────┤",
        "    2.000                              × ends: ValueError: no      │",
        "  seconds   S0                        anna                         S1",
    ]


# ---- pictures


def test_the_picture_is_xml_with_everything_in_it_as_text(chart: Chart) -> None:
    svg = chart.svg(title="A <round> & more")
    root = ElementTree.fromstring(svg)
    space = {"svg": "http://www.w3.org/2000/svg"}
    texts = ["".join(text.itertext()) for text in root.iterfind("svg:text", space)]
    for name in chart.parties:
        assert name in texts
    arrows = [row.drawn for row in chart.rows if isinstance(row.drawn, Arrow)]
    for arrow in arrows:
        assert f"{arrow.label} {size_text(arrow.size)}" in texts
    assert len(root.findall("svg:polygon", space)) == sum(not arrow.lost for arrow in arrows)
    assert root.findtext("svg:title", namespaces=space) == "A <round> & more"


def test_the_picture_needs_no_other_file_and_knows_dark_pages(chart: Chart) -> None:
    svg = chart.svg()
    assert "prefers-color-scheme: dark" in svg
    assert svg.count("http") == 1, "the name space alone"
    assert "@import" not in svg
    assert "url(" not in svg


def test_words_of_peers_cannot_spoil_the_picture() -> None:
    told = Violated(number=1, about='<script>"&\x00\x1b', kind="conflict", explanation="")
    root = ElementTree.fromstring(of_story(story(told)).svg())
    words = ["".join(text.itertext()) for text in root.iter() if text.tag.endswith("}text")]
    assert any('<script>"&\ufffd\ufffd' in text for text in words)


def test_faults_at_commits_are_named_by_their_point() -> None:
    told = Crash("S0", AtCommit(7, "before sync"), down=1.0)
    (row,) = of_story(story(told)).rows
    assert isinstance(row.drawn, Mark)
    assert row.drawn.text == "crash at commit 7, before sync"
