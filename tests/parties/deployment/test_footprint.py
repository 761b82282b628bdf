"""A server's process gives back the code that only its start needed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from fsl_async import kernels
from parties.deployment.footprint import give_back_code
from tests import ROOT

STATUS = Path("/proc/self/status")


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
    monkeypatch.setattr("parties.deployment.footprint.MAPPINGS", Path("/nowhere/maps"))
    give_back_code()
