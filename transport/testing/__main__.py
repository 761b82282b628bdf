"""Runs the suite on a transport: `python -m transport.testing my_package.my_module:MyTransport ADDRESS`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module

from transport.listener import Transport
from transport.testing import CASES, ConformanceError


def main(arguments: list[str]) -> int:
    """Run all cases, say of each whether it passed, and return how many failed."""
    parser = argparse.ArgumentParser(prog="python -m transport.testing", description=__doc__)
    parser.add_argument("transport", metavar="MODULE:NAME", help="what makes the transport: a class or a function")
    parser.add_argument("address", help="where it can listen")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    given = parser.parse_args(arguments)
    sys.path.insert(0, "")
    try:
        make = _named(given.transport)
    except (Exception, SystemExit) as error:  # an import runs whatever the module holds
        parser.error(
            f"{given.transport!r} cannot be made ({type(error).__name__}: {error}); it is written MODULE:NAME, of a "
            "class or a function that needs no arguments, and the module is in this folder, installed, or in a folder "
            "of PYTHONPATH"
        )
    cases = [case for case in CASES if given.only.replace(" ", "_") in case.name]
    if not cases:
        parser.error(f"no case has {given.only!r} in its name; without --only, all are run, and named")
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


def _named(name: str) -> Callable[[], Transport]:
    """What makes the transport; it has made one.

    Raises:
        TypeError: what it makes is no transport.
    """
    module, _, attribute = name.partition(":")
    make: Callable[[], Transport] = getattr(import_module(module), attribute)
    if not isinstance(made := make(), Transport):
        raise TypeError(f"{made!r} is no transport.Transport")
    return make


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
