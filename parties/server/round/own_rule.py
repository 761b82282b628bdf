"""A task's own rule: the function that its servers apply to a sum, found by its name.

A server runs it with all its rights. So a server that is set up from files imports only what its own file names as
well; see `parties.deployment.server`.

What it has made of a round's sum is stored before the other server hears its digest:

    round-00000012/applied            value: how the round ended here, and the forms of the arrays
    round-00000012/applied/model/…    value: a block of the new model, raw
    round-00000012/applied/state/…    value: an array that the rule keeps, raw

Averages and optimizers give the same bits again, so nothing is stored of them; a function of one's own may not.

The operator hears while a rule takes long: nothing else says why the round does not go on. It has no limit of time. Its
thread cannot be stopped, so a server that went on without it would leave it at work on
arrays of the round; and a limit by the clock would pass on one server and not on the other, which are to do the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, sole_error
from fsl_async.server_rules import OwnRule
from fsl_async.task import Task
from parties.events import Observer, Warned
from parties.outcome import Done, Model, SumRefused
from parties.server.stored_arrays import ArrayForm, forms, keyed, puts, stored, under
from parties.storage.store import Change, Put, Store, decode_stored


def own_rule(task: Task, given: OwnRule | None = None) -> OwnRule | None:
    """The function that a task applies: the given one, or the one that its name leads to; None where it has none.

    Raises:
        MisuseError: the module cannot be imported, or has no such function; or a function is given to a task that
            applies none.
    """
    if task.rule != "own":
        if given is not None:
            raise MisuseError(f'a function was given, and the task applies the "{task.apply}"; leave the function out')
        return None
    return found(str(task.apply)) if given is None else given


def found(name: str) -> OwnRule:
    """The function of a name "module:function".

    Raises:
        MisuseError: there is none.
    """
    module, _, inner = name.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for part in inner.split("."):
            function = getattr(function, part)
    except (Exception, SystemExit) as error:  # an import runs whatever the module holds
        raise MisuseError(
            f'apply = "{name}" cannot be imported: {type(error).__name__}: {error}; install the package of {module!r} '
            "beside fsl-async, or name its folder in PYTHONPATH"
        ) from error
    if not callable(function):
        raise MisuseError(f'apply = "{name}" is no function, but {type(function).__name__}')
    rule: OwnRule = function
    return rule


class StoredResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is stored beside the arrays."""

    ending: Done | SumRefused
    forms: dict[str, ArrayForm]


@dataclass(frozen=True)
class OwnResult:
    """What an own rule has made of a sum.

    Attributes:
        ending: whether the sum was applied, or why it was refused.
        model: the model after the round.
        state: what the rule keeps after the round.
    """

    ending: Done | SumRefused
    model: Model
    state: Model

    def changes(self, prefix: str) -> list[Change]:
        """The changes that store it among a round's records."""
        place = f"{prefix}/applied"
        arrays = keyed(f"{place}/model/", self.model) | keyed(f"{place}/state/", self.state)
        kept = arrays if isinstance(self.ending, Done) else {}
        return [Put(place, msgspec.msgpack.encode(StoredResult(self.ending, forms(kept)))), *puts(kept)]

    @staticmethod
    async def read(store: Store, prefix: str) -> OwnResult | None:
        """Read it back; None if the sum has not been applied yet.

        Raises:
            StorageError: it cannot be read.
        """
        place = f"{prefix}/applied"
        if place not in await store.keys(place):
            return None
        found: StoredResult = decode_stored(await store.blob(place), StoredResult, place)
        arrays = await stored(store, found.forms)
        return OwnResult(found.ending, under(f"{place}/model/", arrays), under(f"{place}/state/", arrays))


ResultT = TypeVar("ResultT")

PATIENCE = 60.0
"""Seconds until the first warning; each further one comes after twice as long a time."""


async def watched(work: Callable[[], Awaitable[ResultT]], config: RoundConfig, observe: Observer) -> ResultT:
    """Do what applies a round's sum by the task's own rule, and warn while it is not done."""
    with sole_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_warn, config, observe)
            result = await work()
            nursery.cancel_scope.cancel()
    return result


async def _warn(config: RoundConfig, observe: Observer) -> None:
    pause = waited = PATIENCE
    while True:
        await trio.sleep(pause)
        explanation = (
            f"{config.task.apply} has been at work on the sum of round {config.number} for {waited:,.0f} s; the round "
            "waits until it returns. If it never will, kill this process: that loses nothing, and the rule is called "
            "again when the server is started again"
        )
        observe(Warned(about="apply", explanation=explanation))
        pause, waited = waited, 2 * waited
