"""A server's process gives back the code that only its start needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fsl_async import kernels
from parties.footprint import give_back_code

STATUS = Path("/proc/self/status")


def _file_bytes() -> int:
    line = next(line for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith("RssFile:"))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not STATUS.exists(), reason="the system does not tell what a process holds: not Linux")
def test_code_is_given_back_and_the_process_works_on() -> None:
    before, answer = _file_bytes(), kernels.keystream(bytes(16), nonce=7, count=100)
    give_back_code()
    after = _file_bytes()
    assert before - after > 8 * 2**20, f"{before:,} bytes of files before, {after:,} after"
    assert kernels.keystream(bytes(16), nonce=7, count=100).tobytes() == answer.tobytes()
    assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")


def test_nothing_happens_where_the_system_has_no_list_of_mappings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.footprint.MAPPINGS", Path("/nowhere/maps"))
    give_back_code()
