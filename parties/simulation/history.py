"""The history of an experiment: a record for each round, and the file from which a run that was killed goes on.

    run.jsonl       a line of JSON for each round; `pandas.read_json("run.jsonl", lines=True)` reads it
    run.jsonl.npz   what the last round has left: the model, what belongs to it, what stays with clients, its record

Rule: the second file is replaced, whole, before the line is appended; so the file of lines is never ahead of it, and at
most one line behind. Every line is on the disk before the next round begins.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fsl_async.errors import MisuseError
from parties.files.disk import refused, sync_folder
from parties.files.models import load_model, save_model
from parties.outcome import Model

Record: TypeAlias = dict[str, Any]
"""Of one round, as JSON has it; see `run_experiment`."""

SECONDS = "seconds."
"""What the names of figures begin with that are not the same when the same run is made again."""

_RECORD, _COUNT = "record", "count"


@dataclass(frozen=True, repr=False)
class History:
    """What came of an experiment.

        pandas.DataFrame(history.records)
        history.curve("rmse")               # a number for each round
        history.plot("rmse", clear=other)   # a figure of matplotlib: the extra `plot`

    Attributes:
        records: one for each round; see `run_experiment`.
        model: by block, after the last round.
    """

    records: Sequence[Record]
    model: Model

    def __repr__(self) -> str:
        last = {name: value for name, value in (self.records or [{}])[-1].items() if isinstance(value, int | float)}
        return f"History(rounds={len(self.records)}, last={last})"

    @property
    def facts(self) -> list[Record]:
        """The records without seconds: equal where the same run is made again, or was resumed."""
        return [{name: each[name] for name in each if not name.startswith(SECONDS)} for each in self.records]

    def curve(self, name: str) -> list[float]:
        """A figure of each round; NaN where a round has none.

        Raises:
            MisuseError: no round has it.
        """
        if not any(name in record for record in self.records):
            known = sorted({name for record in self.records for name in record})
            raise MisuseError(f"no round has a figure {name!r}; there are {', '.join(known)}")
        return [math.nan if record.get(name) is None else float(record[name]) for record in self.records]

    def plot(self, name: str, **others: History) -> Any:
        """A picture of a figure's curve, and of the same in other runs, by their labels.

        Returns:
            A `matplotlib.figure.Figure`; a notebook shows it, and `savefig` writes it.

        Raises:
            MisuseError: no round has that figure, or matplotlib is missing.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MisuseError('a picture needs the extra `plot`: pip install "fsl-async[plot]"') from error
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot(xlabel="round", ylabel=name)
        for label, history in {"this run": self, **others}.items():
            axes.plot([record["round"] for record in history.records], history.curve(name), label=label)
        axes.legend()
        return figure


class HistoryFile:
    """Where the records of a run are.

    Args:
        path: of the lines.
        run: names the run: its task, model, clients and settings.
    """

    def __init__(self, path: Path, run: str) -> None:
        self._path, self._run = path, run
        self._beside = path.with_name(f"{path.name}.npz")
        self._count = 0

    def read(self) -> tuple[list[Record], Model]:
        """The records so far, and what the last round has left; nothing where the run has not begun.

        Raises:
            MisuseError: the files are another run's, or do not belong together.
            StorageError: the line that a kill has kept from the file cannot be written.
        """
        try:
            lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        except OSError as error:
            raise self._foreign(str(error)) from error
        whole = [line for line in lines if line.endswith(b"\n")]
        if not self._beside.exists():
            if lines:
                raise self._foreign(f"{self._beside.name} is not beside it")
            return [], {}
        left = load_model(self._beside)
        last = left.pop(_RECORD, np.zeros(0, dtype=np.uint8)).tobytes()
        self._count = number = int(left.pop(_COUNT, 0))
        try:
            records = [json.loads(line) for line in whole]
            runs = {record["run"] for record in [*records, json.loads(last)]}
        except (ValueError, LookupError, TypeError) as error:
            raise self._foreign(f"a record cannot be read: {error}") from error
        if runs != {self._run}:
            raise self._foreign("they are of another task, model, clients or settings")
        if len(whole) == number - 1:
            self._write(b"".join(whole) + last)
            records.append(json.loads(last))
        elif len(whole) != number or whole[-1] != last:
            raise self._foreign(f"it has {len(whole)} lines, and {self._beside.name} is of line {number}")
        elif lines != whole:
            self._write(b"".join(whole))
        return records, left

    def append(self, record: Record, left: Model) -> Record:
        """Store a round: its record, and what it has left.

        Raises:
            StorageError: it could not be written.
        """
        line = json.dumps(record, allow_nan=False).encode() + b"\n"
        self._count += 1
        beside = {_RECORD: np.frombuffer(line, dtype=np.uint8), _COUNT: np.array(self._count)}
        save_model(self._beside, left | beside)
        self._write(line, "ab")
        return record

    def _write(self, content: bytes, mode: str = "r+b") -> None:
        try:
            if not self._path.exists():
                self._path.touch()
                sync_folder(self._path)
            with self._path.open(mode) as file:
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise refused(self._path, error) from error

    def _foreign(self, why: str) -> MisuseError:
        return MisuseError(
            f"{self._path} is not the history of this run: {why}; name another file, or remove both to begin anew"
        )


def figures(prefix: str, given: Mapping[str, float]) -> Record:
    """Figures as records have them: null where one is not a finite number, for which JSON has no word."""
    return {f"{prefix}{name}": float(value) if math.isfinite(value) else None for name, value in given.items()}
