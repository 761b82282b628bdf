"""What a task cannot say that runs one protocol alone: how updates are summed where there are none, and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsl_async.errors import MisuseError
from fsl_async.ring import Ring

NO_UPDATES = Ring(64)
"""In the ring's place where a task has no updates: unions are found in this ring, and retrievals need none."""

_NONE = "there are no updates; leave it out"

_WITHOUT_UPDATES: dict[str, tuple[object, str]] = {
    "ring": (NO_UPDATES, _NONE),
    "updates": ("retrieved", _NONE),
    "largest": (None, _NONE),
    "apply": ("sum", _NONE),
    "weights": (None, _NONE),
    "largest_weight": (None, _NONE),
    "optimizer": (None, _NONE),
    "bound": (None, _NONE),
    "bound_proof": ("exact", _NONE),
    "min_contributors": (
        None,
        "contributors are counted where sums are opened, and its rounds open none; leave it out",
    ),
    "privacy": (None, _NONE),
}

_ALONE: dict[str, dict[str, tuple[object, str]]] = {
    "ssa": {},
    "psr": _WITHOUT_UPDATES
    | {
        "min_clients": (None, "its rounds end when their time is over, however many clients come; leave it out"),
        "alignment": ("all", "a union is found from submissions, and its rounds take none; leave it out"),
        "selection": ("adaptive", "a session begins with a submission, and its rounds take none; leave it out"),
        "sample": (None, "a sample is of those whose submissions count, and its rounds take none; leave it out"),
    },
    "psu": _WITHOUT_UPDATES
    | {
        "alignment": ("all", "its rounds find unions already, and no others follow; leave it out"),
        "selection": ("adaptive", "rows that stay fixed would have the same union every time; leave it out"),
    },
}
"""By protocol, the only value that a field may have, and why."""


_UNCOUNTED: dict[str, tuple[object, str]] = {
    "security": ("verified", "a count is worth something only if every client's trees are proved"),
    "alignment": ("all", "a union shows every row that a single client has"),
}
"""The only values that fields may have where contributors are counted, and why."""


def check_contributors(field: Callable[[str], Any]) -> None:
    """Check the fields of a task that contradict its `min_contributors`.

    Args:
        field: gives the value of a field of the task.

    Raises:
        MisuseError: a field contradicts it; the message names both, and says why.
    """
    for name, (only, why) in _UNCOUNTED.items():
        if field(name) != only:
            raise MisuseError(
                f"task: {name}={field(name)!r} contradicts min_contributors={field('min_contributors')!r}: {why}; use "
                f"{name}={only!r}, or leave min_contributors out"
            )


def check_alone(protocol: str, field: Callable[[str], Any]) -> None:
    """Check the fields of a task that contradict its protocol.

    Args:
        protocol: the task's.
        field: gives the value of a field of the task.

    Raises:
        MisuseError: a field contradicts it; the message names both, and says why.
    """
    for name, (only, why) in _ALONE[protocol].items():
        if field(name) != only:
            raise MisuseError(f"task: {name}={field(name)!r} contradicts protocol={protocol!r}: {why}")
