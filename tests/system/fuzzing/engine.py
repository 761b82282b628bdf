"""Parsers under atheris, a coverage-guided fuzzer, each in a process of its own.

Our packages are imported with instrumentation, but for the kernels: compiled code has none, and the compiler does not
read instrumented functions. That takes seconds, so it is done once, and a process is forked for each parser.

Rules: whatever a parser raises that it may not raise ends the process and leaves the input; so does an input that takes
too long (libFuzzer's alarm), memory that grows from input to input (`MemoryGrowthError`), and an allocation far beyond
the input (the process has an address space of so much and no more, so it fails).
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from importlib.util import find_spec
from pathlib import Path

ENDED = "ENDED "

GROWTH = 192 << 20
"""Bytes by which resident memory may grow over a run: what libFuzzer itself keeps of inputs and coverage is in it."""

SPACE = 2 << 30
"""Bytes of address space beyond what there is at the start; a parser that asks for more than that at once is caught."""

INSTRUMENTED = ("fsl_async", "transport", "parties", "tests", "h11", "tomllib", "zipfile")
ON_ARRAYS = ("fsl_async.union", "fsl_async.client.planting")
"""Modules that compare arrays: atheris 3.0.0 keeps for ever each array that an instrumented comparison gives."""

SETTLED = 20_000
"""Executions after which memory is measured first, and every so many again."""


class MemoryGrowthError(MemoryError):
    """Resident memory has grown, though every input was dealt with; the input at hand need not be the cause."""


def available() -> str:
    """What keeps the fuzzer from running here; empty where nothing does."""
    if find_spec("atheris") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            "atheris is not installed: `pip install --constraint constraints.txt --editable .[fuzz]`, or `make fuzz`, "
            f"installs it where it is to be had for the Python at hand ({version}); atheris 3.0.0 is built for Python "
            "3.11 to 3.13 on Linux. The tests in tests/system/fuzzing run without it"
        )
    return ""


class _Watch:
    """Calls a parser, and looks after this process's memory."""

    def __init__(self, read: Callable[[bytes], object]) -> None:
        self._read = read
        self._runs = 0
        self._settled = 0

    def __call__(self, data: bytes) -> None:
        self._read(data)
        self._runs += 1
        if self._runs % SETTLED == 0:
            self._measure()

    def _measure(self) -> None:
        now = resident()
        self._settled = self._settled or now
        if now - self._settled > GROWTH:
            raise MemoryGrowthError(f"{now >> 20} MiB after {self._runs:,} inputs, {self._settled >> 20} MiB before")


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def _limit_space() -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPACE, hard))


def _left_alone() -> list[str]:
    """The modules that are not instrumented, by name: those whose functions are compiled, and those of `ON_ARRAYS`."""
    root = Path(find_spec("fsl_async").origin).parent  # type: ignore[union-attr, arg-type]
    modules = (path.relative_to(root.parent).with_suffix("").parts for path in (root / "kernels").rglob("*.py"))
    return [*ON_ARRAYS, *(".".join(parts).removesuffix(".__init__") for parts in modules)]


def main() -> None:
    """Import everything once, then fuzz one parser after the other as told, each in a child of this process.

    A line of stdin is a JSON list: a parser's name and libFuzzer's options. What libFuzzer says goes to stderr, and
    after it a line that begins with `ENDED`, with the exit code.
    """
    import atheris

    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,  # instrumenting tells of every module
        redirect_stderr(nowhere),
        atheris.instrument_imports(include=list(INSTRUMENTED), exclude=_left_alone()),
    ):
        from .catalogue import parser_named
        from .parser import accepts
    for line in sys.stdin:
        name, *options = json.loads(line)
        child = os.fork()
        if not child:
            _fuzz(name, _Watch(partial(accepts, parser_named(name))), options)
        _, status = os.waitpid(child, 0)
        print(f"{ENDED}{os.waitstatus_to_exitcode(status)}", file=sys.stderr, flush=True)


def _fuzz(name: str, watch: _Watch, options: list[str]) -> None:
    """Hand a parser to libFuzzer; does not return."""
    import atheris

    _limit_space()
    atheris.Setup([name, *options], watch, enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
