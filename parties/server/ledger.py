"""What a server's rounds have spent of the task's privacy budget.

    spent/<number>             value: `Charge`: the round's share was sent, or was about to be
    spent/<number>-restored    value: the same, of a round that may have been opened after the copy was made from which
                               this store was restored

Rules: a round is charged in the commit that records the state in which its share is sent, whatever becomes of it: the
other server may take the share and halt. Nothing is ever taken back. The round for which the budget does not last is
never opened; one that has begun goes on. A store that was restored may have forgotten a round: it is charged for one.
"""

from __future__ import annotations

import msgspec

from fsl_async.privacy.accounting import Privacy
from fsl_async.task import Task
from parties.events import Observer, PrivacyCharged, unobserved
from parties.status import Note
from parties.storage.store import Put, Store, decode_stored

SPENT = "spent/"


class Charge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round that is charged.

    Attributes:
        number: the round's number.
        round_id: which round; empty where that is not known.
    """

    number: int
    round_id: bytes = b""


class PrivacyLedger:
    """One server's ledger.

    Args:
        task: the task; one without `privacy` spends nothing.
        store: where the ledger is.
        observe: hears of every charge.
    """

    def __init__(self, task: Task, store: Store, observe: Observer = unobserved) -> None:
        self._privacy = task.privacy
        self._store = store
        self._observe = observe
        self._charged: set[str] = set()

    async def restore(self) -> None:
        """Read back what is charged.

        Raises:
            StorageError: it cannot be read.
        """
        for key in await self._store.keys(SPENT):
            decode_stored(await self._store.blob(key), Charge, key)
            self._charged.add(key)

    @property
    def rounds(self) -> int:
        """How many rounds are charged."""
        return len(self._charged)

    def changes(self, number: int, round_id: bytes) -> list[Put]:
        """What charges a round, in the commit after which its share is sent: nothing where it is charged already."""
        if self._privacy is None or _key(number) in self._charged:
            return []
        return [Put(_key(number), msgspec.msgpack.encode(Charge(number=number, round_id=round_id)))]

    def adopt(self, number: int) -> None:
        """A round's charge is stored."""
        if self._privacy is not None and _key(number) not in self._charged:
            self._charged.add(_key(number))
            self._tell(self._privacy, number)

    async def charge_forgotten(self, number: int) -> None:
        """Charge for the round that this store may have forgotten, because it was made from a copy.

        Args:
            number: of the first round that is not over in the copy.

        Raises:
            StorageError: it could not be stored.
        """
        key = f"{_key(number)}-restored"
        if self._privacy is not None and key not in self._charged:
            await self._store.commit(Put(key, msgspec.msgpack.encode(Charge(number=number))))
            self._charged.add(key)
            self._tell(self._privacy, number)

    def refusal(self, number: int) -> str:
        """Why a round that has not begun is not opened; empty where the budget lasts for it."""
        privacy = self._privacy
        if privacy is None or self.rounds < privacy.rounds:
            return ""
        return (
            f"round {number} is not opened: {self.rounds} rounds have spent ε = {privacy.epsilon(self.rounds):.4g} of "
            f"the privacy budget of {privacy.budget:g}, and one more would exceed it. The model is as the last round "
            "left it (`fsl-async backup --model` writes it); to go on, both servers and all clients must agree on a "
            "new task"
        )

    def notes(self) -> tuple[Note, ...]:
        """What is spent, for the operator; nothing where no noise is added."""
        privacy = self._privacy
        if privacy is None:
            return ()
        spent, more = privacy.epsilon(self.rounds), privacy.epsilon(self.rounds + 1)
        note = Note(
            title="Privacy spent",
            text=f"ε {spent:.3g} of {privacy.budget:g}",
            more=f"{self.rounds:,} of {privacy.rounds:,} rounds, δ = {privacy.delta:g}; one more would make it ε = "
            f"{more:.3g}",
            poor=self.rounds >= privacy.rounds,
            figures={"privacy_rounds": self.rounds, "privacy_epsilon": spent, "privacy_budget": privacy.budget},
        )
        return (note,)

    def _tell(self, privacy: Privacy, number: int) -> None:
        spent = privacy.epsilon(self.rounds)
        self._observe(PrivacyCharged(number=number, rounds=self.rounds, epsilon=spent, budget=privacy.budget))


def _key(number: int) -> str:
    return f"{SPENT}{number:08}"
