"""A client for code that is not async: training scripts, notebooks, other event loops.

    with parties.connect_blocking("alice.toml") as client:
        rows = client.retrieve({"items": ids})
        client.submit({"items": (ids, delta)})
        client.outcome()

The client is that of `parties.connect`; it lives in a trio loop of its own, in a thread of its own, so the caller may
run any other loop. Every call blocks its thread until it is done, and with it an asyncio loop that runs there.

Rules:

- What a call raises arrives as it is, with its traceback. An interrupt (Ctrl-C) cancels the call that is under way, and
  the client can be used further: a submission that was on its way is then `pending`.
- Calls from several threads are carried out one after the other.
- The thread ends with `close`, with the `with` block, with the last reference to the client, or with the interpreter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fsl_async.task import Task
from parties.client.abstaining import taking_part_blocking
from parties.client.arguments import Rows
from parties.client.client import Client
from parties.client.submission import LastSubmission
from parties.docstrings import documented_by
from parties.outcome import ClientOutcome, PrivacySpent, Retrieved, SubmissionReceipt
from parties.threads import FOR_EVER, Blocking, Calls, ResultT


@documented_by(Client)
class ClientAttributes(ABC):
    """What every front shows of a client, which lives in another thread."""

    @abstractmethod
    def _read(self, look: Callable[[Client], ResultT]) -> ResultT:
        """What can be seen of the client at once."""

    @property
    def name(self) -> str:
        """The client's."""
        return self._read(lambda client: client.name)

    @property
    def task(self) -> Task:
        """What is learnt."""
        return self._read(lambda client: client.task)

    @property
    def pending(self) -> int:
        """See `Client.pending`."""
        return self._read(lambda client: client.pending)

    @property
    def undecided(self) -> int:
        """See `Client.undecided`."""
        return self._read(lambda client: client.undecided)

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """See `Client.privacy_spent`."""
        return self._read(lambda client: client.privacy_spent)

    @property
    def left_out(self) -> Mapping[str, Sequence[int]]:
        """See `Client.left_out`."""
        return self._read(lambda client: dict(client.left_out))

    @property
    def unreported(self) -> LastSubmission | None:
        """See `Client.unreported`."""
        return self._read(lambda client: client.unreported)

    untold = unreported
    """The earlier name of `unreported`."""

    @property
    def round_number(self) -> int:
        """See `Client.round_number`."""
        return self._read(lambda client: client.round_number)

    @property
    def deferred(self) -> dict[str, npt.NDArray[np.uint32]]:
        """See `Client.deferred`."""
        return self._read(lambda client: dict(client.deferred))

    @property
    def bytes_sent(self) -> int:
        """See `Client.bytes_sent`."""
        return self._read(lambda client: client.bytes_sent)

    @property
    def bytes_received(self) -> int:
        """See `Client.bytes_received`."""
        return self._read(lambda client: client.bytes_received)


@documented_by(Client, awaited=False)
class BlockingClient(Blocking[Client], ClientAttributes):
    """A `Client` whose calls block; see there for what they do and raise.

    Every call takes a `timeout`, the seconds after which it is cancelled with a `TimeoutError`; without one it may wait
    for as long as the servers let it. Once the client is closed, every call raises a `MisuseError`; its
    attributes can still be read.

    Args:
        calls: reaches the client where it lives.
    """

    def __init__(self, calls: Calls[Client]) -> None:
        super().__init__(
            calls,
            "a blocking client is entered with `with`; `async with` is for parties.connect or net.client under trio, "
            "and for parties.aio on an asyncio loop",
        )

    def retrieve(self, rows: Rows, *, wait: bool = False, timeout: float = FOR_EVER) -> Retrieved:
        """See `Client.retrieve`."""
        return self._call(lambda client: client.retrieve(rows, wait=wait), timeout)

    def submit(
        self,
        updates: Mapping[str, Any],
        *,
        wait: bool = False,
        again: bool = False,
        late: Literal["next"] | None = None,
        timeout: float = FOR_EVER,
    ) -> SubmissionReceipt:
        """See `Client.submit`."""
        return self._call(lambda client: client.submit(updates, wait=wait, again=again, late=late), timeout)

    def taking_part(self) -> AbstractContextManager[None]:
        """See `Client.taking_part`."""
        return taking_part_blocking(self.abstain)

    def abstain(self, *, timeout: float = FOR_EVER) -> bool:
        """See `Client.abstain`."""
        return self._call(lambda client: client.abstain(), timeout)

    def unite(
        self, rows: Mapping[str, npt.ArrayLike], *, wait: bool = False, timeout: float = FOR_EVER
    ) -> SubmissionReceipt:
        """See `Client.unite`."""
        return self._call(lambda client: client.unite(rows, wait=wait), timeout)

    def union(self, *, wait: bool = False, timeout: float = FOR_EVER) -> dict[str, npt.NDArray[np.uint32]]:
        """See `Client.union`."""
        return self._call(lambda client: client.union(wait=wait), timeout)

    def resume(self, *, timeout: float = FOR_EVER) -> SubmissionReceipt:
        """See `Client.resume`."""
        return self._call(lambda client: client.resume(), timeout)

    def outcome(self, *, timeout: float = FOR_EVER) -> ClientOutcome:
        """See `Client.outcome`."""
        return self._call(lambda client: client.outcome(), timeout)

    def mark(self, updates: Mapping[str, Any]) -> bytes:
        """See `Client.mark`."""
        return self._read(lambda client: client.mark(updates))

    def mark_of_rows(self, rows: Mapping[str, npt.ArrayLike]) -> bytes:
        """See `Client.mark_of_rows`."""
        return self._read(lambda client: client.mark_of_rows(rows))

    def mark_reported(self) -> None:
        """See `Client.mark_reported`."""
        self._call(lambda client: client.mark_reported())

    note_told = mark_reported
    """The earlier name of `mark_reported`."""

    def forget_rounds(self) -> None:
        """See `Client.forget_rounds`."""
        self._call(lambda client: client.forget_rounds())

    def forget_session(self) -> None:
        """See `Client.forget_session`."""
        self._read(lambda client: client.forget_session())
