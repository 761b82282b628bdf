"""Channels over WebSockets: through every network that lets HTTPS pass, and from a page in a browser.

An address is "ws://host:port/path" or, with TLS, "wss://host:port/path"; the port is 80 or 443 and the path "/" where
they are left out. The channel inside is the same as over TCP, so that whoever ends TLS, or is between the two ends,
sees none of it: the certificate is not what tells a client that this is its server.

A client goes through the HTTP proxy that its environment names: HTTPS_PROXY for wss, http_proxy for ws, but to none of
the hosts in NO_PROXY.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import h11
import trio

from fsl_async.errors import MisuseError
from transport.errors import UnreachableError
from transport.listener import Accept, SocketsTransport
from transport.tcp import TcpTransport, join_address, no_host, split_address
from transport.websocket import AnsweringStream, AskingStream

_log = logging.getLogger("transport")

SCHEMES = ("ws://", "wss://")
_ADDRESS = re.compile(r"(ws|wss)://(\[[^][/?#@]+\]|[^][/?#@:]+)(?::([0-9]{1,5}))?(/[!-\"$->@-~]*)?")
_PORTS = {"ws": 80, "wss": 443}
_READ_SIZE = 2**12


class Web(NamedTuple):
    """An address, in its parts.

    Attributes:
        secure: whether with TLS.
        place: host and port, as an address of TCP.
        path: of the WebSocket.
    """

    secure: bool
    place: str
    path: str

    @property
    def host(self) -> str:
        """The host's name, or its number."""
        return split_address(self.place)[0]

    @property
    def authority(self) -> str:
        """Host and port, as a request has them: the port of the scheme is left out."""
        return self.place.removesuffix(f":{_PORTS['wss' if self.secure else 'ws']}")


class WebTransport(SocketsTransport):
    """Connects processes and hosts over WebSockets; see the module.

    Args:
        certificate: the file of a server's certificates, and
        key: that of its secret key; both in PEM, and needed to listen at wss alone. They are read again when a client
            connects after they have changed.
    """

    def __init__(self, certificate: Path | None = None, key: Path | None = None) -> None:
        self._certificate, self._key = certificate, key
        self._shown: ssl.SSLContext | None = None
        self._read: list[tuple[int, int, int]] = []

    async def connect(self, address: str) -> trio.abc.Stream:
        """Asks for a WebSocket, through a proxy where one is named; see `Transport.connect`."""
        web = split_web_address(address)
        proxy = _proxy_of(web)
        bare = await TcpTransport().connect(proxy.place if proxy else web.place)
        try:
            if proxy:
                await _pass_through(bare, proxy, web.place)
            stream = await _secured(bare, web.host, address) if web.secure else bare
            asking = AskingStream(stream, web.authority, web.path, address)
            await asking.open()
        except BaseException as error:
            await trio.aclose_forcefully(bare)
            if isinstance(error, UnicodeError):
                raise no_host(address, error) from error
            if isinstance(error, trio.BrokenResourceError):
                raise UnreachableError(
                    f"the connection to {address} broke before there was a WebSocket ({error})"
                ) from error
            raise
        return asking

    @asynccontextmanager
    async def bound(self, address: str) -> AsyncIterator[tuple[str, Sequence[Accept]]]:
        """Binds; port 0 lets the system choose one. See `SocketsTransport.bound`."""
        web = split_web_address(address)
        self._shown = self._tls(address) if web.secure else None
        async with TcpTransport().bound(web.place) as (place, sources):
            accepts = [partial(self._accept, accept, web.path) for accept in sources]
            yield f"{'wss' if web.secure else 'ws'}://{place}{web.path}", accepts

    async def _accept(self, accept: Accept, path: str) -> tuple[trio.abc.Stream, str]:
        """Accepts the next connection; TLS and WebSocket come about when it is first read."""
        stream, origin = await accept()
        if self._shown is not None:
            self._renew()
            stream = trio.SSLStream(stream, self._shown, server_side=True, https_compatible=True)
        return AnsweringStream(stream, path), origin

    def _renew(self) -> None:
        """Reads the certificate again if its files have changed; one that cannot be used changes nothing."""
        if self._state_of_files() == self._read:
            return
        try:
            self._shown = self._tls("wss")
        except MisuseError as error:
            _log.warning("the certificate as read before stays in use: %s", error)
        else:
            _log.info("%s and its key have changed, and are shown from now on", self._certificate)

    def _state_of_files(self) -> list[tuple[int, int, int]]:
        found = []
        for file in filter(None, (self._certificate, self._key)):
            with suppress(OSError):
                state = os.stat(file)
                found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return found

    def _tls(self, address: str) -> ssl.SSLContext:
        """What a server shows its clients.

        Raises:
            MisuseError: there is no certificate, or it or its key cannot be used.
        """
        if self._certificate is None or self._key is None:
            raise MisuseError(
                f"{address} cannot be listened at without a certificate and its key: name their files, or listen at "
                "ws:// behind a proxy that ends TLS (docs/deploy.md)"
            )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._read = self._state_of_files()
        try:
            context.load_cert_chain(self._certificate, self._key, password="")  # nobody is asked for one
        except (OSError, ssl.SSLError) as error:
            raise MisuseError(
                f"{self._certificate} and {self._key} are no certificate with its key that can be read ({error})"
            ) from error
        return context


def split_web_address(address: str) -> Web:
    """Returns the parts of an address.

    Raises:
        MisuseError: it is none.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3] or 0) > 65_535:
        raise MisuseError(f"{address!r} is not an address of the form wss://host:port/path or ws://host:port/path")
    port = match[3] or str(_PORTS[match[1]])
    return Web(match[1] == "wss", f"{match[2]}:{port}", match[4] or "/")


async def _secured(stream: trio.abc.Stream, host: str, address: str) -> trio.abc.Stream:
    secured = trio.SSLStream(stream, ssl.create_default_context(), server_hostname=host, https_compatible=True)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as error:
        why = error.__cause__ or error
        raise UnreachableError(
            f"no TLS with {address} ({why}); check the address and its port; a certificate of an authority of your own "
            "is trusted where SSL_CERT_FILE names it"
        ) from error
    return secured


class _Proxy(NamedTuple):
    """Where an HTTP proxy is, and what it is shown of us."""

    place: str
    headers: list[tuple[str, str]]


def _proxy_of(web: Web) -> _Proxy | None:
    """The proxy that the environment names for an address.

    Raises:
        MisuseError: it names one that is none of HTTP's.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # a client without a proxy needs none

    proxies = getproxies()
    scheme = "https" if web.secure else "http"
    named = proxies.get(scheme, "")
    if not named or proxy_bypass(web.place, proxies):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    try:
        port = parts.port or 80
    except ValueError:
        port = -1
    if parts.scheme != "http" or not parts.hostname or port < 0:
        raise MisuseError(
            f"{scheme.upper()}_PROXY in the environment names no proxy of the form http://host:port or "
            "http://name:password@host:port; correct it, or name the server's host in NO_PROXY"
        )
    headers = []
    if parts.username is not None:
        shown = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()
        headers.append(("proxy-authorization", f"Basic {shown}"))
    return _Proxy(join_address(parts.hostname, port), headers)


async def _pass_through(stream: trio.abc.Stream, proxy: _Proxy, place: str) -> None:
    """Has a proxy connect us to a place.

    Raises:
        UnreachableError: it does not; the message says what to do.
    """
    talk = h11.Connection(h11.CLIENT)
    try:
        ask = h11.Request(method="CONNECT", target=place, headers=[("host", place), *proxy.headers])
        await stream.send_all(talk.send(ask) or b"")
        while (event := talk.next_event()) is h11.NEED_DATA or isinstance(event, h11.InformationalResponse):
            if event is h11.NEED_DATA:
                talk.receive_data(bytes(await stream.receive_some(_READ_SIZE)))
    except h11.ProtocolError as error:
        raise UnreachableError(
            f"the proxy at {proxy.place} does not speak HTTP ({error}); check HTTPS_PROXY"
        ) from error
    status = event.status_code if isinstance(event, h11.Response) else 0
    if not 200 <= status < 300:
        raise UnreachableError(f"the proxy at {proxy.place} does not connect us to {place}: {_refusal(status)}")


def _refusal(status: int) -> str:
    """What a proxy's answer means."""
    if status == 407:
        return (
            "407, it wants a name and a password, or other ones; write them into HTTPS_PROXY, as "
            "http://name:password@host:port"
        )
    if status in (502, 503, 504):
        return f"{status}, it does not reach the server; check the server's address, or try again later"
    if not status:
        return "it closed the connection; check HTTPS_PROXY"
    return f"{status}; ask who runs it to allow CONNECT to that host and port, or name the host in NO_PROXY"
