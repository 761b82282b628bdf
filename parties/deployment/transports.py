"""The transport of a deployed party: by the address that of the system's sockets, or the one that its file names."""

from __future__ import annotations

from importlib import import_module

from fsl_async.errors import MisuseError
from parties.settings.server_tables import NO_WEB, WebTable
from transport import SocketTransport, Transport


def chosen_transport(given: Transport | None, name: str, web: WebTable = NO_WEB) -> Transport:
    """The transport that a program gives, or else the one that the party's file names.

    Raises:
        MisuseError: what is given is no `Transport`; or see `named_transport`.
    """
    if given is None:
        return named_transport(name, web)
    if not isinstance(given, Transport):
        remedy = f"; make one: {given.__name__}()" if isinstance(given, type) else ""
        raise MisuseError(f"transport = {given!r} is no transport.Transport{remedy}")
    return given


def named_transport(name: str, web: WebTable = NO_WEB) -> Transport:
    """The transport that a party's file names.

    Args:
        name: "module:name" of a class or a function that makes it, without arguments; empty for `SocketTransport`.
        web: the WebSockets of a server.

    Raises:
        MisuseError: there is no such module, or nothing of that name in it, or it makes no `Transport`, or fails.
    """
    if not name:
        return SocketTransport([web.listen] if web.listen else [], web.certificate, web.key)
    module, _, attribute = name.partition(":")
    try:
        make = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # an import runs whatever the module holds
        raise MisuseError(
            f"transport = {name!r} cannot be imported ({error}); it is written module:name, and the module has to be "
            "installed where this program runs, or in a folder of PYTHONPATH"
        ) from error
    try:
        made = make() if callable(make) else make
    except (Exception, SystemExit) as error:
        raise MisuseError(
            f"transport = {name!r} cannot be made ({type(error).__name__}: {error}); name a class or a function that "
            "makes a transport.Transport without arguments"
        ) from error
    if not isinstance(made, Transport):
        raise MisuseError(f"transport = {name!r} gives {made!r}, which is no transport.Transport")
    return made
