"""What a client costs whoever runs one: what is installed for it, and a first call in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

WITHOUT = re.compile(r"extra\s*==")


def client_cost() -> dict[str, Any]:
    """Megabytes of what a client needs installed; processor seconds of a first retrieval's trees, and its memory."""
    process = subprocess.run([sys.executable, "-m", __name__], stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own
    return {"installed_megabytes": round(installed() / 1e6, 1), **json.loads(process.stdout)}


def installed() -> int:
    """Bytes of the files of this distribution and of all that it requires, without extras and compiled bytecode."""
    root = Path(__file__).parents[3]
    own = [file for name in ("fsl_async", "transport", "parties") for file in (root / name).rglob("*.py")]
    waiting, sizes = ["fsl-async"], {"": sum(map(os.path.getsize, own))}
    while waiting:
        name = waiting.pop()
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # required on other systems
            continue
        files = [] if name == "fsl-async" else [file.locate() for file in found.files or () if file.suffix != ".pyc"]
        sizes[name] = sum(os.path.getsize(str(file)) for file in files if os.path.isfile(str(file)))
        for line in found.requires or ():
            required = re.split(r"[^\w.-]", line, maxsplit=1)[0]
            if not WITHOUT.search(line) and required not in sizes:
                waiting.append(required)
    return sum(sizes.values())


def _first_call() -> dict[str, float]:
    """Everything from the imports of a client to the bytes of its first retrieval in the demo's task."""
    import numpy as np

    from fsl_async import kernels
    from fsl_async.bin_count import bins_of_round
    from fsl_async.client.upload import retrieval_part
    from fsl_async.config import BlockModel, RoundConfig, ServerKeys
    from parties.client.trees import MadeTrees
    from parties.commands.demo.taking_part import demo_task
    from parties.deployment import connecting as connecting  # what a client loads to connect

    kernels.select_isa("plain")
    task, keys = demo_task(2), ServerKeys(channel=bytes(32), statement=bytes(32))
    config = RoundConfig(
        task=task,
        number=1,
        session=1,
        hash_seed=bytes(32),
        toss=(bytes(32), bytes(32)),
        servers=(keys, keys),
        model=tuple(BlockModel(block.name, "f4", bytes(32)) for block in task.model_blocks),
        bins=bins_of_round(task, (), ()),
    )
    rows = {index: np.arange(block.select, dtype=np.uint32) for index, block in task.sparse_blocks()}
    retrieval_part(config, MadeTrees.fresh(config, rows, os.urandom).client_trees)
    status = Path("/proc/self/status").read_text(encoding="ascii")  # getrusage tells of the parent's memory, too
    memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return {"first_call_seconds": round(time.process_time(), 2), "memory_megabytes": round(memory)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_first_call()))
