"""When noise leaves anything to learn: how many clients must update a row so that it stands out.

A client whose update has its whole bound, in equal parts in each of its k rows of τ weights, and in the same direction
as the others', adds 1/√k of the bound to a row. Both servers' noise on the row has a norm of about z·√(2τ) times the
bound. So c such clients stand out from c* = z·√(2τk) on.
"""

from __future__ import annotations

import math

from fsl_async.blocks import Sparse
from fsl_async.options.fields import TaskFields


def least_contributors(noise: float, block: Sparse) -> float:
    """c*, the number of clients whose common update of a row is as large as the noise on it.

        least_contributors(0.69, Sparse("items", rows=197_372, select=418, width=18))      # 84.6…

    Args:
        noise: z.
        block: the block, of whose rows a client updates `select`.
    """
    return noise * math.sqrt(2 * block.width * block.select)


def unlearnt(task: TaskFields) -> str:
    """Why noise leaves nothing to learn of some blocks: their rows could not stand out though all clients agreed.

    Empty where all could. A dense block is no row that is set to 0: what is little in each of its sums adds up.
    """
    if task.privacy is None:
        return ""
    noise, most = task.privacy.noise, task.max_clients
    needed = {block.name: math.ceil(least_contributors(noise, block)) for _, block in task.sparse_blocks()}
    lost = {name: least for name, least in needed.items() if least > most}
    if not lost:
        return ""
    alike = "; ".join(f"{least:,} of {name!r}" for name, least in lost.items())
    return (
        f"noise leaves nothing to learn of {', '.join(map(repr, lost))}: with privacy.noise={noise:g} a row stands out "
        f"if about so many clients update it alike: {alike}; and max_clients is {most:,}. Use less noise, more "
        "clients, or blocks of which a client selects fewer weights"
    )


def outlook(task: TaskFields, rounds: int) -> str:
    """What so many rounds spend, and which rows stand out; empty where the task adds no noise."""
    privacy = task.privacy
    if privacy is None:
        return ""
    blocks = [block for _, block in task.sparse_blocks()]
    enough = "; ".join(f"{math.ceil(least_contributors(privacy.noise, block)):,} of {block.name!r}" for block in blocks)
    rows = f" A row stands out from the noise if about so many clients update it alike: {enough}." if blocks else ""
    lasts = "" if rounds <= privacy.rounds else f", which is more than the budget of {privacy.budget:g}"
    return (
        f"Noise of {privacy.noise:g} × the bound spends ε = {privacy.epsilon(1):.3g} in the first round, and "
        f"{privacy.epsilon(rounds):.3g} in {rounds:,}{lasts} (δ = {privacy.delta:g}); the budget lasts for "
        f"{privacy.rounds:,} rounds.{rows}"
    )
