"""What is summed, in which ring, and what servers do with a sum."""

from __future__ import annotations

from collections.abc import Mapping
from math import ldexp
from typing import Final

import msgspec

from fsl_async.blocks import Dense
from fsl_async.errors import MisuseError
from fsl_async.options.fields import NO_UPDATES, Only, ProtocolName, TaskFields, check_only
from fsl_async.ring import Ring, float_below
from fsl_async.server_rules import Optimizer, check_apply

FIELDS: Final = ("ring", "largest", "apply", "weights", "optimizer")

NO_RING: Final = Ring(64)
"""In the ring's place where a task has no updates: unions are found in this ring, and retrievals need none."""

_ALONE: Final[Only] = {
    "ring": (NO_RING, NO_UPDATES),
    "largest": (None, NO_UPDATES),
    "apply": ("sum", NO_UPDATES),
    "weights": (None, NO_UPDATES),
    "optimizer": (None, NO_UPDATES),
}

ONLY: Final[Mapping[ProtocolName, Only]] = {"psr": _ALONE, "psu": _ALONE}


def check(task: TaskFields) -> None:
    """Check the fields of this topic; of two encodings of one value keep one."""
    if task.protocol != "ssa" and task.ring is None:
        msgspec.structs.force_setattr(task, "ring", NO_RING)
    check_only(task, "protocol", ONLY.get(task.protocol, {}))
    if not isinstance(task.ring, Ring):
        raise MisuseError(f"task: ring must be a Ring, not {task.ring!r}")
    _check_largest(task)
    _check_rule(task)
    _check_weights(task)


def _check_largest(task: TaskFields) -> None:
    room = task.room_per_client
    if room < 1:
        raise MisuseError(f"task: the ring is too small for max_clients={task.max_clients}; use a larger one")
    if task.largest is None:
        return
    if type(task.largest) not in (int, float) or not task.largest * 2**task.ring.fraction_bits >= 1:
        raise MisuseError(
            f"task: largest must be a number of at least {2.0**-task.ring.fraction_bits}, the ring's smallest "
            f"value, not {task.largest!r}"
        )
    unit = 2**task.ring.fraction_bits
    if task.largest * unit > room or float(task.largest) * unit > room:
        raise MisuseError(
            f"task: {task.max_clients} clients × largest value {task.largest} could wrap {task.ring.bits} bits "
            f"with {task.ring.fraction_bits} behind the point; the largest possible is "
            f"{ldexp(float_below(room), -task.ring.fraction_bits)}"
        )
    # One number, one encoding: 5 and 5.0 must not give two digests.
    msgspec.structs.force_setattr(task, "largest", float(task.largest))


def _check_rule(task: TaskFields) -> None:
    msgspec.structs.force_setattr(task, "apply", check_apply(task.apply))
    if not isinstance(task.optimizer, Optimizer | None):
        raise MisuseError(f"task: optimizer must be an Sgd, a Momentum or an Adam, not {task.optimizer!r}")
    if task.rule == "own" and task.optimizer is not None:
        raise MisuseError(f"task: apply = {task.apply!r} decides about the model alone; leave the optimizer out")
    if task.rule not in ("sum", "own") or task.optimizer is not None:
        _check_fractions(task, "optimizer" if task.rule == "sum" else f'apply = "{task.rule}"')


def _check_fractions(task: TaskFields, what: str) -> None:
    if task.ring.fraction_bits == 0:
        raise MisuseError(
            f"task: {what} needs a ring with fraction bits; use Ring({task.ring.bits}, "
            f"fraction_bits={task.ring.bits * 3 // 8})"
        )


def _check_weights(task: TaskFields) -> None:
    if task.weights is None:
        if task.rule == "weighted-mean":
            raise MisuseError(
                'task: apply = "weighted-mean" needs weights = "BLOCK", the name of a Dense block of size 1 in '
                "which each client submits its weight"
            )
        return
    if task.rule not in ("weighted-mean", "own"):
        raise MisuseError(f'task: weights belong to apply = "weighted-mean", and apply is "{task.apply}"')
    block = task.block(task.weights)
    if not isinstance(block, Dense) or block.size != 1:
        raise MisuseError(f"task: weights = {task.weights!r} must name a Dense block of size 1, not {block!r}")
    if len(task.blocks) == 1:
        raise MisuseError(f"task: the only block, {task.weights!r}, has weights; add a block with a model")
