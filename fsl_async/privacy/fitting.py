"""What a task with noise cannot be: without a bound, aligned on unions, or in a ring too small for its sums."""

from __future__ import annotations

from math import isqrt

from fsl_async.errors import MisuseError
from fsl_async.options.fields import TaskFields
from fsl_async.privacy.setting import Privacy
from fsl_async.privacy.tails import largest_noise


def check_privacy(task: TaskFields) -> None:
    """Check the fields of a task with noise that contradict it.

    Raises:
        MisuseError: a field contradicts it; the message names both, and says why.
    """
    if not isinstance(task.privacy, Privacy):
        raise MisuseError(f"task: privacy must be a Privacy, not {task.privacy!r}")
    if task.bound is None:
        raise MisuseError(
            "task: privacy needs a bound: the noise is a multiple of what one client can contribute; give the task "
            "bound = NORM, the largest L2 norm of one client's update"
        )
    if task.alignment == "union":
        raise MisuseError(
            "task: alignment='union' contradicts privacy: a union tells exactly which rows somebody has selected, and "
            "noise in the sums hides nothing of it; leave one of them out"
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
            f"task: privacy.delta={privacy.delta:g} is more than 1/max_clients = {1 / task.max_clients:.3g}: ε says "
            "nothing with that probability, and publishing one client's whole update would be allowed; use a far "
            "smaller delta, such as 1e-6, or say large_delta=True if it is meant"
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
