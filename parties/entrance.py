"""Into a round: what the servers announce, compared with what this client knows before it believes any of it."""

from __future__ import annotations

from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.messages import Enter, Opened
from parties.client_session import OwnSession, TreeSession
from parties.client_setup import ClientSetup
from parties.refusals import RoundClosedError
from parties.requests import Requests, task_difference

__all__ = ["Entrance"]


class Entrance:
    """Where one client hears of rounds."""

    def __init__(self, setup: ClientSetup, requests: Requests) -> None:
        self._setup = setup
        self._requests = requests

    async def announced(self, server: int, after: int, session: OwnSession) -> RoundConfig:
        """Wait for one server's announcement of an open round with a number above `after`.

        Raises:
            MisuseError: the round is of another task.
            PeerViolationError: it is not of the pinned servers, or not of this client's session.
        """
        opened = await self._requests.ask(server, Enter(after), (), Opened)
        config = RoundConfig.parse(opened.message.config, f"S{server}")
        if config.task != self._setup.task:
            raise MisuseError(task_difference(server, self._setup.task, config.task))
        if config.servers != tuple(identity.keys for identity in self._setup.servers):
            raise PeerViolationError(f"S{server}", "announces a round with other server keys than the pinned ones")
        if isinstance(session, TreeSession) and session.stands:
            _check_session(server, config, session)
        return config

    async def still_open(self, config: RoundConfig, session: OwnSession) -> bool:
        """Whether both servers still announce a round; where none is open, wait for the next one to tell.

        A server that refuses to announce anything, as no honest one does, does not announce this one either.
        """
        for server in (0, 1):
            try:
                announced = await self.announced(server, config.number - 1, session)
            except RoundClosedError:
                return False
            if announced.round_id() != config.round_id():
                return False
        return True


def _check_session(server: int, config: RoundConfig, session: TreeSession) -> None:
    """Refuse a round for whose seed the session's trees were not planted."""
    begun = session.planting.config
    if (config.session, config.hash_seed) != (begun.session, begun.hash_seed):
        raise PeerViolationError(
            f"S{server}",
            f"announces the seed of round {config.session}, this session's is of round {begun.session}"
            f"{', and another one' if config.session == begun.session else ''}; `forget_session` begins a new one",
        )
