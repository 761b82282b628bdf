"""One client of a scenario as a process: `python -m tests.support.scenario_client FOLDER NAME`.

It reads what to do from FOLDER/NAME.json, a list of rounds, and prints what came of it, one JSON line for each round.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import trio

from parties import Client, connect


async def live(folder: Path, name: str) -> None:
    """All rounds of one client."""
    async with connect(folder / "task.toml", folder / f"{name}.key") as client:
        for plan in json.loads((folder / f"{name}.json").read_text()):
            sys.stdout.write(json.dumps(await take_part(client, plan)) + "\n")
            sys.stdout.flush()


async def take_part(client: Client, plan: dict[str, Any]) -> dict[str, Any]:
    """One round: unite, or retrieve and submit; then wait for its outcome."""
    before, found = client.bytes_sent, {}
    if "unite" in plan:
        await client.unite(plan["unite"])
    else:
        found = await client.retrieve(
            {block: ... if rows == "all" else rows for block, rows in plan["retrieve"].items()}
        )
        await client.submit({block: as_update(update) for block, update in plan["submit"].items()})
    sent = client.bytes_sent - before
    outcome = await client.outcome()
    return {
        "number": outcome.number,
        "counted": outcome.counted,
        "participants": outcome.participants,
        "found": {block: array.tolist() for block, array in found.items()},
        "sent": sent,
    }


def as_update(update: dict[str, Any]) -> Any:
    """Rows and values of a sparse block, or values of a dense one."""
    values = np.array(update["values"])
    return (update["rows"], values) if "rows" in update else values


if __name__ == "__main__":
    trio.run(live, Path(sys.argv[1]), sys.argv[2])
