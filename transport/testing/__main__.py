"""Runs the suite on a transport: `python -m transport.testing my_package.my_module:MyTransport ADDRESS`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from transport.testing import CASES, ConformanceError


def main(arguments: list[str]) -> int:
    """Run all cases, say of each whether it passed, and return how many failed."""
    parser = argparse.ArgumentParser(prog="python -m transport.testing", description=__doc__)
    parser.add_argument("transport", metavar="MODULE:NAME", help="what makes the transport: a class or a function")
    parser.add_argument("address", help="where it can listen")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    given = parser.parse_args(arguments)
    module, _, name = given.transport.partition(":")
    sys.path.insert(0, "")
    make = getattr(import_module(module), name)
    cases = [case for case in CASES if given.only in case.name]
    failed = 0
    for case in cases:
        try:
            case.run(make, given.address)
            told = "ok"
        except ConformanceError as error:
            failed += 1
            told = f"FAILED: {error}"
        sys.stdout.write(f"{case.name.replace('_', ' '):<56} {told}\n")
    sys.stdout.write(f"{len(cases) - failed} of {len(cases)} passed\n")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
