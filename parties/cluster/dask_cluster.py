"""Dask's `distributed` as a cluster: what the process that talks to Dask for a server sees of it.

A call is a task that only its worker may run, under a random name; its result comes from the worker and not through the
scheduler. Dask computes a task again elsewhere when its worker dies; so a call is given up here as soon as the
scheduler does not list its worker any more.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio
from distributed import Client, Future, KilledWorker, Security
from distributed.worker import get_worker

from parties.cluster.cluster import Cluster, ClusterAwayError, Members, Reply, WorkerLostError

LOOKED_EVERY = 0.5
"""Seconds after which the scheduler is asked again who is there."""

ANSWER_SECONDS = 10.0
"""A scheduler that has not answered by then is away."""

AT_ONCE = 256
"""Calls whose results are on their way at a time."""

OWN_HANDLERS: Final = ("distributed", "distributed.client", "bokeh", "tornado", "tornado.application")
"""Loggers that Dask gives handlers of its own, when it is imported."""


def speak_through_our_log() -> None:
    """Have what Dask logs go where everything goes, warnings and errors alone."""
    for name in OWN_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)


def security_with(ca: str, certificate: str, key: str) -> Security:
    """Mutual TLS with the certificate of an authority, a certificate that it has signed, and its key."""
    both = {
        f"tls_{role}_{what}": path
        for role in ("client", "scheduler", "worker")
        for what, path in (("cert", certificate), ("key", key))
    }
    return Security(tls_ca_file=ca, require_encryption=True, **both)


def member_name(belongs: str) -> str:
    """A name for one life of a worker, which says to whom it belongs."""
    return f"{belongs}-{secrets.token_hex(6)}"


def perform(action: str, order: bytes) -> Reply:
    """What a task runs, in a thread of the worker's process: it hands the order to the worker's own side."""
    return get_worker().perform(action, order)  # type: ignore[no-any-return]


class DaskCluster(Cluster):
    """The workers of one scheduler that belong to one task of this server.

    Args:
        where: the scheduler's address, tls://host:port, or tcp:// on this host.
        security: the certificates; None with tcp.
        belongs: how the names of this task's workers begin.
    """

    kind = "dask"

    def __init__(self, where: str, security: Security | None, belongs: str) -> None:
        self.where = where
        self._security = security
        self._belongs = f"{belongs}-"
        self._client: Client | None = None
        self._gone: dict[str, trio.Event] = {}
        self._limiter = trio.CapacityLimiter(AT_ONCE)

    async def stay_connected(self, changed: Callable[[Members], None]) -> None:
        """See `Cluster.stay_connected`."""
        speak_through_our_log()
        before: Members | None = None
        client = await self._asked(self._connected)
        try:
            self._client = client
            while True:
                members = await self._asked(partial(self._members, client))
                if members != before:
                    before = members
                    self._lose(self._gone.keys() - members.keys())
                    self._gone |= {name: trio.Event() for name in members.keys() - self._gone.keys()}
                    changed(members)
                await trio.sleep(LOOKED_EVERY)
        finally:
            self._client = None
            self._lose(set(self._gone))
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(partial(client.close, timeout=ANSWER_SECONDS), limiter=self._limiter)

    async def call(self, worker: str, action: str, order: bytes) -> Reply:
        """See `Cluster.call`."""
        gone, client = self._gone.get(worker), self._client
        if gone is None or client is None:
            raise WorkerLostError("it is gone")
        future: Future = client.submit(
            perform, action, order, key=f"{action}-{secrets.token_hex(8)}", workers=[worker], pure=False, retries=0
        )
        ended: list[Reply | WorkerLostError] = []
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._await_result, client, future, ended, nursery.cancel_scope)
                await gone.wait()
                nursery.cancel_scope.cancel()
        finally:
            future.release()
        match ended:
            case [WorkerLostError() as error]:
                raise error
            case [Reply() as reply]:
                return reply
        raise WorkerLostError("it is gone")

    async def _await_result(
        self, client: Client, future: Future, ended: list[Reply | WorkerLostError], scope: trio.CancelScope
    ) -> None:
        done, token = trio.Event(), trio.lowlevel.current_trio_token()
        future.add_done_callback(lambda _: token.run_sync_soon(done.set))
        await done.wait()
        fetch = partial(client.gather, [future], errors="raise", direct=True)
        try:
            ended += await trio.to_thread.run_sync(fetch, limiter=self._limiter, abandon_on_cancel=True)
        except KilledWorker:
            ended.append(WorkerLostError("it has ended"))
        except Exception as error:
            ended.append(WorkerLostError(f"{type(error).__name__}: {error}"))
        scope.cancel()

    async def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the scheduler answers.

        Raises:
            ClusterAwayError: it does not, or not in time.
        """
        try:
            with trio.fail_after(2 * ANSWER_SECONDS):
                return await trio.to_thread.run_sync(ask, limiter=self._limiter, abandon_on_cancel=True)
        except (OSError, RuntimeError, ValueError, TimeoutError, trio.TooSlowError) as error:
            why = str(error) or type(error).__name__
            raise ClusterAwayError(f"the scheduler at {self.where} cannot be reached: {why}") from error

    def _connected(self) -> Client:
        return Client(
            self.where,
            security=self._security,
            timeout=ANSWER_SECONDS,
            set_as_default=False,
            direct_to_workers=True,
            name="fsl-async",
        )

    def _members(self, client: Client) -> dict[str, str]:
        if client.status != "running":
            raise ConnectionError(f"it is {client.status}")
        listed = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)["workers"]
        return {each["name"]: each["host"] for each in listed.values() if str(each["name"]).startswith(self._belongs)}

    def _lose(self, names: set[str]) -> None:
        for name in names:
            self._gone.pop(name).set()
