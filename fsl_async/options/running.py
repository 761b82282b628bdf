"""What a round runs, and on which blocks and rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from fsl_async.blocks import Dense, Sparse, check_name
from fsl_async.errors import MisuseError
from fsl_async.options.fields import NO_UPDATES, Only, ProtocolName, TaskFields, check_choices, check_only

FIELDS: Final = ("name", "blocks", "protocol", "selection", "updates", "alignment")

LARGEST_BLOCKS = 32

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "protocol": ("ssa", "psr", "psu"),
    "selection": ("adaptive", "fixed"),
    "updates": ("retrieved", "any"),
    "alignment": ("all", "union"),
}

ONLY: Final[Mapping[ProtocolName, Only]] = {
    "psr": {
        "updates": ("retrieved", NO_UPDATES),
        "alignment": ("all", "rounds of this protocol take no submissions; leave alignment out"),
        "selection": ("adaptive", "rounds of this protocol take no submissions; leave selection out"),
    },
    "psu": {
        "updates": ("retrieved", NO_UPDATES),
        "alignment": ("all", "every round of this protocol finds a union; leave alignment out"),
        "selection": ("adaptive", "with fixed rows every round would find the same union; leave selection out"),
    },
}


def check(task: TaskFields) -> None:
    """Check the fields of this topic, and keep the blocks as a tuple."""
    check_name("task", task.name)
    _check_blocks(task)
    check_choices(task, _CHOICES)
    check_only(task, "protocol", ONLY.get(task.protocol, {}))
    _check_protocol(task)


def _check_blocks(task: TaskFields) -> None:
    if not isinstance(task.blocks, list | tuple):
        raise MisuseError(f"task: a list of blocks expected, got {task.blocks!r}")
    msgspec.structs.force_setattr(task, "blocks", tuple(task.blocks))
    if not 1 <= len(task.blocks) <= LARGEST_BLOCKS:
        raise MisuseError(f"task: 1 to {LARGEST_BLOCKS} blocks expected, got {len(task.blocks)}")
    if not all(isinstance(block, Sparse | Dense) for block in task.blocks):
        raise MisuseError("task: every block must be a Sparse or a Dense")
    names = [block.name for block in task.blocks]
    if len(set(names)) != len(names):
        raise MisuseError(f"task: block names must differ, got {names}")


def _check_protocol(task: TaskFields) -> None:
    sparse = [isinstance(block, Sparse) for block in task.blocks]
    if task.protocol == "psr" and not any(sparse):
        raise MisuseError("task: protocol='psr' needs a sparse block: dense blocks are read whole, without privacy")
    if task.protocol == "psu" and not all(sparse):
        raise MisuseError("task: protocol='psu' takes sparse blocks alone: of a dense block every client has all rows")
