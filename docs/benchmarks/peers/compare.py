"""Compare this library with every driver that stands built in a folder: `python compare.py FOLDER [OPTION ...]`.

A driver that was built keeps its source's name: FOLDER/dkales, FOLDER/libote, FOLDER/google, FOLDER/myl7. Those that
are missing are named and left out; whatever else is given goes to `python -m tests.bench peers`. Nothing is built here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from parties.commands.application import main

DRIVERS = ("dkales", "libote", "google", "myl7")


def command(folder: Path, options: list[str]) -> list[str]:
    """The command line for the drivers that are there; ours alone where there are none."""
    built = [name for name in DRIVERS if (folder / name).is_file()]
    for name in DRIVERS:
        if name not in built:
            sys.stderr.write(f"{folder / name} is not there and is left out; README.md says how to build it\n")
    peers = [word for name in built for word in ("--peer", f"{name}={folder / name}")]
    return ["bench", "peers", *(peers or ["--alone"]), *options]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python compare.py FOLDER [OPTION ...]")
    sys.argv[1:] = command(Path(sys.argv[1]), sys.argv[2:])
    main()
