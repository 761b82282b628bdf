"""Memory that is kept: pages that the kernel does not clear again, and a C library that cannot keep any."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from parties.deployment.process_memory import keep_freed_memory
from tests import ROOT

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
