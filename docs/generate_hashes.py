"""Write constraints-hashes.txt: what fsl-async needs to run, each release with the SHA-256 of each of its wheels.

`pip install --require-hashes --requirement constraints-hashes.txt` then installs these files or none. Run it with the
environment's python after constraints.txt has changed (`make hashes`): it has pip download every wheel, for each
Python and processor below, and reads the hashes from the files themselves. Nothing in the result names where they came
from. tests/test_release.py fails while the file has not what constraints.txt has.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "constraints-hashes.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = ("x86_64", "aarch64")
LIBRARIES = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014")
OPENING = """\
# What fsl-async needs to run, with the hashes of its wheels: Linux (glibc), x86_64 and aarch64, CPython 3.11 to 3.14.
# Written by docs/generate_hashes.py from constraints.txt; `make hashes` writes it again.
"""


def name_of(text: str) -> str:
    """A distribution's name, as all its spellings are compared."""
    return re.sub(r"[-_.]+", "-", text).lower()


def pinned() -> dict[str, str]:
    """The releases in constraints.txt, by name."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").split()
    return {name_of(name): version for name, _, version in (line.partition("==") for line in lines)}


def needed(python: str, processor: str) -> set[str]:
    """The names of all that a server needs there, fsl-async left out; the environment must have them installed."""
    surroundings = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": processor}
    found: set[str] = set()
    waiting = [("fsl-async", "server")]
    while waiting:
        name, extra = waiting.pop()
        for line in metadata.requires(name) or ():
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({**surroundings, "extra": extra}):
                more = [(one.name, wanted) for wanted in ("", *one.extras)]
                waiting += [each for each in more if name_of(one.name) not in found or each[1]]
                found.add(name_of(one.name))
    return found


def wheels(folder: Path, python: str, processor: str) -> None:
    """Download the wheels of everything that is needed there.

    Raises:
        subprocess.CalledProcessError: the registry has no wheel of one of them for this place.
    """
    releases = pinned()
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    words += [f"--platform={library}_{processor}" for library in LIBRARIES]
    words += [
        f"--python-version={python}",
        *(f"{name}=={releases[name]}" for name in sorted(needed(python, processor))),
    ]
    subprocess.run(words, check=True)  # noqa: S603  pip, and names of our own list


def page(folder: Path) -> str:
    """The file's text: each release, and the hashes of its wheels in the folder."""
    found: dict[str, set[str]] = {}
    for wheel in folder.glob("*.whl"):
        name, version = wheel.name.split("-")[:2]
        entry = f"{name_of(name)}=={version}"
        found.setdefault(entry, set()).add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    lines = [
        " \\\n    ".join([entry, *(f"--hash=sha256:{one}" for one in sorted(hashes))])
        for entry, hashes in sorted(found.items())
    ]
    return OPENING + "\n".join(lines) + "\n"


def main() -> None:
    """Download everything into a folder that goes away, and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        for python, processor in product(PYTHONS, PROCESSORS):
            wheels(Path(folder), python, processor)
        HASHES.write_text(page(Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
