"""What can be said of a scheduler before Dask talks to it: whether certificates fit, and from where it is reached.

Dask says of a certificate that is refused that something "timed out", after as many tries as fit into its patience.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from fsl_async.errors import MisuseError

SECONDS = 5.0


def check_certificates(where: str, certificates: tuple[Path, Path, Path] | None) -> None:
    """Meet the scheduler as Dask would, with TLS, and hang up; nothing where it cannot be reached.

    Args:
        where: its address, tls://host:port.
        certificates: the authority's, one's own, and its key; None where it is reached in the clear.

    Raises:
        MisuseError: one of the two refuses the other's certificate.
    """
    if certificates is None:
        return
    ca, certificate, key = certificates
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False  # as Dask: the authority is the cluster's own
    context.load_cert_chain(certificate, key)
    try:
        connection = socket.create_connection(_place(where), timeout=SECONDS)
        with connection, context.wrap_socket(connection) as secured:
            secured.recv(1)  # in TLS 1.3 the other side's refusal comes only now
    except ssl.SSLCertVerificationError as error:
        raise MisuseError(
            f"the certificate of the scheduler at {where} is not of the authority of compute.ca, {ca}: "
            f"{error.verify_message}; all hosts of a cluster need certificates of one authority"
        ) from error
    except ssl.SSLError as error:
        raise MisuseError(
            f"the scheduler at {where} refuses compute.certificate, {certificate}: {error.reason}; "
            "all hosts of a cluster need certificates of one authority"
        ) from error
    except OSError:
        return


def own_address(where: str) -> str:
    """The address of this host from which a scheduler is reached.

    Raises:
        OSError: there is no way to it.
    """
    host, port = _place(where)
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)  # sends nothing
        return str(probe.getsockname()[0])


def _place(where: str) -> tuple[str, int]:
    host, _, port = where.partition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)
