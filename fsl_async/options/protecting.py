"""What protects clients from servers and from each other: proofs, bounds, counts of contributors, noise."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import isqrt
from typing import Final, cast

import msgspec

from fsl_async.blocks import Sparse, check_range
from fsl_async.bounds import check_bound
from fsl_async.errors import MisuseError
from fsl_async.geometry import SEGMENTS
from fsl_async.options.fields import NO_UPDATES, Only, ProtocolName, TaskFields, check_choices, check_only
from fsl_async.privacy.accounting import Privacy
from fsl_async.privacy.doses import largest_noise
from fsl_async.privacy.utility import unlearnt

FIELDS: Final = ("security", "bound", "bound_proof", "largest_weight", "min_contributors", "lying_clients", "privacy")

LARGEST_COUNTED = 2**30 - 1
"""Rows whose contributors are counted: one message has a word of 32 bits for each."""
_BEYOND_FLOATS = 2**1000

_ALONE: Final[Only] = {
    "bound": (None, NO_UPDATES),
    "bound_proof": ("exact", NO_UPDATES),
    "largest_weight": (None, NO_UPDATES),
    "min_contributors": (
        None,
        "rounds of this protocol open no sums; leave min_contributors out",
    ),
    "privacy": (None, NO_UPDATES),
}

ONLY: Final[Mapping[ProtocolName, Only]] = {"psr": _ALONE, "psu": _ALONE}

_COUNTING: Final[Only] = {
    "security": (
        "verified",
        "without proofs a client could count any number of times; use security='verified', or leave min_contributors "
        "out",
    ),
    "alignment": (
        "all",
        "the union shows the rows of single clients; use alignment='all', or leave min_contributors out",
    ),
}
"""Where contributors are counted."""

_MEAN_OF_ROWS: Final[Only] = {
    "security": ("verified", "rows are divided by counts of clients, which need proofs; use apply='mean'"),
    "alignment": ("all", "contributors are counted on all rows of a block; use alignment='all', or apply='mean'"),
}


def check(task: TaskFields) -> None:
    """Check the fields of this topic; of two encodings of one value keep one; warn if noise leaves nothing to learn."""
    check_choices(task, {"security": ("verified", "semi-honest"), "bound_proof": ("exact", "projected")})
    check_only(task, "protocol", ONLY.get(task.protocol, {}))
    _check_contributors(task)
    _check_largest_weight(task)
    _check_bound(task)
    if task.privacy is not None:
        _check_privacy(task)
        if told := unlearnt(task):
            warnings.warn(f"task: {told}", stacklevel=3)


def _check_contributors(task: TaskFields) -> None:
    by_row = task.rule == "row-mean"
    if by_row and task.min_contributors is None:
        msgspec.structs.force_setattr(task, "min_contributors", 1)
    if task.min_contributors is None:
        if task.lying_clients != 1:
            raise MisuseError("task: lying_clients has no effect without min_contributors; add it, or leave both out")
        return
    check_range("task", "min_contributors", task.min_contributors, 1 if by_row else 2, task.max_clients)
    check_only(task, *(("apply", _MEAN_OF_ROWS) if by_row else ("min_contributors", _COUNTING)))
    what, instead = ('apply="row-mean"', 'apply="mean"') if by_row else ("min_contributors", "min_clients")
    if not any(isinstance(block, Sparse) for block in task.blocks):
        raise MisuseError(
            f"task: {what} counts the clients of each row of a sparse block, and this task has none; add a sparse "
            f"block, or use {instead}"
        )
    rows = sum(block.rows for _, block in task.sparse_blocks())
    if rows > LARGEST_COUNTED:
        raise MisuseError(
            f"task: {what} counts the clients of at most {LARGEST_COUNTED:,} rows, as many as fit in one message, and "
            f"this task has {rows:,}; leave it out, or divide the blocks among several tasks"
        )
    _check_lying_clients(task)


def _check_lying_clients(task: TaskFields) -> None:
    check_range("task", "lying_clients", task.lying_clients, 0, task.max_clients)
    if task.min_contributors == 1 and task.lying_clients in (0, 1):
        return  # no row is withheld from anybody
    times = SEGMENTS + max(block.stash for _, block in task.sparse_blocks())
    least = task.lying_clients * times + 2
    if cast(int, task.min_contributors) < least:
        clients = "one client that lies" if task.lying_clients == 1 else f"{task.lying_clients} clients that lie"
        raise MisuseError(
            f"task: min_contributors={task.min_contributors} does not withstand {clients}: each counts up to "
            f"{times} times for a row, and so opens a row that only one honest client has; use at least {least}, "
            "or lying_clients=0 if every client is trusted to keep the protocol"
        )


def _check_largest_weight(task: TaskFields) -> None:
    if task.bound is None or task.weights is None:
        if task.largest_weight is not None:
            raise MisuseError(
                "task: largest_weight needs both weights and a bound; add the missing one, or leave largest_weight out"
            )
        return
    if task.largest_weight is None:
        raise MisuseError(
            f"task: weights={task.weights!r} with a bound needs largest_weight = …, the most that one client "
            "weighs: otherwise a client with a negative weight could make the mean arbitrarily large; use 1.0 if "
            "clients divide their weights by the largest one"
        )
    if type(task.largest_weight) not in (int, float) or not 0 < task.largest_weight < _BEYOND_FLOATS:
        raise MisuseError(f"task: largest_weight must be a number above 0, not {task.largest_weight!r}")
    msgspec.structs.force_setattr(task, "largest_weight", float(task.largest_weight))


def _check_bound(task: TaskFields) -> None:
    if task.bound is None:
        if task.bound_proof != "exact":
            raise MisuseError(f"task: bound_proof={task.bound_proof!r} has no effect without a bound; add bound = …")
        return
    if type(task.bound) not in (int, float) or not 0 < task.bound < _BEYOND_FLOATS:
        raise MisuseError(f"task: bound must be a number above 0, not {task.bound!r}")
    if task.security == "semi-honest":
        raise MisuseError(
            "task: security='semi-honest' contradicts bound: only verified trees prove a bound; leave out one of them"
        )
    msgspec.structs.force_setattr(task, "bound", float(task.bound))
    if task.largest_weight is not None and not 1 <= task.largest_weight_integer <= task.bound_integer:
        raise MisuseError(
            f"task: largest_weight={task.largest_weight:g} must be at least {2.0**-task.ring.fraction_bits}, the "
            f"ring's smallest value, and at most bound={task.bound:g}: a weight is a part of what is bounded; "
            "divide weights by the largest one, or choose a larger bound"
        )
    check_bound(task)


def _check_privacy(task: TaskFields) -> None:
    if not isinstance(task.privacy, Privacy):
        raise MisuseError(f"task: privacy must be a Privacy, not {task.privacy!r}")
    if task.bound is None:
        raise MisuseError(
            "task: privacy needs a bound: the noise is a multiple of what one client can contribute; give the task "
            "bound = NORM, the largest L2 norm of one client's update"
        )
    if task.alignment == "union":
        raise MisuseError(
            "task: alignment='union' contradicts privacy: the union shows which rows were selected, and noise on the "
            "sums does not hide it; leave one of the two out"
        )
    _check_delta(task)
    _check_counts(task)
    stash = max((block.stash for _, block in task.sparse_blocks()), default=0)
    most = task.max_clients * task.bound_integer * (isqrt(3 + stash) + 1) + task.noise_reach
    if most >= 2 ** (task.ring.bits - 1):
        raise MisuseError(
            f"task: the sum of {task.max_clients} clients with bound={task.bound:g} and privacy.noise="
            f"{task.privacy.noise:g} could wrap {task.ring.bits} bits: it needs {most.bit_length() + 1}; use fewer "
            f"fraction bits than {task.ring.fraction_bits}, a larger ring, a smaller bound or less noise"
        )


def _check_delta(task: TaskFields) -> None:
    """Refuse a δ with which a server that publishes one client's update whole would keep the promise."""
    privacy = task.privacy
    if privacy is not None and not privacy.large_delta and privacy.delta * task.max_clients > 1:
        raise MisuseError(
            f"task: privacy.delta={privacy.delta:g} is more than 1/max_clients = {1 / task.max_clients:.3g}: such a "
            "delta allows servers to publish one client's whole update; use a far smaller one, such as 1e-6, or "
            "large_delta=True if you mean it"
        )


def _check_counts(task: TaskFields) -> None:
    """Refuse noise on counts of contributors that their 32 bits have no room for."""
    blocks = [block for _, block in task.sparse_blocks()]
    reach = largest_noise(task.doses.counts, sum(block.rows for block in blocks))
    if (
        task.min_contributors is not None
        and reach + task.max_clients * max(3 + block.stash for block in blocks) >= 2**31
    ):
        raise MisuseError(
            f"task: privacy.noise={task.privacy.noise if task.privacy else 0:g} on the counts of contributors could "
            "wrap 32 bits; use less noise, or leave min_contributors out"
        )
