"""What a task costs that runs one protocol alone: retrievals, or unions; beside doing it trivially."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from fsl_async.costs.alone import retrieval_round, retrieval_trivially, union_round, union_trivially
from fsl_async.costs.message_sizes import DIGEST, Setting, Traffic, specimen_config
from fsl_async.costs.variants import RoundCosts
from fsl_async.errors import MisuseError
from fsl_async.task import Task
from fsl_async.union import UnionBlock
from parties.commands.plan.figures import Assumptions, size
from parties.commands.plan.plan import figures, framed, statement_bytes
from parties.commands.report import Report

UNIT = {"psr": "retrieval", "psu": "union"}


def plan_alone(
    path: Path, task: Task, *, clients: int, union: int, dtype: str, assumptions: Assumptions, report: Report
) -> None:
    """Tell the costs of one round of a task that only retrieves, or only finds unions.

    Args:
        path: the task file.
        task: the task.
        clients: how many take part; 0 for 100, or as many as the task admits.
        union: the rows of each block's union, at most; 0 for all that the clients can select.
        dtype: the model's.
        assumptions: from which seconds are computed.
        report: where the costs are written.

    Raises:
        MisuseError: there are more clients than the task admits.
    """
    clients = clients or max(2, task.quorum, min(100, task.max_clients))
    if not 1 <= clients <= task.max_clients:
        raise MisuseError(f"clients: the task admits at most max_clients={task.max_clients}, got {clients}")
    setting = _setting(task, clients, dtype)
    found = tuple(
        UnionBlock(block.name, min(block.rows, union or clients * block.select), DIGEST)
        for _, block in task.sparse_blocks()
    )
    if task.protocol == "psr":
        costs, trivial = retrieval_round(task, setting), retrieval_trivially(task, setting)
    else:
        costs, trivial = union_round(task, setting, found), union_trivially(task, setting)
    result = _result(task, clients, costs, trivial, assumptions)
    report.result(_text(path, task, result), result)


def _setting(task: Task, clients: int, dtype: str) -> Setting:
    digits = len(str(clients))
    setting = Setting(tuple(f"client-{index:0{digits}}" for index in range(clients)), dtype)
    return replace(setting, statement_bytes=statement_bytes(setting, specimen_config(task, setting)))


def _result(task: Task, clients: int, costs: RoundCosts, trivial: Traffic, assumptions: Assumptions) -> dict[str, Any]:
    whole = figures(costs, clients, assumptions)
    plain = {"up": framed(trivial.up), "down": framed(trivial.down)}
    ours, theirs = (8 * (up / assumptions.upload + down / assumptions.download)
                    for up, down in ((whole.up, whole.down), (plain["up"], plain["down"])))  # fmt: skip
    return {
        "protocol": task.protocol,
        "task": msgspec.to_builtins(task),
        "clients": clients,
        "phases": {name: {"up": framed(part.up), "down": framed(part.down)} for name, part in costs.phases.items()},
        "round": asdict(whole) | {"seconds": whole.seconds},
        "trivial": plain | {"transfer_seconds": theirs},
        "exact": task.protocol == "psr",
        "worth": ours <= theirs,
    }


def _text(path: Path, task: Task, result: dict[str, Any]) -> str:
    whole, trivial = result["round"], result["trivial"]
    verdict = "Worth it" if result["worth"] else "Not worth it: the trivial protocol is faster"
    lines = [
        f'{path}: task "{task.name}", protocol="{task.protocol}", {result["clients"]:,} clients in a round',
        *(
            f"  {name:<10} {size(part['up']):>10} up {size(part['down']):>10} down"
            for name, part in result["phases"].items()
        ),
        f"  {'together':<10} {size(whole['up']):>10} up {size(whole['down']):>10} down, for each client",
        f"  {'trivial':<10} {size(trivial['up']):>10} up {size(trivial['down']):>10} down",
        f"  between the servers {size(whole['link'])} in a round",
        f"  seconds: {whole['transfer_seconds']:.2g} of transfer, {whole['client_seconds']:.2g} on a client, "
        f"{whole['server_seconds']:.2g} on a server for all clients",
        f"{verdict}: {whole['transfer_seconds']:.2g} s of transfer for one {UNIT[task.protocol]}, where doing it "
        f"trivially takes {trivial['transfer_seconds']:.2g} s.",
    ]
    if task.protocol == "psr":
        lines.append("The trivial protocol is in the program: `retrieve` with `...` for every block.")
    if not result["exact"]:
        lines.append("Bytes are those on the wire, except for the expected length of the union's list.")
    return "\n".join(lines)
