"""The demo's cluster: an address on this machine, and certificates that live as long as the demo."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from parties.deployment.compute import WITHOUT_DASK
from parties.settings.writing import free_addresses

__all__ = ["write_cluster"]


def write_cluster(folder: Path) -> str:
    """Write certificates, and return a server's table [compute] that names them.

    Raises:
        MisuseError: Dask is not installed.
    """
    try:
        from distributed import Security
    except ImportError as error:
        raise MisuseError(WITHOUT_DASK) from error
    made = Security.temporary()
    for name, content in (("compute.pem", made.tls_ca_file), ("compute.key", made.tls_client_key)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(content)
    return (
        f'[compute]\nengine = "dask"\nscheduler = "tls://{free_addresses(1)[0]}"\n'
        'ca = "compute.pem"\ncertificate = "compute.pem"\nkey = "compute.key"\n'
    )
