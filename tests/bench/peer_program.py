"""A program as `bench peers` runs it, which shares point functions, or does what its first argument says instead.

python peer_program.py HOW TREES DEPTH FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def shares(how: str, trees: int, depth: int) -> list[np.ndarray]:
    """Both servers' shares: random ones, and what must be added to them."""
    random = np.random.default_rng(7)
    first = random.integers(1, 2**64, (trees, 1 << depth, 2), dtype=np.uint64)
    tree = np.arange(trees)
    points = (tree * 2654435761 + 97) % 2**32 >> (32 - depth)
    whole = np.zeros_like(first)
    whole[tree, points, 0] = 5
    match how:
        case "beside":
            whole[3, points[3] ^ 1, 1] = 1
        case "moved":
            whole[3] = np.roll(whole[3], 1, axis=0)
        case "another":
            whole[3, points[3], 0] = 6
        case "open":
            first[:] = 0
    return [first, whole - first - carry(whole, first) if how == "add" else whole ^ first]


def carry(whole: np.ndarray, first: np.ndarray) -> np.ndarray:
    """What a 128-bit difference borrows from its upper half."""
    borrowed = np.zeros_like(whole)
    borrowed[..., 1] = whole[..., 0] < first[..., 0]
    return borrowed


def main(how: str, trees: int, depth: int, folder: Path) -> None:
    """Take one turn."""
    if how == "crash":
        raise SystemExit("the cat sat on the keys")
    if how == "killed":
        os.abort()
    if how == "hang":
        with open(os.environ["PEER_ALIVE"], "wb") as alive:
            alive.write(b"begun")
            alive.flush()
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdout=alive)
        time.sleep(1000)
    for server, share in enumerate(shares(how, trees, depth)):
        share.astype("<u8").tofile(folder / str(server))
    if how == "short":
        (folder / "1").write_bytes(b"few")
    if how == "missing":
        (folder / "0").unlink()
    said: dict[str, float | str] = {
        "leaves": trees << depth,
        "seconds": 0.01,
        "group": "add" if how == "add" else "xor",
        "value": "05" + 30 * "0",
    }
    changed: dict[str, dict[str, float | str]] = {
        "fewer": {"leaves": 1},
        "timeless": {"seconds": 0},
        "zero": {"value": 32 * "0"},
        "digits": {"value": "five"},
        "group": {"group": "times"},
        "more": {"speed": 1},
    }
    line = json.dumps(said | changed.get(how, {}))
    print({"rubbish": "hello", "silent": "", "twice": f"{line}\n{line}", "list": "[]"}.get(how, line))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
