"""What the strategy wants of the two servers: the open round, its end, and the public model.

Rules: every wait ends, and names the server and what it is at; the operator's port of either server is enough, because
the other one closes when it hears of it; the model comes from both servers, and is believed where they agree on its
digest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
import trio

from fsl_async.errors import FslError, MisuseError
from fsl_async.task import Task
from parties.deployment.connecting import connect_blocking
from parties.deployment.operator_port import operator_port
from parties.errors import RoundClosedError
from parties.operator.answers import Aborting, Closing, RoundsAnswer, StatusAnswer
from parties.operator.queries import OperatorPort
from parties.settings.party_file import ClientFile
from parties.settings.task_file import Deployment
from parties.status import RoundSummary
from transport import UnreachableError

PAUSE = 0.2
TRIES = 3
"""A download that a round's end interrupts is begun again in the next round."""

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class Servers:
    """The two servers, as the strategy reaches them.

    Attributes:
        task: what is learnt.
        port: the operator's port of one of them.
        client: the file of the client that downloads the model.
        patience: seconds to wait for a server, or for a step of a round that nobody has to train for.
    """

    task: Task
    port: OperatorPort
    client: Path
    patience: float

    @staticmethod
    def of(operator: str, client: Path, token_file: Path | None, patience: float) -> Servers:
        """The servers that a client's file names.

        Raises:
            MisuseError: a file is missing or wrong.
        """
        task = Deployment.load(ClientFile.load(client).task).task
        return Servers(task, operator_port(operator, token_file), client, patience)

    def check_there(self) -> None:
        """Ask the operator's port once.

        Raises:
            ChannelError: nothing answers there; the message has the address.
            MisuseError: the server does not have the task.
        """
        self._get("/status.json", StatusAnswer)

    def open_round(self) -> int:
        """The number of the round that is open; waits for it.

        Raises:
            ChannelError: the server cannot be reached.
            FslError: none opens in time.
        """
        return self._within(self._open_round, "no round has opened")

    def close(self, number: int) -> None:
        """Close a round with the submissions that it has; abort it if they are too few; where it is over, do nothing.

        A server that is away, or has not found the other one yet, as after a restart, is asked again.

        Raises:
            MisuseError: the operator's token is missing or wrong.
            FslError: it cannot be closed in time, and is not over.
        """
        end = time.monotonic() + self.patience
        while True:
            try:
                if self._closing(number):
                    return
            except MisuseError:
                if self._summary(number) is None:
                    raise
                return
            except FslError:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                return  # whoever waits for the outcome says what the server is at
            time.sleep(PAUSE)

    def outcome(self, number: int) -> RoundSummary:
        """How a round ended; waits for it.

        Raises:
            FslError: it has not ended in time.
        """
        return self._within(lambda: self._summary(number), f"round {number} has not ended")

    def model(self) -> dict[str, npt.NDArray[Any]]:
        """By block, the whole public model, as both servers have it.

        Raises:
            ChannelError: a server cannot be reached.
            FslError: as for `Client.retrieve`.
        """
        everything = {block.name: ... for block in self.task.blocks if block.name != self.task.weights}
        with connect_blocking(self.client, patience=self.patience) as client:
            for left in reversed(range(TRIES)):
                try:
                    return client.retrieve(everything, timeout=self.patience)
                except RoundClosedError:
                    if not left:
                        raise
                except TimeoutError:
                    break
        raise FslError(f"the servers opened no round within {self.patience:g} seconds: see `fsl-async status`")

    def _open_round(self) -> int | None:
        running = self._get("/status.json", StatusAnswer).round
        return running.number if running is not None and running.state == "Open" else None

    def _closing(self, number: int) -> bool:
        """Whether a round is being closed or is over; closes or aborts it where it is open."""
        running = self._get("/status.json", StatusAnswer).round
        if running is None or running.number != number:
            return self._summary(number) is not None
        if running.state != "Open":
            return True
        here, needed = running.submissions, running.minimum
        if here < needed:
            because = f"Flower's nodes have replied, and {here} of the {needed} submissions that are needed came"
            self._change(f"/rounds/{number}/abort", Aborting, because=because)
        else:
            self._change(f"/rounds/{number}/close", Closing)
        return True

    def _summary(self, number: int) -> RoundSummary | None:
        rounds = self._get(f"/rounds.json?last=1&before={number + 1}", RoundsAnswer).rounds
        return next((each for each in rounds if each.number == number), None)

    def _within(self, look: Callable[[], AnswerT | None], otherwise: str) -> AnswerT:
        end = time.monotonic() + self.patience
        while (found := self._if_there(look, end)) is None:
            if time.monotonic() > end:
                status = self._get("/status.json", StatusAnswer)
                raise FslError(
                    f"{otherwise} within {self.patience:g} seconds; {status.server} is at: {status.stage}"
                    + (f", waiting for {status.waiting_for}" if status.waiting_for else "")
                    + "; see its page, or `fsl-async status`"
                )
            time.sleep(PAUSE)
        return found

    def _if_there(self, look: Callable[[], AnswerT | None], end: float) -> AnswerT | None:
        """What is seen; nothing while the server is away, as it is when it is started again."""
        try:
            return look()
        except UnreachableError:
            if time.monotonic() > end:
                raise
            return None

    def _get(self, path: str, kind: type[AnswerT]) -> AnswerT:
        return trio.run(partial(self.port.get, path, kind, task=self.task.name))

    def _change(self, path: str, kind: type[AnswerT], **arguments: str) -> AnswerT:
        return trio.run(partial(self.port.change, "POST", path, kind, task=self.task.name, **arguments))
