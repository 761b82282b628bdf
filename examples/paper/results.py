"""The results on disk: one file for each cell, which appears whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from examples.paper.cells import Cell, Result, Results
from fsl_async import MisuseError, StorageError
from parties.files.disk import refused, replaced_by


class DamagedResultError(StorageError):
    """A file is not the result that its name says."""


class ResultFolder:
    """The folder with the results.

    Args:
        folder: it need not exist before the first result.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, cell: Cell) -> Path:
        """Where a cell's result is, or will be."""
        return self._folder / f"{cell.name}.json"

    def read(self, cell: Cell) -> Result | None:
        """A cell's result; None if there is none, or one of other parameters.

        Raises:
            DamagedResultError: the file is no result, or another cell's; the message names it.
        """
        path = self.path(cell)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refused(path, error) from error
        try:
            result = msgspec.json.decode(content, type=Result)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedResultError(f"{path} is damaged ({error}); remove it, and the cell is run again") from error
        if result.cell != cell.name:
            raise DamagedResultError(f"{path} is the result of {result.cell}, not of {cell.name}; remove it")
        return result if result.key == cell.key else None

    def write(self, cell: Cell, result: Result) -> None:
        """Store a cell's result.

        Raises:
            MisuseError: its values are not plain JSON.
            StorageError: the file cannot be written.
        """
        try:
            text = json.dumps(msgspec.to_builtins(result), indent=1, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise MisuseError(f"cell {cell.name}: its values are no plain JSON: {error}") from error
        path = self.path(cell)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with replaced_by(path) as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(text.encode() + b"\n")
        except OSError as error:
            raise refused(path, error) from error

    def forget(self, cell: Cell) -> None:
        """Remove a cell's result, if there is one."""
        self.path(cell).unlink(missing_ok=True)

    def read_all(self, cells: Iterable[Cell]) -> Results:
        """The results of those cells that have one.

        Raises:
            DamagedResultError: a file is no result.
        """
        found = ((cell.name, self.read(cell)) for cell in cells)
        return Results({name: result for name, result in found if result is not None})
