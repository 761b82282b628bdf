"""`[web]`, `[blobs]` and `[compute]` of a server's file: its WebSockets, where bulk lies, where sums are computed.

Rules: a cluster is reached with mutual TLS, and in the clear on this host alone; its workers read the server's blobs,
so these are not in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from fsl_async.errors import MisuseError
from parties.files.toml import About
from parties.settings.reading import InMemory, StoreSetting
from transport.socket_transport import WEB_SCHEMES, check_address
from transport.tcp import is_loopback


class WebTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """WebSockets, for clients in browsers and behind proxies; besides `listen`."""

    listen: Annotated[
        str,
        About(
            "a second address to listen at, ws://host:port/path, or wss://host:port/path with TLS; see deploy.md. The "
            "limits hold for both addresses together"
        ),
    ] = ""
    certificate: Annotated[
        Path | None,
        About("for wss: the file of the certificates, this server's first, in PEM; read again when it changes"),
    ] = None
    key: Annotated[Path | None, About("for wss: the file of the certificate's secret key, in PEM")] = None


NO_WEB: Final = WebTable()


def check_web(web: WebTable, listen: str, transport: str, where: str) -> None:
    """Refuse a table that is not whole, an address that is no WebSocket's, and another transport beside it.

    Raises:
        MisuseError: there is such a thing.
    """
    if not any((web.listen, web.certificate, web.key)):
        return
    if transport:
        raise MisuseError(f"{where}: [web] belongs to the transports that there are, and transport names another one")
    addresses = [address for address in (listen, web.listen) if address.startswith(WEB_SCHEMES)]
    if web.listen and web.listen not in addresses:
        raise MisuseError(f"{where}: web.listen = {web.listen!r}: ws://host:port/path or wss://host:port/path expected")
    if web.listen:
        check_address(web.listen)
    secure = any(address.startswith("wss:") for address in addresses)
    missing = [name for name, file in (("certificate", web.certificate), ("key", web.key)) if file is None]
    if secure and missing:
        raise MisuseError(f"{where}: web.{missing[0]} is missing: a server shows a certificate at wss; or listen at ws")
    if not secure and len(missing) < 2:
        raise MisuseError(f"{where}: web has a certificate or a key, but no wss address to use it at; remove the line")


class BlobsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where clients' bulk lies: in a folder, or in an object store."""

    folder: Annotated[
        Path | None,
        About(
            "the folder of clients' bulk, on a local disk, for this server alone; by default one beside the store, "
            "`s0.blobs` for `s0.sqlite`"
        ),
    ] = None
    url: Annotated[
        str,
        About(
            "an object store in the place of the folder, as bucket and path: s3://bucket/s0; it needs the extra "
            "`objects`. Workers on other hosts reach the bulk there"
        ),
    ] = ""
    options: Annotated[
        Path | None,
        About(
            "a TOML file of what the object store's client needs and the environment does not say: endpoint, region, "
            "access_key_id, secret_access_key; only its owner can read it"
        ),
    ] = None


def check_blobs(blobs: BlobsTable, store: StoreSetting, where: str) -> None:
    """Refuse two places, or one beside a store in memory.

    Raises:
        MisuseError: there is such a thing.
    """
    if blobs.folder is not None and blobs.url:
        raise MisuseError(f"{where}: blobs.folder and blobs.url are two places for the same bulk; remove one of them")
    if blobs.options is not None and not blobs.url:
        raise MisuseError(f"{where}: blobs.options needs blobs.url, the object store's address; add it, or remove both")
    if isinstance(store, InMemory) and (blobs.folder is not None or blobs.url):
        raise MisuseError(
            f'{where}: store = "memory" keeps no bulk, and [blobs] names a place for it: name a file as the '
            "store, or remove [blobs]"
        )


FILES = ("ca", "certificate", "key")


class ComputeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What computes the sums of rounds: this server's process, or workers of a Dask cluster of its operator's."""

    engine: Annotated[
        Literal["threads", "inline", "dask"],
        About(
            "threads: threads of the server's process; inline: its event loop, one thing after the other, for trials; "
            "dask: workers of a Dask cluster, with the extra `dask`; see scaling.md"
        ),
    ] = "threads"
    scheduler: Annotated[
        str,
        About("the address of the cluster's scheduler, tls://host:port; tcp://127.0.0.1:port on this host alone"),
    ] = ""
    ca: Annotated[
        Path | None,
        About(
            "the certificate of the authority that signs those of the scheduler, the workers and this server, and no "
            "other: whoever holds one of them is trusted as the server is"
        ),
    ] = None
    certificate: Annotated[Path | None, About("this process's certificate for the cluster")] = None
    key: Annotated[Path | None, About("the key of that certificate; only its owner can read it")] = None
    task_seconds: Annotated[
        float, About("about how long a worker computes for one order", unit="seconds", low=0.05, high=600)
    ] = 0.5
    worker_patience: Annotated[
        float,
        About(
            "a worker that has not answered for so long is doubted: what it was given is given to others as well",
            unit="seconds",
            low=1,
            high=86_400,
        ),
    ] = 60.0
    worker_ttl: Annotated[
        float,
        About("a worker of which the scheduler hears nothing for so long is gone", unit="seconds", low=1, high=3_600),
    ] = 5.0
    answers: Annotated[
        Literal["server", "workers"],
        About(
            "with dask, who answers retrievals: server, its process with threads; or workers, each from a slice of the "
            "model, where that is too large for one host"
        ),
    ] = "server"
    worker_memory_bytes: Annotated[
        int,
        About(
            "what a worker may use; 0: all of its host or container. A sum that takes more than half of it is cut into "
            "slices, on different workers",
            low=0,
        ),
    ] = 0
    worker_host: Annotated[
        str,
        About(
            "on a worker's host: the address at which it listens and the others reach it; empty: the one from which it "
            "reaches the scheduler"
        ),
    ] = ""

    def __bool__(self) -> bool:
        """Whether a cluster computes."""
        return self.engine == "dask"


def check_compute(compute: ComputeTable, store: StoreSetting, where: str) -> None:
    """Refuse a table that is not whole, and a cluster that would be reached in the clear.

    Raises:
        MisuseError: there is such a thing.
    """
    if not compute:
        for key in ("scheduler", *FILES):
            if getattr(compute, key):
                raise MisuseError(
                    f'{where}: compute.{key} is given and compute.engine is {compute.engine!r}; write engine = "dask", '
                    "or remove the line"
                )
        return
    if isinstance(store, InMemory):
        raise MisuseError(
            f'{where}: store = "memory" cannot be used with compute.engine = "dask": workers are processes of their '
            "own, and read what clients have sent from files; name a file as the store"
        )
    _check_address(compute, where)


def _check_address(compute: ComputeTable, where: str) -> None:
    protocol, _, place = compute.scheduler.partition("://")
    host, _, port = place.rpartition(":")
    if protocol not in ("tls", "tcp") or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise MisuseError(
            f'{where}: compute.scheduler = {compute.scheduler!r}: an address such as "tls://10.0.0.5:8786" expected'
        )
    missing = [key for key in FILES if getattr(compute, key) is None]
    if protocol == "tls" and missing:
        raise MisuseError(
            f"{where}: compute.{missing[0]} is missing: the cluster is reached with mutual TLS, which needs ca, "
            "certificate and key"
        )
    if protocol == "tcp" and not is_loopback(host):
        raise MisuseError(
            f"{where}: compute.scheduler = {compute.scheduler!r}: seeds and shares would go to another host in the "
            "clear; use tls://, or an address of this host such as tcp://127.0.0.1:8786"
        )
    if protocol == "tcp" and len(missing) < len(FILES):
        raise MisuseError(f"{where}: certificates are given, and compute.scheduler is tcp://; write tls://")
