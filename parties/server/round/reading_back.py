"""Bulk that is read back from blobs, compared with the digest that the store has of it.

What is altered or missing is never evaluated, answered or sent on. The operator is told which blob it is, and its round
waits, until it is put back or the round is aborted. Comparing is the lane's work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fsl_async.bounds import private_digest
from fsl_async.derivation import dense_digest, public_digest, tree_digest
from fsl_async.digests import same
from fsl_async.task import Task
from fsl_async.wire.public_part import Layout, Trees
from parties.compute import ComputeLane
from parties.events import Observer, Warned, unobserved
from parties.server.store_layout import Purpose
from parties.storage.blobs.blobs import Blobs, HarmedBlobError

__all__ = ["AlteredError", "ReadBack", "altered", "layouts_of"]


class AlteredError(HarmedBlobError):
    """A blob has other content than was put."""


class ReadBack:
    """Reads a round's blobs.

    Args:
        blobs: where they are.
        lane: where they are compared.
        task: as the round works on it.
        observe: hears of blobs that are altered or missing, once of each.
    """

    def __init__(self, blobs: Blobs, lane: ComputeLane, task: Task, observe: Observer = unobserved) -> None:
        self._blobs = blobs
        self._lane = lane
        self._task = task
        self._observe = observe
        self._told: set[str] = set()

    async def part(self, place: str, purpose: Purpose, name: bytes) -> memoryview:
        """A public part.

        Args:
            place: the blob's name.
            purpose: what the part is for.
            name: its digest.

        Raises:
            HarmedBlobError: it is not the one that was put, or is missing.
            StorageError: it cannot be read.
        """
        return await self._found(place, partial(self._is_part, purpose, name))

    async def trees(self, place: str, layout: Layout, name: bytes) -> memoryview:
        """The trees of a session that were put for this round, by the digest of the trees; see `part`."""
        return await self._found(place, lambda content: _has_trees(layout, content, name))

    async def dense(self, place: str, name: bytes, seed: bytes) -> memoryview:
        """A share of dense blocks, whose digest is keyed with its client's seed; see `part`."""
        return await self._found(place, lambda content: same(dense_digest(content, seed), name))

    async def private(self, place: str, name: bytes, seed: bytes) -> memoryview:
        """The private part of a bound's proof, likewise."""
        return await self._found(place, lambda content: same(private_digest(content, seed), name))

    async def _found(self, place: str, is_right: Callable[[memoryview], bool]) -> memoryview:
        try:
            content = await self._blobs.read(place)
            if not await self._lane.run(partial(is_right, content)):
                raise altered(place)
        except HarmedBlobError as error:
            if place not in self._told:
                self._told.add(place)
                self._observe(Warned(about="blobs", explanation=f"{error}; its round waits for it, or for its end"))
            raise
        self._told.discard(place)
        return content

    def _is_part(self, purpose: Purpose, name: bytes, content: memoryview) -> bool:
        """Whether a part has a digest; parts of one size lie alike, as far as digests go."""
        for layout in layouts_of(self._task, purpose):
            if layout.size == len(content):
                return same(public_digest(layout, content, tree_digest(layout, content)), name)
        return False


def _has_trees(layout: Layout, content: memoryview, name: bytes) -> bool:
    return len(content) == layout.size and same(tree_digest(layout, content), name)


def layouts_of(task: Task, purpose: str) -> list[Layout]:
    """How public parts for that purpose may lie."""
    if purpose == "retrieve":
        return [Layout.retrieval(task)]
    return [Layout.submission(task, trees) for trees in Trees]


def altered(place: str) -> AlteredError:
    """The error for a blob that is not what was put."""
    return AlteredError(
        f'the blob {place} has other content than was put: docs/operations.md says what to do under "A store is '
        'damaged"'
    )
