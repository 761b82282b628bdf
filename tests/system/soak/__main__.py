"""All of it, one command after the other: `python -m tests.system.soak`.

Each command shows its own progress and tables; a table of what became of them comes last. The exit code is that of the
worst. What each of them told goes to stdout, one line of JSON each.
"""

import argparse
import subprocess
import sys
import time

from rich.table import Table

from .children import python_module
from .telling import console

COMMANDS = ("kills", "hostile", "memory")


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=COMMANDS, action="append", help="this one; may be given several times")
    options = parser.parse_args()
    table = Table("command", "exit code", "seconds", title="soak")
    codes = []
    for command in options.only or COMMANDS:
        started = time.monotonic()
        codes.append(subprocess.run(python_module(f"tests.system.soak.{command}"), check=False).returncode)
        table.add_row(command, str(codes[-1]), f"{time.monotonic() - started:.0f}")
    console().print(table)
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
