"""What an experiment is: cells that are computed one by one, and a section of the page that shows their results.

    def accuracy(run: Run) -> Values:
        questions = run.data / "trec"
        ...
        run.progress(done / rounds, f"{accuracy:.1f} %")
        return {"accuracy": [84.6, 84.8, 86.2]}

    cell = Cell("trec-fedavg", accuracy, {"rounds": 60, "seeds": [1, 2, 3]},
                needs=("torch", "data/trec"), smaller="60 rounds, not 500: the servers' processor time")
    trec = Experiment("table-5", "Accuracy of the basic protocol", (cell,), section)

Rules: a cell's function gets everything from its parameters, so that equal parameters make an equal result, seconds
aside; a change of the function that changes its result changes a parameter with it. The same cell may belong to several
experiments, and is computed once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from examples.paper.clock import Clock
from fsl_async import MisuseError
from parties import load_model, save_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Values: TypeAlias = dict[str, Any]
"""Plain JSON: text, numbers, lists, dicts with text as keys."""

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

NAME = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*")


class Run:
    """What a cell's function may use while it runs.

    Attributes:
        parameters: the cell's.
        data: the folder of the data sets.
    """

    def __init__(
        self, cell: Cell, data: Path, checkpoint: Path, clock: Clock, report: Callable[[float, str], None]
    ) -> None:
        self.parameters = cell.parameters
        self.data = data
        self._checkpoint = checkpoint
        self._clock = clock
        self._report = report

    def progress(self, done: float, note: str = "") -> None:
        """Show how far the cell is: from 0 to 1, with a few words."""
        self._report(done, note)

    def save(self, arrays: Arrays) -> None:
        """Store where the computation is, whole or not at all; the seconds so far are stored with it.

        Args:
            arrays: by name, arrays of numbers. The names `_processor` and `_wall` are taken.
        """
        seconds = {"_processor": np.array(self._clock.processor), "_wall": np.array(self._clock.wall)}
        self._checkpoint.parent.mkdir(parents=True, exist_ok=True)
        save_model(self._checkpoint, {**arrays, **seconds})

    def saved(self) -> dict[str, npt.NDArray[Any]]:
        """What `save` stored last, in this run or in one that was killed; empty before the first.

        Raises:
            MisuseError: the file is damaged; the message names it.
        """
        if not self._checkpoint.exists():
            return {}
        try:
            arrays = load_model(self._checkpoint)
            self._clock.resume(float(arrays.pop("_processor")), float(arrays.pop("_wall")))
        except (MisuseError, KeyError) as error:
            raise MisuseError(
                f"{self._checkpoint} is no checkpoint ({error}); remove it, and the cell begins anew"
            ) from error
        return arrays


@dataclass(frozen=True)
class Cell:
    """One computation.

    Attributes:
        name: small letters, digits, hyphens and points; the name of its file.
        compute: the computation.
        parameters: all that its result depends on, seeds too; plain JSON.
        needs: what must be there, or the cell is skipped: `torch` for the package, `data/trec` for a data set.
        smaller: what is smaller than in the paper, and why; empty if nothing is.
        seconds: processor seconds that it takes, about.
    """

    name: str
    compute: Callable[[Run], Values] = field(repr=False)
    parameters: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    smaller: str = ""
    seconds: float = 1.0

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise MisuseError(f"cell {self.name!r}: a name of small letters, digits, hyphens and points expected")

    @property
    def key(self) -> str:
        """The digest of name and parameters: a result with another one is of another computation."""
        text = json.dumps([self.name, dict(self.parameters)], sort_keys=True, allow_nan=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of a cell, as its file has it.

    Attributes:
        cell: its name.
        key: its key.
        parameters: its parameters.
        smaller: what is smaller than in the paper, and why.
        values: what was computed.
        processor_seconds: of all threads and of the processes that it waited for.
        wall_seconds: from its start to its end, without the time between a kill and the next run.
        versions: of the software that it used.
        machine: the processor, its cores that could be used, and the instruction set of the kernels.
        load: how many processes wanted to run when it began, itself and its predecessor included.
    """

    cell: str
    key: str
    parameters: dict[str, Any]
    smaller: str
    values: Values
    processor_seconds: float
    wall_seconds: float
    versions: dict[str, str]
    machine: dict[str, Any]
    load: float


@dataclass(frozen=True)
class Results:
    """The results that there are."""

    by_cell: Mapping[str, Result]

    def of(self, cell: Cell | str) -> Values | None:
        """A cell's values; None if it has not been run."""
        result = self.by_cell.get(cell if isinstance(cell, str) else cell.name)
        return None if result is None else result.values


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        name: the name of its file, without .svg.
        about: what it shows, in one sentence.
        draw: draws it; called only where matplotlib is installed.
    """

    name: str
    about: str
    draw: Callable[[Figure], None] = field(repr=False)


@dataclass(frozen=True)
class Section:
    """What the page says of an experiment.

    Attributes:
        text: Markdown, without a heading.
        pictures: shown after the text.
    """

    text: str
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        name: as `--only` takes it.
        title: its heading on the page.
        cells: what it is made of.
        section: shows the results; cells without one are absent from them.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    section: Callable[[Results], Section] = field(repr=False)
