"""Addresses that are none: refused by name, on either way."""

import pytest
import trio

from fsl_async.errors import MisuseError
from transport import TcpTransport, UnreachableError
from transport.tcp import split_address

NONE = {
    "no port": "host",
    "no host": ":9000",
    "port too high": "host:65536",
    "port of 5,000 digits": "host:" + "9" * 5_000,
    "port in another script": "host:９０００",
    "empty brackets": "[]:9000",
    "half a pair of brackets": "[::1:9000",
}
NO_NAMES = ("a..b:80", f"{'x' * 70}:80", f"{'é' * 70}:80", "\udc80:80")


@pytest.mark.parametrize("address", NONE.values(), ids=NONE)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(MisuseError, match="is not an address of the form host:port"):
        split_address(address)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9000", ("::1", 9000)),
        ("bücher.example:65535", ("bücher.example", 65535)),
    ],
    ids=["IPv4", "IPv6", "a name"],
)
def test_an_address_is_split(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize("address", NO_NAMES, ids=ascii)
async def test_a_host_that_cannot_be_asked_for_is_no_address(address):
    with pytest.raises(MisuseError, match="its host is not the name of one"):
        await TcpTransport().connect(address)
    with pytest.raises((MisuseError, UnreachableError)):
        with trio.fail_after(5):
            await TcpTransport().listen(address, None)
