"""docs/testing.md: its code is run as one project of a user's, and its picture can be read."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from parties.testing import faults, round_faults
from tests import ROOT
from tests.support import guide

PAGE = ROOT / "docs" / "testing.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_code_of_the_page_is_a_file_of_tests_that_pass(tmp_path: Path) -> None:
    conftest, *code = [content for language, content in guide.FENCE.findall(TEXT) if language == "python"]
    assert len(code) >= 4
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "test_page.py").write_text("\n\n".join(code), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_page.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


def test_every_fault_that_a_test_may_plan_is_on_the_page() -> None:
    others = {"Late", "Straggle", "OldCopy", "MaliciousClient", "MaliciousServer", "FaultBase", "PartyFault", "_Value"}
    kinds = [each for module in (faults, round_faults) for each in vars(module).values() if isinstance(each, type)]
    for name in {each.__name__ for each in kinds if issubclass(each, faults._Value)} - others:
        assert f"`{name}" in TEXT, name


def test_the_picture_is_one() -> None:
    root = ElementTree.parse(ROOT / "docs" / "images" / "sequence-chart.svg").getroot()
    words = "".join(root.itertext())
    for word in ("S0", "S1", "Commitment", "starts again, life 2", "round 1 settled"):
        assert word in words
