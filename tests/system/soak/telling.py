"""How the commands tell what they do and find: people read tables and progress on stderr, programs JSON on stdout."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table


def console() -> Console:
    """Where people read; where that is no terminal, wide enough for every table."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 120)


def tell(told: dict[str, Any], *tables: Table) -> None:
    """The end of a command: its tables, and one line of JSON."""
    people = console()
    for table in tables:
        people.print(table)
    print(json.dumps(told))


class shown(Progress):  # noqa: N801 - used like a function
    """Progress bars, one for each thing that is counted; called with what there is how many of."""

    def __init__(self, total: int) -> None:
        super().__init__(console=console())
        self._total = total
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Any:
        super().__enter__()
        return self._show

    def _show(self, what: str, many: int) -> None:
        if what not in self._bars:
            self._bars[what] = self.add_task(what, total=self._total)
        self.update(self._bars[what], completed=many)
