"""Blobs as objects in an object store that speaks S3, or another one that obstore knows: the extra `objects`.

    s3://bucket/s0/owner                                    whose they are
    s3://bucket/s0/blobs/round-00000012/parts/…             the blobs, under their own names

Where a server's workers run on several hosts, all of them reach its blobs. Whoever operates the store is trusted as the
server's own disk is. Rules:

- An object is written if there is none of its name, and not otherwise; a store that does not keep to that, or does not
  find at once what it has taken, is refused at the start.
- Calls are repeated a few times, for a limited time; then `BlobsAwayError` says that the store cannot be reached.
- What goes over the network is encrypted (https), unless the store is on this host.
- Credentials come from the environment, or from the options that the caller has read; no message shows them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import obstore
import trio
from obstore import exceptions
from obstore.store import from_url

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError, StorageError
from parties.storage.blobs.blobs import Blobs, BlobsAwayError, Usage, checked, checked_prefix
from parties.storage.blobs.memory import missing, too_short
from parties.storage.store import same_bytes
from transport.needs_trio import NeedsTrio
from transport.tcp import is_loopback

ResultT = TypeVar("ResultT")

CALLS: Final = 32
"""Calls at a time: each waits for the network."""

RETRIES: Final = 3
RETRY_SECONDS: Final = 30
CALL_SECONDS: Final = 60

ERASED_TOGETHER: Final = 1_000
OWNER: Final = "owner"
BLOBS: Final = "blobs/"
TRIALS: Final = "trials/"


class ObjectBlobs(Blobs):
    """Blobs in an object store.

    `open` makes them, and the caller closes them:

        blobs = await ObjectBlobs.open("s3://bucket/s0", owner=b"…", options={"region": "eu-central-1"})
    """

    def __init__(self, url: str, store: Any) -> None:
        self._url = url
        self._store = store
        self._limiter = trio.CapacityLimiter(CALLS)
        self._stored = 0

    @classmethod
    async def open(
        cls, url: str, owner: bytes, options: Mapping[str, str] | None = None, *, create: bool = True
    ) -> ObjectBlobs:
        """Open a place in an object store, and try whether it keeps what it takes.

        Args:
            url: bucket and path, such as "s3://bucket/s0".
            owner: whose blobs they are: what the processes of one server have in common, and no other server has.
            options: obstore's, such as `endpoint`, `region`, `access_key_id`; the rest comes from the environment.
            create: whether the place may be taken; a worker opens what its server has taken.

        Raises:
            MisuseError: the url or an option is not one.
            BlobsAwayError: the store cannot be reached.
            StorageError: the place belongs to another server, access is denied, or the store loses, alters or
                overwrites what it has taken.
        """
        NeedsTrio("ObjectBlobs.open").require_trio()
        blobs = cls(url, _opened(url, dict(options or {})))
        await blobs._run(lambda: blobs._check_owner(owner, create))
        if create:
            await blobs._run(blobs._try_out)
        return blobs

    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """See `Blobs.put`; what the store has acknowledged is durable in any case."""
        checked(name)
        await self._run(lambda: self._put(name, pieces))

    async def read(self, name: str, start: int = 0, stop: int | None = None) -> memoryview:
        """See `Blobs.read`."""
        checked(name)
        return await self._run(lambda: self._read(name, start, stop))

    async def size(self, name: str) -> int | None:
        """See `Blobs.size`."""
        checked(name)
        return await self._run(lambda: self._size(name))

    async def names(self, prefix: str) -> list[str]:
        """See `Blobs.names`."""
        checked_prefix(prefix)
        return await self._run(lambda: sorted(self._names(prefix)))

    async def erase(self, prefix: str) -> None:
        """See `Blobs.erase`; a bucket that keeps versions keeps what is erased, and is no place for blobs."""
        checked_prefix(prefix)
        await self._run(lambda: self._erase(prefix))

    async def groups(self) -> list[str]:
        """See `Blobs.groups`."""
        return await self._run(lambda: sorted(self._groups()))

    def usage(self) -> Usage:
        """See `Blobs.usage`; what was there at the start is counted when blobs are erased for the first time."""
        return Usage(self._url, self._stored)

    async def aclose(self) -> None:
        """See `Blobs.aclose`."""
        await trio.lowlevel.checkpoint()

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)

    # ---- in threads

    def _put(self, name: str, pieces: Iterable[Buffer]) -> None:
        content = b"".join(memoryview(piece).cast("B") for piece in pieces)
        with self._translated(name):
            try:
                obstore.put(self._store, BLOBS + name, content, mode="create", use_multipart=False)
                self._stored += len(content)
            except exceptions.AlreadyExistsError:
                if not same_bytes(self._content(name), content):
                    raise StorageError(f"{name} is stored already, with other content") from None

    def _content(self, name: str) -> memoryview:
        return memoryview(obstore.get(self._store, BLOBS + name).bytes())

    def _read(self, name: str, start: int, stop: int | None) -> memoryview:
        with self._translated(name):
            if stop is None:
                return self._content(name).toreadonly()[start:]
            if stop <= start:
                return self._content(name).toreadonly()[start:stop]
            content = memoryview(obstore.get_range(self._store, BLOBS + name, start=start, end=stop)).toreadonly()
        if len(content) < stop - start:
            raise too_short(name, start + len(content), stop)
        return content

    def _size(self, name: str) -> int | None:
        with self._translated(name):
            try:
                return int(obstore.head(self._store, BLOBS + name)["size"])
            except FileNotFoundError:
                return None

    def _names(self, prefix: str) -> Iterator[str]:
        folder = prefix.rpartition("/")[0]  # a store lists whole parts of names
        with self._translated(prefix):
            for page in obstore.list(self._store, f"{BLOBS}{folder}", chunk_size=1000):
                found = (entry["path"].removeprefix(BLOBS) for entry in page)
                yield from (name for name in found if name.startswith(prefix))

    def _erase(self, prefix: str) -> None:
        whole = not prefix or prefix.endswith("/")
        names = list(self._names(prefix)) if whole else [prefix]
        with self._translated(prefix):
            for start in range(0, len(names), ERASED_TOGETHER):
                obstore.delete(self._store, [BLOBS + name for name in names[start : start + ERASED_TOGETHER]])
            self._stored = sum(entry["size"] for page in obstore.list(self._store, BLOBS) for entry in page)

    def _groups(self) -> Iterator[str]:
        with self._translated(BLOBS):
            listed = obstore.list_with_delimiter(self._store, BLOBS)
            yield from (path.removeprefix(BLOBS).rstrip("/") for path in listed["common_prefixes"])
            yield from (entry["path"].removeprefix(BLOBS) for entry in listed["objects"])

    def _check_owner(self, owner: bytes, create: bool) -> None:
        """Compare whose blobs they are.

        Raises:
            StorageError: they are another server's, or nobody has taken the place.
        """
        with self._translated(OWNER):
            if create:
                try:
                    obstore.put(self._store, OWNER, owner, mode="create", use_multipart=False)
                except FileNotFoundError:
                    raise StorageError(f"{self._url}: there is no such bucket; make it, or name another one") from None
                except exceptions.AlreadyExistsError:
                    pass  # who took the place is compared below
            try:
                found = bytes(obstore.get(self._store, OWNER).bytes())
            except FileNotFoundError:
                raise StorageError(f"{self._url} is not taken yet: the server takes it when it starts") from None
        if found != owner:
            raise StorageError(
                f"{self._url} holds the blobs of another server, or of another task; give every server a path of its "
                "own"
            )

    def _try_out(self) -> None:
        """Try whether the store keeps what it takes, and refuses to write it over.

        Raises:
            StorageError: it does not.
        """
        name, content = f"{TRIALS}{secrets.token_hex(16)}", secrets.token_bytes(4096)
        with self._translated(name):
            obstore.put(self._store, name, content, mode="create", use_multipart=False)
            try:
                self._require(self._found(name) == content, "does not give back what it has just taken")
                listed = [entry["path"] for page in obstore.list(self._store, TRIALS) for entry in page]
                self._require(name in listed, "does not list what it has just taken")
                with suppress(exceptions.AlreadyExistsError):
                    obstore.put(self._store, name, content[::-1], mode="create", use_multipart=False)
                self._require(self._found(name) == content, "writes over what is there, though told not to")
            finally:
                obstore.delete(self._store, [name])
            self._require(self._found(name) is None, "still has what it has just erased")

    def _found(self, path: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            return None

    def _require(self, true: bool, what: str) -> None:
        if not true:
            raise StorageError(f"the object store at {self._url} {what}: it is no place for blobs")

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Turn obstore's errors into ours; of its long texts the first line, which names the request and the answer."""
        try:
            yield
        except FileNotFoundError as error:
            raise missing(name) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise StorageError(
                f"{self._url}: access is denied; check the credentials and the bucket's rules ({_first_line(error)})"
            ) from error
        except exceptions.NotSupportedError as error:
            raise StorageError(f"{self._url} is no place for blobs: {_first_line(error)}") from error
        except (exceptions.BaseError, OSError) as error:
            raise BlobsAwayError(f"{self._url} cannot be reached, or fails: {_first_line(error)}") from error


def _opened(url: str, options: Any) -> Any:
    """The store behind a url.

    Raises:
        MisuseError: the url or an option is not one.
    """
    endpoint = options.get("endpoint") or options.get("aws_endpoint") or ""
    local = endpoint.startswith("http://") and is_loopback(urlsplit(endpoint).hostname or "")
    if endpoint and not local and not endpoint.startswith("https://"):
        raise MisuseError(f"endpoint {endpoint!r}: https is needed where the object store is on another host")
    try:
        return from_url(
            url,
            config=options,
            client_options={"allow_http": local, "timeout": f"{CALL_SECONDS}s", "connect_timeout": "10s"},
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )
    except (exceptions.BaseError, ValueError, TypeError) as error:
        raise MisuseError(f"{url!r} cannot be used as a place for blobs: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
