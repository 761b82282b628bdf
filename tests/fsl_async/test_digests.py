"""One hash, whichever library takes it: BLAKE2b of the parts behind their lengths."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fsl_async.digests import LONG_BYTES, PIECE_BYTES, Domain, digest
from tests.support.cases import in_turn

SIZES = (0, 1, 127, 128, 129, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 1, PIECE_BYTES, PIECE_BYTES + 1, 10**6)


def oracle(domain: Domain, parts: list[bytes], key: bytes) -> bytes:
    joined = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.blake2b(joined, digest_size=32, person=domain.value, key=key).digest()


@in_turn("key", [b"", b"k", bytes(range(64))])
@in_turn("domain", [Domain.TASK, Domain.SHARE_COMMITMENT])
@in_turn("size", SIZES)
def test_every_length_under_every_tag_and_key(size: int, domain: Domain, key: bytes) -> None:
    content = np.random.default_rng(size).bytes(size)
    for parts in ([content], [b"", content, b"more"], [content[: size // 3], content[size // 3 :]]):
        assert digest(domain, *parts, key=key) == oracle(domain, parts, key)


@pytest.mark.parametrize("size", [100, 3 * LONG_BYTES])
def test_any_buffer_of_bytes_will_do(size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    expected = oracle(Domain.TREE, [content], b"")
    for buffer in (content, bytearray(content), memoryview(b"x" + content)[1:], np.frombuffer(content, np.uint8).data):
        assert digest(Domain.TREE, buffer) == expected


def test_without_parts() -> None:
    assert digest(Domain.TREE) == oracle(Domain.TREE, [], b"")
