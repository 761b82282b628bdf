"""Two servers over TCP in a thread of their own, and the files with which clients, in whatever process, reach them."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import trio

from fsl_async.task import Task
from parties import connect_blocking
from parties.client.blocking import BlockingClient
from parties.outcome import RoundOutcome
from parties.settings.writing import write_deployment
from tests.support.shop import TASK, Shop

NAMES = ("anna", "ben", "carol")


class Town:
    """Two servers over TCP in a thread, and the files that clients need to reach them."""

    def __init__(self, folder: Path, task: Task = TASK) -> None:
        self.folder = folder
        self.task = task
        self.ready = threading.Event()
        self.thread = threading.Thread(target=trio.run, args=(self._run,))

    async def _run(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self.stop = trio.Event()
        async with trio.open_nursery() as nursery:
            self.shop = Shop(nursery, self.task)
            await self.shop.open()
            for name in NAMES:
                self.shop.client(name)
                self.shop.known[name].save(self.folder / f"{name}.key")
            publics = [identity.public for identity in self.shop.identities]
            known = [identity.public for identity in self.shop.known.values()]
            write_deployment(self.folder, self.task, publics, self.shop.addresses, known)
            self.ready.set()
            await self.stop.wait()
            nursery.cancel_scope.cancel()

    def do(self, work: Callable[..., Any], *args: Any) -> Any:
        return trio.from_thread.run(work, *args, trio_token=self.token)

    def finish_round(self) -> RoundOutcome:
        return self.do(self.shop.finish_round)

    def connect(self, name: str, **words: Any) -> BlockingClient:
        return connect_blocking(self.folder / "task.toml", self.folder / f"{name}.key", **words)

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *error: object) -> None:
        trio.from_thread.run_sync(self.stop.set, trio_token=self.token)
        self.thread.join(30)
