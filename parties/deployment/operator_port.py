"""Where a server's operator port and the operator's token are, as the server's file says."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from parties.operator.queries import OperatorPort
from parties.operator.resources import host_of
from parties.settings.host_file import HostFile
from parties.settings.reading import OnDisk


def token_path(file: HostFile) -> Path:
    """Where a server writes its operator's token.

    Beside its store; beside its keys, if it has several tasks or no store on disk.
    """
    common = file.common
    beside = common.store.path if isinstance(common.store, OnDisk) and not file.listed else common.identity
    return beside.with_name(f"{beside.name}.operator-token")


def operator_port(where: str, token_file: Path | None = None) -> OperatorPort:
    """The operator port that a server's file names, or that is given as http://host:port.

    Args:
        where: the path of a server's file, or an address as http://host:port.
        token_file: the file of the operator's token, if it is not where the server's file says.

    Raises:
        MisuseError: `where` is neither, or the file names no port.
    """
    if where.startswith(("http://", "https://")):
        return OperatorPort(_address_in(where), token_file)
    file = HostFile.load(Path(where))
    listen = file.common.operator.listen
    if not listen:
        raise MisuseError(
            f'{where}: the server has no operator\'s port; add [operator] with listen = "127.0.0.1:9464", and restart '
            "it"
        )
    if listen.endswith(":0"):
        raise MisuseError(
            f"{where}: the system chooses the operator's port ({listen}); give its address as http://host:port, as the "
            "server said it when it started, or a fixed port in the file"
        )
    return OperatorPort(listen, token_file or token_path(file))


def _address_in(url: str) -> str:
    address = url.removeprefix("http://").removesuffix("/")
    if url.startswith("https://") or not host_of(address) or not address.isprintable() or set(address) & set("/?#@ "):
        raise MisuseError(f"{url[:200]!r}: the server's TOML file or http://host:port expected")
    return address
