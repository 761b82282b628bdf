"""Nothing but its own package needs PyTorch, and that says what to install."""

import subprocess
import sys

from tests import ROOT

OTHERS = ("fsl_async", "fsl_async.learning", "parties")
WITHOUT_IT = "import sys; sys.modules['torch'] = None; "


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_error_names_the_extra():
    done = run(WITHOUT_IT + "import fsl_async.learning.pytorch")
    assert 'needs PyTorch, which is not installed: pip install "fsl-async[torch]"' in done.stderr


def test_no_other_package_imports_it():
    names = "; ".join(f"import {of}; [getattr({of}, name) for name in {of}.__all__]" for of in OTHERS)
    done = run(f"import sys; {names}; print('torch' in sys.modules)")
    assert (done.stdout.strip(), done.stderr) == ("False", "")
