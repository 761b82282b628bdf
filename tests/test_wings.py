"""What a client, a server and the command line load: the core, and no wing of it."""

import subprocess
import sys

from tests import ROOT
from tests.house import WINGS

CORE = "parties.client.client, parties.commands.application, parties.deployment.server, parties.server.server"


def test_the_core_loads_no_wing() -> None:
    wings = [wing.removesuffix(".py").strip("/").replace("/", ".") for wing in WINGS]
    program = f"import {CORE}, sys; print(*sorted(set({wings}) & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.split() == []
