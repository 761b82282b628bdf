"""What strangers cause does not fill the log, and who does not read it stops nobody."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time

import pytest
import trio

from parties.events import ConnectionFailed, Enrolled, RequestRefused, Warned
from parties.operator import Log, ObserverSetup, OperatorObserver, log_writer
from parties.operator.log_lines import EventLog
from parties.operator.log_writer import MOST_WAITING, ThreadedWriter
from parties.operator.repeats import FIRST, MINUTE, MOST_SOURCES, network_of


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failed(origin="203.0.113.9", kind="ConnectionLostError"):
    return ConnectionFailed(origin=origin, kind=kind, explanation="the stream ended after 0 of 4 expected bytes")


def test_one_address_that_connects_and_leaves_makes_a_few_lines_a_minute(paper):
    clock = Clock()
    event_log = EventLog("S0", clock)
    for _ in range(60_000):
        event_log.hear(failed())
        clock.now += 0.001
    clock.now += MINUTE
    event_log.tick()
    assert len(paper.lines) == FIRST + 1
    summary = paper.lines[-1]
    assert (summary["origin"], summary["kind"]) == ("203.0.113.0/24", "ConnectionLostError")
    assert (summary["times"], summary["seconds"]) == (60_000 - FIRST, MINUTE)
    assert summary["explanation"] == failed().explanation
    assert "withheld" not in summary
    event_log.hear(failed())
    assert len(paper.lines) == FIRST + 2  # a new minute


def test_any_number_of_addresses_makes_so_many_lines_and_takes_so_much_memory(paper):
    clock = Clock()
    event_log = EventLog("S0", clock)
    for number in range(100_000):
        event_log.hear(failed(f"{number % 200 + 1}.{number // 200 % 250}.7.9"))
    clock.now += MINUTE
    event_log.tick()
    assert len(paper.lines) <= MOST_SOURCES * (FIRST + 1) + 1
    (others,) = (line for line in paper.lines if line.get("origin") == "others")
    told = sum(line.get("times", 1) for line in paper.lines)
    assert told == 100_000
    assert others["times"] > 90_000


def test_what_clients_and_full_disks_repeat_is_counted_too_and_the_audit_is_not(paper):
    event_log = EventLog("S0", Clock())
    for _ in range(100):
        event_log.hear(RequestRefused(client="mallory", reason="limit", explanation="too many"))
        event_log.hear(Warned(about="store", explanation="the disk is full"))
        event_log.hear(Enrolled(client="c", key="00"))
    events = [line["event"] for line in paper.lines]
    assert events.count("request refused") == events.count("warning") == FIRST
    assert events.count("client enrolled") == 100


@pytest.mark.parametrize(
    ("origin", "network"),
    [("203.0.113.9", "203.0.113.0/24"), ("2001:db8:1:2::/64", "2001:db8:1::/48"), ("memory-3", "memory-3"), ("", "")],
)
def test_addresses_of_one_network_are_one_source(origin, network):
    assert network_of(origin) == network


# ---- nobody reads


def read_all(descriptor, lines):
    with os.fdopen(descriptor, "rb") as stream:
        lines.extend(stream)


def test_a_log_that_nobody_reads_keeps_nobody_waiting_and_says_later_what_is_missing():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        log = Log("S0", "json", "info", stream)
        logger = logging.getLogger("parties.test")
        with log.installed():
            began = time.monotonic()
            for _ in range(8_000):
                logger.warning("x" * 1_000)
            assert time.monotonic() - began < 60
            lines: list[bytes] = []
            reader = threading.Thread(target=read_all, args=(reading, lines))
            reader.start()
        with log.installed():
            logger.warning("again")
    reader.join(10)
    words = [json.loads(line)["event"] for line in lines]
    assert words.pop() == "again"
    losses = [int(line.split()[0]) for line in words if "lines of the log were lost here" in line]
    assert losses, "more was written than waits"
    assert sum(losses) + len(words) - len(losses) == 8_000
    assert sum(map(len, lines)) <= MOST_WAITING + 2**17


def test_a_closed_pipe_stops_nobody():
    reading, writing = os.pipe()
    os.close(reading)
    writer = ThreadedWriter(writing)
    assert writer.write("nobody hears\n")
    writer.finish()
    assert writer.write("nor this\n")
    writer.finish()
    os.close(writing)


def test_a_process_whose_stderr_is_closed_logs_nothing_and_goes_on():
    program = """
import logging
from parties.operator.log import Log
with Log("S0").installed():
    logging.getLogger("parties.test").warning("words")
print("went on")
"""
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_a_pipe_that_does_not_block_loses_no_lines():
    """Whoever shares it may have made it so; its reader is slower than the lines come."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    writer = ThreadedWriter(writing)
    lines = [f"{number:099}\n" for number in range(5_000)]
    for line in lines:
        assert writer.write(line)
    time.sleep(0.1)
    read = []
    with os.fdopen(reading) as stream:
        reader = threading.Thread(target=lambda: read.extend(stream))
        reader.start()
        writer.finish()
        os.close(writing)
        reader.join()
    assert read == lines


async def test_lines_wait_for_room_on_a_full_disk_and_the_operator_is_warned_once(tmp_path, monkeypatch):
    """Three bytes of the first line find room: it goes on after them, and no line is torn or lost."""
    path, room, write = tmp_path / "s0.log", threading.Event(), os.write
    monkeypatch.setattr(log_writer, "ROOM_SECONDS", 0.01)

    def full(descriptor: int, data: bytes) -> int:
        if not room.is_set() and os.fstat(descriptor).st_size >= 3:
            raise OSError(errno.ENOSPC, "no room")
        return write(descriptor, data if room.is_set() else data[:3])

    monkeypatch.setattr(log_writer.os, "write", full)
    with path.open("w") as stream:
        log = Log("S0", "json", "info", stream)
        observer = OperatorObserver(ObserverSetup(0, "goods", log))
        with log.installed():
            for client in ("ada", "bob"):
                observer(Enrolled(client=client, key="00"))
            while not log.problem:  # noqa: ASYNC110 - a thread says it
                await trio.sleep(0.001)
            for _ in range(3):
                observer.lag.take(0.0)
            assert [(each.about, each.times) for each in observer.troubles()] == [("log", 1)]
            room.set()
    assert log.problem == ""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("client") or line["event"] for line in lines] == ["ada", "bob", "warning"]
