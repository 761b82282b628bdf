"""The log: what may stand in a line, how it looks, and that nothing else gets into it."""

import io
import json
import logging
import random
import re
import secrets
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest

from fsl_async.errors import MisuseError
from parties import events as events
from parties.events import ClientMet, Enrolled, PeerLost, Revoked, RoundMoved, RoundSettled, ServerEvent
from parties.operator.log import Log
from parties.operator.log_fields import FIELDS, GUARDS, WITHHELD, admitted, discreet_record, fields_of, plain_text
from parties.operator.log_lines import EVENTS, NAMES_PER_LINE, EventLog, source_of, structured_logger
from parties.server.store_layout import RequestKey, bound_name, dense_name, part_name, round_prefix
from tests.parties.operator import probes
from tests.parties.operator.paper import SAMPLES, Paper
from tests.parties.operator.stage import NASTY, Stage, play_day, settled_round
from tests.support.cases import in_turn
from transport import ForeignPeerError
from transport.preamble import require_magic

PUBLIC_NAMES = {
    "client",
    "party",
    "origin",
    "server",
    "task",
    "clients",
    "excluded",
    "time",
    "level",
    "logger",
    "member",
}
"""Fields of names, which everybody may know and which may look like anything."""


def strange(name: str = "parties.somewhere") -> logging.Logger:
    return logging.getLogger(name)


# ---- what is said


def test_every_happening_has_a_line_whose_fields_all_pass(paper):
    named = {each for each in vars(events).values() if isinstance(each, type) and issubclass(each, ServerEvent)}
    assert {type(sample) for sample in SAMPLES} == named - {ServerEvent}
    for sample in SAMPLES:
        before = len(paper.lines)
        EventLog("S0").hear(sample)
        (line,) = paper.lines[before:]
        assert "withheld" not in line, sample
        assert WITHHELD not in json.dumps(line), sample
        assert line.keys() <= FIELDS.keys()
        assert line["server"] == "S0"
        assert line["event"] != type(sample).__name__, f"{sample} has no words of its own"
        assert line["time"].endswith("+00:00")


def test_details_are_written_at_their_level_alone(paper):
    logging.getLogger(EVENTS).setLevel(logging.INFO)
    for sample in SAMPLES:
        EventLog("S0").hear(sample)
    logging.getLogger(EVENTS).setLevel(logging.NOTSET)
    assert {"info", "warning", "error"} == {line["level"] for line in paper.lines}


def test_what_is_counted_in_a_minute_is_no_detail():
    """Details are dropped before anybody looks whether too many came."""
    assert {sample.level for sample in SAMPLES if source_of(sample)} == {"info", "warning"}


def test_a_field_of_a_line_has_one_guard():
    for event in {type(sample) for sample in SAMPLES} - {RoundSettled}:
        for _, name, kind in fields_of(event):
            assert FIELDS[name] is GUARDS[kind], f"{event.__name__}: {name}"


def test_a_line_says_who_when_and_which_round(paper):
    EventLog("S1").hear(SAMPLES[4])
    (line,) = paper.lines
    assert list(line)[:3] == ["time", "level", "event"]
    assert (line["level"], line["event"], line["server"], line["round"], line["client"]) == (
        "debug",
        "submission in",
        "S1",
        3,
        "alice",
    )


def test_a_settled_round_is_audited_with_everybody_and_why(paper):
    past = settled_round(9, ["a", "b"], {"c": "proof", "d": "mismatch"}, "", 10.0, 14.5, 2.0)
    EventLog("S0").hear(RoundSettled(past=past))
    (line,) = paper.lines
    assert line["logger"] == "parties.audit"
    assert line["clients"] == ["a", "b"]
    assert line["excluded"] == {"c": "proof", "d": "mismatch"}
    assert (line["counted"], line["not_counted"], line["seconds"], line["evaluating"]) == (2, 2, 4.5, 2.0)


def test_a_large_round_is_audited_in_several_lines_that_name_everybody_once(paper):
    counted = [f"c{number}" for number in range(2 * NAMES_PER_LINE + 7)]
    lost = {f"x{number}": "only_s0" for number in range(30)}
    EventLog("S0").hear(RoundSettled(past=settled_round(9, counted, lost, "", 1.0, 2.0, 0.1)))
    assert [(line["part"], line["parts"]) for line in paper.lines] == [(1, 3), (2, 3), (3, 3)]
    assert sorted(name for line in paper.lines for name in line["clients"]) == sorted(counted)
    assert {name: why for line in paper.lines for name, why in line["excluded"].items()} == lost


# ---- levels and forms


def test_the_level_changes_while_the_server_runs(paper):
    paper.log.set_level("warning")
    EventLog("S0").hear(RoundMoved(number=1, state="Closed"))
    strange().info("quiet")
    assert paper.lines == []
    paper.log.set_level("DEBUG")
    assert paper.log.level == "debug"
    EventLog("S0").hear(RoundMoved(number=1, state="Closed"))
    strange().debug("loud")
    assert [line["event"] for line in paper.lines] == ["round moved", "loud"]


def test_the_audit_is_written_at_every_level(paper):
    paper.log.set_level("error")
    for sample in (Enrolled(client="c", key="00"), Revoked(client="c"), SAMPLES[7], SAMPLES[19], SAMPLES[0]):
        EventLog("S0").hear(sample)
    assert [line["event"] for line in paper.lines] == [
        "client enrolled",
        "client revoked",
        "round done",
        "protocol violated",
    ]


def test_clients_are_named_at_the_levels_that_the_operator_chooses_and_at_no_other():
    """Whatever happens, and whoever logs it; servers are named all the same."""
    stream = io.StringIO()
    log = Log("S0", "json", "info", stream, names="debug")
    named = (*SAMPLES, events.Warned(about="clients", explanation="alice is refused"))
    with log.installed():
        hear(log, named)
        logging.getLogger("parties.enrolment").warning("%s: %r has enrolled", "S0", "alice")
        assert not re.search("alice|bob|carol|203.0.113", stream.getvalue())
        assert '"party": "S1"' in stream.getvalue()
        assert '"counted": 1' in stream.getvalue()
        log.set_level("debug")
        hear(log, named)
        logging.getLogger("parties.enrolment").warning("%s: %r has enrolled", "S0", "alice")
    for name in ("alice", "bob", "carol", "203.0.113.9", "'alice' has enrolled"):
        assert name in stream.getvalue()


def hear(log: Log, happened: Iterable[events.ServerEvent]) -> None:
    lines = EventLog("S0", task="goods")
    for event in happened:
        lines.hear(event)


def test_an_unknown_level_is_refused_with_the_known_ones(paper):
    with pytest.raises(MisuseError, match="one of debug, info, warning, error expected, got 'loud'"):
        paper.log.set_level("loud")
    with pytest.raises(MisuseError, match="log level"):
        Log(level="")


@pytest.mark.parametrize(
    ("form", "terminal", "json_lines"), [("auto", True, 0), ("auto", False, 1), ("json", True, 1), ("human", False, 0)]
)
def test_people_read_lines_and_machines_read_json(form, terminal, json_lines):
    paper = Paper(form, terminal=terminal)
    with paper.log.installed():
        EventLog("S0").hear(PeerLost(explanation="gone"))
    assert paper.text.startswith("{") == bool(json_lines)
    assert ("\x1b[" in paper.text) == (terminal and not json_lines), "colours are for terminals"
    assert "gone" in paper.text
    assert paper.text.count("\n") == 1


def test_the_log_is_gone_when_its_block_ends():
    paper, logger = Paper(), logging.getLogger("parties")
    level, handlers = logger.level, list(logger.handlers)
    with paper.log.installed():
        pass
    paper.log.set_level("debug")
    strange().error("afterwards")
    assert paper.text == ""
    assert (logger.level, logger.handlers) == (level, handlers)


def test_a_level_that_was_set_before_holds_when_it_is_installed():
    paper = Paper(level="debug")
    paper.log.set_level("error")
    with paper.log.installed():
        strange().warning("no")
        strange().error("yes")
    assert [line["event"] for line in paper.lines] == ["yes"]


def test_other_packages_are_left_alone(paper):
    strange("numba.core").warning("a thousand lines of it")
    assert paper.text == ""


# ---- what never stands in it


def test_a_field_that_is_not_on_the_list_does_not_pass_and_is_named(paper):
    structured_logger(EVENTS, "S0").info("careless", seed=b"0123456789abcdef", rows=[1, 2], client="alice")
    (line,) = paper.lines
    assert line["withheld"] == ["rows", "seed"]
    assert line["client"] == "alice"
    assert "0123" not in paper.text


@in_turn(
    "name, value",
    [
        ("round", b"1"),
        ("round", True),
        ("round", 2**127),
        ("seconds", float("nan")),
        ("seconds", np.float64(0.125)),
        ("bytes", np.int64(7)),
        ("total", np.arange(3)),
        ("explanation", b"bytes"),
        ("explanation", 17),
        ("client", 17),
        ("clients", "alice"),
        ("clients", ["alice", 3]),
        ("excluded", {"alice": 3}),
        ("key", memoryview(b"x")),
        ("seed", "harmless?"),
    ],
)
def test_a_value_of_another_kind_than_its_fields_does_not_pass(name, value):
    assert admitted(name, value) == WITHHELD


def test_arguments_of_ordinary_log_calls_are_words_and_numbers_or_withheld(paper):
    hidden = [
        b"secretsecret",
        bytearray(b"secretsecret"),
        np.array([0.73162]),
        [73162],
        {"seed": 73162},
        np.float64(0.73162),
    ]
    for value in hidden:
        strange().warning("got %s and %r from %s", value, value, "alice")
        assert paper.lines[-1]["event"] == f"got {WITHHELD} and '{WITHHELD}' from alice"
    strange().warning("%(seed)s", {"seed": b"secretsecret"})
    strange().warning({"seed": "secretsecret"})
    strange().warning("extra", extra={"seed": "secretsecret"})
    assert "73162" not in paper.text
    assert "secretsecret" not in paper.text
    strange().warning("%s: %d of %.1f", MisuseError("fine"), 3, 2.5)
    assert paper.lines[-1]["event"] == "fine: 3 of 2.5"


def test_an_error_is_written_with_its_places_and_without_what_its_variables_held(paper):
    def fail(seed: bytes) -> None:
        raise MisuseError(f"cannot use {seed!r} {seed.hex()}")

    for form in ("json", "human"):
        paper = Paper(form)
        with paper.log.installed():
            try:
                fail(b"\x07secretsecretsecret")
            except MisuseError:
                strange().exception("failed")
        assert "MisuseError: cannot use" in paper.text
        assert "fail (test_log.py:" in paper.text
        assert "secret" not in paper.text
        assert b"secret".hex() not in paper.text


def test_what_strangers_say_cannot_begin_a_line_or_move_the_cursor(paper):
    words = 'gone"}\n{"event": "forged", "level": "info"}\r\x1b[2J\x07\u202e\u2028end'
    EventLog("S0").hear(PeerLost(explanation=words))
    EventLog("S0").hear(ClientMet(client="a\nb"))
    human = Paper("human")
    with human.log.installed():
        EventLog("S0").hear(PeerLost(explanation=words))
        strange().warning("%s", words)
    assert len(paper.lines) == 4  # two of ours, two that came to both
    assert len(human.text.splitlines()) == 2
    for character in "\r\x1b\x07\u202e\u2028":
        assert character not in human.text
        assert character not in paper.text


def test_arguments_that_do_not_fit_their_places_are_withheld():
    record = logging.LogRecord("parties", logging.INFO, "", 0, "%d of %d bytes", (b"secretsecret", 7), None)
    assert discreet_record(record).getMessage() == f"%d of %d bytes {WITHHELD}"
    assert record.args == (b"secretsecret", 7), "other handlers' record is not touched"


@pytest.mark.parametrize("size", [16, 32, 64])
def test_keys_in_running_text_are_withheld_in_every_form(size):
    chance = random.Random(size)
    for _ in range(300):
        secret = chance.randbytes(size)
        texts = probes.written_forms(secret)
        assert not probes.found_in(plain_text(" and ".join(texts)), [secret])
        assert plain_text(f"key {secret.hex()} of alice") == f"key {WITHHELD} of alice"


def test_ordinary_words_pass_as_they_are():
    words = (
        f"S1: HandshakeTimeoutErrorWhileWaiting for {NASTY}; round 0011223344556677, 127.0.0.1:9464, 12,345,678 bytes"
    )
    assert plain_text(words) == words


@pytest.mark.parametrize("client", ["anna", "AnnaFromTheNorthHospital2", "Zoë, or a.b/c"])
def test_the_name_of_a_blob_passes_and_no_key_beside_it_does(client):
    key = RequestKey(client, "submit", 0)
    digest = bytes(range(200, 232))
    for name in (
        part_name(round_prefix(7), key, digest),
        dense_name(round_prefix(7), client, digest),
        bound_name(round_prefix(7), client, digest),
    ):
        assert plain_text(f"the blob {name} is damaged") == f"the blob {name} is damaged"
        for beside in (f"{name}{digest.hex()}", f"{digest.hex()} {name}"):
            assert digest.hex() not in plain_text(beside).replace(name, "")


def test_whom_a_stranger_is_taken_for_is_not_withheld():
    with pytest.raises(ForeignPeerError) as caught:
        require_magic(b"HTTP")
    assert plain_text(str(caught.value)).startswith(r"the peer opened with 'HTTP' instead of '\x1fFS\n'")


def test_a_long_text_is_cut_and_read_in_little_time():
    assert len(plain_text("A" * 10_000_000)) < 2_100
    assert len(plain_text("aB3" * 3_000_000)) < 2_100


def test_a_whole_day_at_debug_has_json_in_every_line(paper):
    stage = Stage(paper.log)
    play_day(stage, rounds=3)
    events = {line["event"] for line in paper.lines}
    assert {"round opened", "submission in", "submission evaluated", "message received", "round done"} <= events
    assert not [line for line in paper.lines if "withheld" in line]


def test_the_guards_hold_for_random_fields_and_values(paper):
    seed = secrets.randbits(32)
    chance = random.Random(seed)
    secret = chance.randbytes(16)
    values = [secret, [secret], {"x": secret}, msgspec.Raw(secret), None, *probes.written_forms(secret)]
    values += [int.from_bytes(secret, "big"), int.from_bytes(secret, "little")]
    names = [*sorted(FIELDS.keys() - PUBLIC_NAMES), "seed", "share", "value", "row", "msk", "exc_info_"]
    for _ in range(500):
        fields = {chance.choice(names): chance.choice(values) for _ in range(4)}
        fields.pop("event", None)
        structured_logger(EVENTS, "S0").info("x", **fields)
    assert not probes.found_in(paper.text, [secret]), f"seed {seed}"
    assert len(paper.lines) == 500
