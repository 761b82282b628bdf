"""The history of a deployed task: an experiment's records, of the rounds of a server that serves clients elsewhere.

    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        history = await record_rounds(server, "run.jsonl", evaluate=rmse)
        nursery.cancel_scope.cancel()

Rules: a round is recorded once, whenever the server was killed, since what the file lacks is in the server's store; a
record's model and figures are of the model after its round, or null where the server has gone on since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.server.rules import describe_state
from parties.outcome import Model
from parties.server.server import Server
from parties.simulation.history import SECONDS, History, HistoryFile, Record, figures


async def record_rounds(
    server: Server,
    history: str | Path,
    *,
    evaluate: Callable[[Model], Mapping[str, float]] | None = None,
    every: int = 1,
    on_round: Callable[[Record], Any] | None = None,
) -> History:
    """Write a record of every round that a running server settles, until the last of its schedule, and return them.

    A record has what `run_experiment` writes and a server knows: `round`, and `round_id`; `counted`, `failed` (who was
    not counted, and why) and `aborted`; `bytes_up` and `bytes_down`, of all messages to and from this server since the
    record before, or since it was started; `epsilon`; `model`; what `evaluate` returns; and seconds by part.

    Args:
        server: it has started to run.
        history: the file of the records. A server that was killed goes on from there when this is called again.
        evaluate: from the model after a round to its figures; computed where the server computes.
        every: after how many rounds that is done.
        on_round: is told of each record, those that are read back included; what is true ends the recording. The server
            runs on: `await server.wind_up(seconds)` lets it end.

    Raises:
        MisuseError: the history is another server's, another task's, or of rounds that this server's store has not.
        StorageError: the history could not be written.
    """
    setup = server.setup
    run = f"{setup.name} {setup.task.digest().hex()[:16]}"
    file = HistoryFile(Path(history), run)
    records, _ = await setup.lane.run(file.read)
    _check_rounds(server, Path(history), {record["round"]: record["round_id"] for record in records})
    last = records[-1]["round"] if records else 0
    if any([on_round(record) for record in records] if on_round else ()):
        return History(records, server.model)
    moved = (0, 0)
    async with aclosing(server.settlements(last)) as settled:
        async for report in settled:
            past = next(each for each in server.rounds.past if each.report is report)
            model = dict(server.model) if past is server.rounds.past[-1] else None
            now = server.tap.bytes_in, server.tap.bytes_out
            record: Record = {
                "run": run,
                "round": report.number,
                "round_id": report.round_id.hex(),
                "counted": len(report.clients),
                "failed": report.excluded,
                "aborted": report.explanation,
                "bytes_up": now[0] - moved[0],
                "bytes_down": now[1] - moved[1],
                "epsilon": setup.task.privacy and setup.task.privacy.epsilon(server.records.ledger.rounds),
                **{f"{SECONDS}{part}": spent for part, spent in msgspec.structs.asdict(past.times).items()},
            }
            moved = now
            wanted = evaluate if model is not None and report.number % every == 0 else None
            record |= await setup.lane.run(partial(_described, model, wanted))
            records.append(await setup.lane.run(partial(file.append, record, {})))
            if on_round and on_round(record):
                break
    return History(records, server.model)


def _described(model: Model | None, evaluate: Callable[[Model], Mapping[str, float]] | None) -> Record:
    """What a record has of the model after its round."""
    if model is None:
        return {"model": None}
    return {"model": describe_state(model).hex()[:32], **figures("", evaluate(model) if evaluate else {})}


def _check_rounds(server: Server, path: Path, recorded: Mapping[int, str]) -> None:
    """Refuse a history whose rounds are not those that the server's store has."""
    settled, name = server.sequence.lasting.settled, server.setup.name
    known = {past.report.number: past.report.round_id.hex() for past in server.rounds.past}
    wrong = [number for number, key in recorded.items() if number > settled or known.get(number, key) != key]
    if wrong:
        raise MisuseError(
            f"{path} has a round {wrong[0]} that {name} has not: {name} has another store, or an older one; name "
            "another file, or start it with the store that belongs to this one"
        )
