"""`python -m examples.secagg`: measure both, and write docs/comparison-secagg.{json,svg,md}."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.secagg.report import write
from examples.secagg.run import FLOWER, REPEATS, SIZES, compare
from examples.secagg.side import ROOT, SideFailedError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0 when everything was written."""
    parser = argparse.ArgumentParser(prog="python -m examples.secagg", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="rounds for each cell")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="weights of the models")
    parser.add_argument("--flower", type=Path, default=FLOWER, help="the interpreter that has flwr")
    parser.add_argument("--write", type=Path, default=ROOT / "docs", help="where the page goes")
    parser.add_argument("--page", action="store_true", help="write page and chart of what was measured before")
    options = parser.parse_args(arguments)
    measured = options.write / "comparison-secagg.json"
    if not options.page:
        try:
            result = compare(options.sizes, options.repeats, options.flower, lambda line: print(line, file=sys.stderr))
        except SideFailedError as error:
            print(error, file=sys.stderr)
            return 1
        measured.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for path in write(json.loads(measured.read_text(encoding="utf-8")), options.write):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
