"""What a task's own rule has made of a round's sum, stored before the other server hears its digest.

    round-00000012/applied            value: how the round ended here, and the forms of the arrays
    round-00000012/applied/model/…    value: a block of the new model, raw
    round-00000012/applied/state/…    value: an array that the rule keeps, raw

Averages and optimizers give the same bits again, so nothing is stored of them; a function of one's own may not.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from parties.outcome import Done, Model, SumRefused
from parties.server.stored_arrays import ArrayForm, forms, keyed, puts, stored, under
from parties.storage.decoding import decode_stored
from parties.storage.store import Change, Put, Store


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
