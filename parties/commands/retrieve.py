"""`retrieve`: rows of the model, from the servers to a file."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from parties.commands.client_options import (
    AS_ITS_FILE_SAYS,
    ClientFlag,
    Connecting,
    WaitNextFlag,
    rows_from,
    told_what_it_waits_for,
)
from parties.commands.report import Report, reported

WHOLE = "all"
"""What stands for all rows of a sparse block."""


@reported("retrieve")
async def retrieve(
    report: Report,
    config: ClientFlag,
    *,
    block: str,
    rows: str = "",
    output: Path,
    wait_next: WaitNextFlag = False,
    connecting: Connecting = AS_ITS_FILE_SAYS,
) -> None:
    """Retrieve rows of a sparse block privately, or a whole block, into an .npz file.

    Parameters
    ----------
    block:
        The block's name.
    rows:
        For a sparse block: the rows, such as 3,17,99; or @FILE with a JSON list of them; or `all`, which fetches the
        block whole, so that the servers learn that it is fetched, and of no row.
    output:
        The .npz file to write, with the arrays `values` and, where some were named, `rows`.
    """
    from fsl_async.task import Dense
    from parties.files.models import save_model

    chosen = ... if rows in ("", WHOLE) else rows_from(rows)
    async with connecting.client(config) as client:
        dense = isinstance(client.task.block(block), Dense)
        if dense and rows:
            raise MisuseError(f"block {block!r} is dense: it is fetched whole, leave out --rows")
        if not dense and not rows:
            raise MisuseError(
                f"block {block!r} is sparse: name its rows, as in --rows 3,17,99, or fetch it whole with --rows all"
            )
        async with told_what_it_waits_for(report):
            values = (await client.retrieve({block: chosen}, wait=wait_next))[block]
        save_model(output, {"values": values} if chosen is ... else {"rows": chosen, "values": values})
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
