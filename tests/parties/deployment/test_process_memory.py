"""A server's process keeps the memory that it soon needs again, and gives back the code that only its start needed."""

import ctypes
import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fsl_async import kernels
from parties.deployment import process_memory
from parties.deployment.process_memory import give_back_code, keep_freed_memory, room_for_parts
from parties.server.storage import HELD_BYTES
from tests import ROOT

STATUS = Path("/proc/self/status")

TIMES, PIECES, SIZE = 10, 8, 2**21
PAGES = TIMES * PIECES * SIZE // 4096

FRESH_PAGES = f"""
import resource, sys, threading
from parties.deployment.process_memory import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
counted = []
def touch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({TIMES}):
        [b"x" * {SIZE} for _ in range({PIECES})]
    counted.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
for _ in range(2):  # the second one finds what the first one has left
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()
print(counted[-1])
"""


def fresh_pages(how: str) -> int:
    command = [sys.executable, "-c", FRESH_PAGES, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library keeps no memory when asked")
def test_pages_are_used_again_by_whatever_thread():
    assert fresh_pages("kept") < PAGES / 20 < PAGES / 2 < fresh_pages("left alone")


def test_a_library_that_cannot_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    keep_freed_memory()


def _file_bytes() -> int:
    line = next(line for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith("RssFile:"))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell what a process holds: not Linux")
def test_code_is_given_back_and_the_process_works_on() -> None:
    """In a process of its own: in this one it may have been given back before."""
    program = f"from {__name__} import give_back_and_work_on; give_back_and_work_on()"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def give_back_and_work_on() -> None:
    answer = kernels.keystream(bytes(16), nonce=7, count=100)
    before = _file_bytes()
    give_back_code()
    after = _file_bytes()
    assert before - after > 8 * 2**20, f"{before:,} bytes of files before, {after:,} after"
    assert kernels.keystream(bytes(16), nonce=7, count=100).tobytes() == answer.tobytes()
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")


def test_nothing_happens_where_the_system_has_no_list_of_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.deployment.process_memory.MAPPINGS", Path("/nowhere/maps"))
    give_back_code()


@pytest.mark.parametrize(
    ("there", "room"), [("1000", HELD_BYTES), ("16777216", 2**30), ("", HELD_BYTES)], ids=["little", "much", "unknown"]
)
def test_room_for_parts_is_a_share_of_the_memory(
    there: str, room: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if there:
        (tmp_path / "meminfo").write_text(f"MemTotal: {there} kB\nMemAvailable: 1 kB\n")
    monkeypatch.setattr(process_memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(process_memory, "CGROUP_LIMIT", tmp_path / "max")
    assert room_for_parts() == room
