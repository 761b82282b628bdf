"""`retrieve`: rows of the model, from the servers to a file; and what clients' commands read from words and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_async.errors import MisuseError
from parties.commands.connecting import AS_ITS_FILE_SAYS, Connecting, WaitNextFlag, told_what_it_waits_for
from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

if TYPE_CHECKING:
    from fsl_async.task import Task

__all__ = ["retrieve", "rows_from", "updates_from"]


def retrieve(
    config: Path,
    *,
    block: str,
    rows: str = "",
    output: Path,
    wait_next: WaitNextFlag = False,
    connecting: Connecting = AS_ITS_FILE_SAYS,
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
    """
    report = Report("retrieve", form)

    async def work() -> None:
        from fsl_async.task import Dense
        from parties.files.models import save_model

        chosen = rows_from(rows)
        async with connecting.client(config) as client:
            dense = isinstance(client.task.block(block), Dense)
            if dense and rows:
                raise MisuseError(f"block {block!r} is dense: it is fetched whole, leave out --rows")
            if not dense and not rows:
                raise MisuseError(f"block {block!r} is sparse: name its rows, as in --rows 3,17,99")
            async with told_what_it_waits_for(report):
                values = (await client.retrieve({block: ... if dense else chosen}, wait=wait_next))[block]
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


def rows_from(words: str) -> Any:
    """Rows from the command line."""
    import msgspec
    import numpy as np

    try:
        text = Path(words[1:]).read_bytes() if words.startswith("@") else f"[{words}]"
        return np.array(msgspec.json.decode(text, type=list[int]), dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise MisuseError(f"rows: a list as in 3,17,99 or @FILE with a JSON list expected, got {words!r}") from error


def updates_from(task: Task, arrays: dict[str, Any]) -> dict[str, Any]:
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
