"""`retrieve` and `submit`: a client's part in a round, from files to files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_async.errors import MisuseError
from parties.commands.running import FormatFlag, run
from parties.report import Report

if TYPE_CHECKING:
    from fsl_async.task import Task
    from parties.client import Client

__all__ = ["retrieve", "submit"]

PATIENT_SECONDS = 5.0


def retrieve(
    config: Path,
    *,
    block: str,
    rows: str = "",
    output: Path,
    identity: Path | None = None,
    token: str = "",
    state: Path | None = None,
    patience: float | None = None,
    form: FormatFlag = "text",
) -> int:
    """Fetch rows of a block privately (or a dense block whole) into an .npz file.

    Parameters
    ----------
    config:
        The client's own TOML file; or, with --identity, the task file.
    block:
        Which block.
    rows:
        Of a sparse block: the rows, as in 3,17,99; or @FILE with a JSON list of them.
    output:
        The .npz file to write: `rows` and `values`.
    identity:
        The client's secret key file; by default what its own file says, and so for the following.
    token:
        To enrol with, where the servers ask for one; or @FILE, which other users of this machine cannot read.
    state:
        A file that a client which was killed goes on from.
    patience:
        Seconds to go on when a server is away or does not answer.
    """
    report = Report("retrieve", form)

    async def work() -> None:
        from fsl_async.task import Dense
        from parties.deployment import connect
        from parties.model_files import save_model

        chosen = _rows(rows)
        async with connect(config, identity or "", token=_token(token), state=state or "", patience=patience) as client:
            dense = isinstance(client.task.block(block), Dense)
            if dense and rows:
                raise MisuseError(f"block {block!r} is dense: it is fetched whole, leave out --rows")
            async with _told_what_it_waits_for(report):
                values = (await client.retrieve({block: ... if dense else chosen}))[block]
            save_model(output, {"values": values} if dense else {"rows": chosen, "values": values})
            deferred = [int(row) for row in client.deferred.get(block, [])]
            report.result(
                f"{output}: {values.shape} of {values.dtype} from block {block!r}, {client.bytes_sent:,} bytes up, "
                f"{client.bytes_received:,} down" + (f"; deferred: {deferred}" if deferred else ""),
                {
                    "output": str(output),
                    "shape": list(values.shape),
                    "dtype": str(values.dtype),
                    "deferred": deferred,
                    "bytes_sent": client.bytes_sent,
                    "bytes_received": client.bytes_received,
                },
            )

    return run(report, work)


def submit(
    config: Path,
    *,
    update: Path,
    wait: bool = False,
    identity: Path | None = None,
    token: str = "",
    state: Path | None = None,
    patience: float | None = None,
    form: FormatFlag = "text",
) -> int:
    """Add an update to the open round's sum.

    Parameters
    ----------
    config:
        The client's own TOML file; or, with --identity, the task file.
    update:
        An .npz file: for a sparse block NAME the arrays NAME.rows and NAME.values, for a dense one NAME. Integers are
        numbers like floats; integers that are elements of the ring already stand in NAME.elements instead.
    wait:
        Wait until the round has ended, and tell whether the update was counted.
    identity:
        The client's secret key file; by default what its own file says, and so for the following.
    token:
        To enrol with, where the servers ask for one; or @FILE, which other users of this machine cannot read.
    state:
        A file that a client which was killed goes on from.
    patience:
        Seconds to go on when a server is away or does not answer.
    """
    report = Report("submit", form)

    async def work() -> None:
        from parties.deployment import connect
        from parties.model_files import load_model

        arrays = load_model(update)
        async with connect(config, identity or "", token=_token(token), state=state or "", patience=patience) as client:
            async with _told_what_it_waits_for(report):
                receipt = await client.submit(_updates(client.task, arrays))
            result: dict[str, Any] = {
                "round": receipt.number,
                "digest": receipt.digest.hex(),
                "bytes_sent": receipt.bytes_sent,
            }
            text = f"round {receipt.number}: both servers hold submission {receipt.digest.hex()[:16]}…"
            text += await _counted(client, result) if wait else ""
            report.result(text, result)

    return run(report, work)


@asynccontextmanager
async def _told_what_it_waits_for(report: Report) -> AsyncIterator[None]:
    """Whoever looks on hears why it takes so long, if it does."""
    import trio

    async def tell() -> None:
        await trio.sleep(PATIENT_SECONDS)
        report.progress(
            f"fsl-async {report.command}: still waiting, for a server that is away or busy, or for the next round: a "
            "client submits once in a round. --patience limits the first, Ctrl-C ends both, and nothing is lost"
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell)
        yield
        nursery.cancel_scope.cancel()


async def _counted(client: Client, result: dict[str, Any]) -> str:
    outcome = await client.outcome()
    result |= {"counted": outcome.counted, "reason": outcome.reason, "clients": list(outcome.clients)}
    return "; counted" if outcome.counted else f"; not counted: {outcome.reason}"


def _token(words: str) -> str:
    """A token from the command line."""
    try:
        return Path(words[1:]).read_text(encoding="ascii") if words.startswith("@") else words
    except (OSError, ValueError) as error:
        raise MisuseError(f"token: {words[1:]} cannot be read as the file of a token") from error


def _rows(words: str) -> Any:
    """Rows from the command line."""
    import msgspec
    import numpy as np

    try:
        text = Path(words[1:]).read_bytes() if words.startswith("@") else f"[{words}]"
        return np.array(msgspec.json.decode(text, type=list[int]), dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise MisuseError(f"rows: a list as in 3,17,99 or @FILE with a JSON list expected, got {words!r}") from error


def _updates(task: Task, arrays: dict[str, Any]) -> dict[str, Any]:
    """A client's updates from the arrays of a file."""
    from fsl_async.ring import RingIntegers
    from fsl_async.task import Dense

    def values(name: str, numbers: str) -> Any:
        elements = f"{name}.elements"
        if numbers in arrays and elements in arrays:
            raise MisuseError(f"update: block {name!r} has both {numbers} and {elements}; one of them expected")
        return arrays[numbers] if numbers in arrays else RingIntegers(arrays[elements])

    updates: dict[str, Any] = {}
    blocks = {key: _block_of(task, key) for key in arrays}
    for name in dict.fromkeys(blocks.values()):
        given = {key for key in arrays if blocks[key] == name}
        if isinstance(task.block(name), Dense):
            if not given <= {name, f"{name}.elements"}:
                raise MisuseError(f"update: block {name!r} is dense and needs {name} alone, without rows")
            updates[name] = values(name, name)
        elif f"{name}.rows" in given and len(given) > 1 and name not in given:
            updates[name] = (arrays[f"{name}.rows"], values(name, f"{name}.values"))
        else:
            raise MisuseError(f"update: block {name!r} is sparse and needs both {name}.rows and {name}.values")
    return updates


def _block_of(task: Task, key: str) -> str:
    """Whose values an array of an update's file holds."""
    if any(block.name == key for block in task.blocks):
        return key
    for ending in (".rows", ".values", ".elements"):
        if key.endswith(ending):
            return key.removesuffix(ending)
    return key
