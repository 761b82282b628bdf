"""A client of deployed servers, on an asyncio loop."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path

from fsl_async.errors import FslError
from parties.aio import front
from parties.aio.client import Client, ResultT, Standing
from parties.aio.front import Front, Opening
from parties.client import client as trio_client
from parties.deployment.connecting import StateFile, client_thread
from parties.deployment.connecting import connect as under_trio
from parties.identity.keys import Identity
from parties.threads import LoopThread, Work
from parties.watch import Watch, silent
from transport import Transport

FRONT = Front("parties.aio.connect", trio="parties.connect", blocking="parties.connect_blocking")


def connect(
    config: str | Path,
    identity: str | Path | Identity = "",
    watch: Watch = silent,
    *,
    token: str = "",
    state: StateFile = "",
    patience: float | None = None,
    transport: Transport | None = None,
) -> Opening[Client]:
    """A client of deployed servers, for a program on asyncio: see `parties.connect` for what it takes and raises.

        async with parties.aio.connect("alice.toml") as client:
            rows = await client.retrieve({"items": [3, 14]})

    In a notebook, where a client outlives its cell, `client = await parties.aio.connect("alice.toml")`, and in the end
    `await client.aclose()`. `watch` is called in the client's own thread.

    Raises:
        MisuseError: no asyncio loop runs here.
        FslError: as for `parties.connect`; no thread is left then.
    """

    async def make() -> Client:
        connecting = partial(under_trio, token=token, state=state, patience=patience, transport=transport)
        opening = partial(connecting, config, identity, watch)
        thread = await front.started(client_thread(opening))
        try:
            client = Client(_Connected(thread), await front.call(thread, _standing))
        except BaseException:
            with suppress(FslError):
                thread.close()
            raise
        weakref.finalize(client, thread.close)
        return client

    return Opening(FRONT, make)


async def _standing(client: trio_client.Client) -> Standing:
    return Standing.of(client)


class _Connected:
    """Reaches a client that has its thread for itself."""

    def __init__(self, thread: LoopThread[trio_client.Client]) -> None:
        self._thread = thread

    async def call(self, work: Work[trio_client.Client, ResultT]) -> ResultT:
        return await front.call(self._thread, work)

    async def aclose(self) -> None:
        await front.ended(self._thread)

    def forsake(self) -> None:
        self._thread.close()
