"""`serve`: one server in a process of its own."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import trio

from parties.commands.running import FormatFlag, run
from parties.deployment import ServerFile, server_setup
from parties.model_files import save_model
from parties.report import Report
from parties.server import Server

__all__ = ["serve"]


def serve(config: Path, *, form: FormatFlag = "text") -> int:
    """Run one server until its rounds are over, or until it is interrupted.

    Parameters
    ----------
    config:
        The server's TOML file.
    """
    report = Report("serve", form)
    return run(report, partial(_serve, config, report))


async def _serve(config: Path, report: Report) -> None:
    file = ServerFile.load(config)
    server = Server(await server_setup(config))
    if server.enrolment.warning:
        report.progress(f"warning: {server.enrolment.warning}")
    ended: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        address = await nursery.start(server.run)
        report.progress(f"S{file.server} listens at {address}")
        async for account in server.settlements():
            ending = f"aborted: {account.aborted}" if account.aborted else f"{len(account.clients)} clients counted"
            ended["aborted" if account.aborted else "done"] += 1
            report.progress(f"round {account.number}: {ending}")
            if file.save_model:
                await trio.to_thread.run_sync(save_model, file.save_model, server.model)
        await server.drain(file.drain_seconds)
        nursery.cancel_scope.cancel()
    report.result(
        f"S{file.server}: {ended['done']} rounds done, {ended['aborted']} aborted",
        {"server": file.server, "rounds_done": ended["done"], "rounds_aborted": ended["aborted"]},
    )
