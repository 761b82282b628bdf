"""An object store that speaks S3, as a process on this host: a fixture, and what its clients say of themselves."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The endpoint of an S3-compatible server that has a bucket called "bucket"."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _make_bucket(port, deadline=time.monotonic() + 30)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _make_bucket(port: int, deadline: float) -> None:
    """Make it, as soon as the server listens.

    Raises:
        ConnectionError: at the deadline it did not.
    """
    while True:
        try:
            with closing(HTTPConnection("127.0.0.1", port)) as connection:
                connection.request("PUT", "/bucket")
                assert connection.getresponse().status == 200
            return
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def options(endpoint: str) -> dict[str, str]:
    """Obstore's options for it."""
    return {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "me", "secret_access_key": "a secret key"}
