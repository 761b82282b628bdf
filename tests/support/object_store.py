"""An object store that speaks S3, as a process on this host: a fixture, and what its clients say of themselves."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from parties.settings.writing import free_addresses

ONE_AT_A_TIME = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app))
"""
"""A store makes an object only once, however many ask at once; moto looks and then makes it, so it has one thread."""


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The endpoint of an S3-compatible server that has a bucket called "bucket"."""
    port = int(free_addresses(1)[0].rpartition(":")[2])
    command = [sys.executable, "-c", ONE_AT_A_TIME, str(port)]
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
