"""A shorter input on which a parser fails in the same way: `python -m tests.system.fuzzing.minimise NAME FILE SHORTER`.

libFuzzer can do this too, but starts an instrumented process for each step. It runs in a process of its own, since an
input may end it.
"""

import sys
import time
import traceback
from pathlib import Path

from .catalogue import parser_named
from .parser import Parser, accepts

SECONDS = 20.0


def symptom(parser: Parser, data: bytes) -> tuple[str, ...]:
    """What a parser fails with, and where; nothing where it does not fail."""
    try:
        accepts(parser, data)
    except Exception as error:  # whatever it may be is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        return type(error).__name__, place.filename, str(place.lineno)
    return ()


def minimised(parser: Parser, data: bytes) -> bytes:
    """The input without what it fails without: runs of bytes are left out, long ones first, while there is time."""
    wanted, deadline = symptom(parser, data), time.monotonic() + SECONDS
    size = len(data) // 2 if wanted else 0
    while size:
        place = 0
        while place < len(data) and time.monotonic() < deadline:
            shorter = data[:place] + data[place + size :]
            if symptom(parser, shorter) == wanted:
                data = shorter
            else:
                place += size
        size //= 2
    return data


if __name__ == "__main__":
    _name, _file, _shorter = sys.argv[1:]
    Path(_shorter).write_bytes(minimised(parser_named(_name), Path(_file).read_bytes()))
