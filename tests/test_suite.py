"""The suite itself: an interrupt reaches it however it was started, and no test may hang without end."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

from tests import ROOT


def test_an_interrupt_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    child = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    ended = subprocess.run([sys.executable, "-c", child], capture_output=True, check=False, timeout=60)
    assert ended.returncode == -signal.SIGINT


def test_an_interrupt_is_heard_where_whoever_starts_us_ignores_it() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "heard and not where"]
    deaf = f"trap '' INT; exec {shlex.join(command)}"
    ended = subprocess.run(["/bin/sh", "-c", deaf], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert "1 passed" in ended.stdout, ended.stdout


def test_no_test_may_take_for_ever(pytestconfig: pytest.Config) -> None:
    assert 60 <= float(pytestconfig.getini("timeout")) <= 600
