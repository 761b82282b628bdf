"""One hash: BLAKE2b of the parts behind their lengths, and in a long part's place its BLAKE3 digest."""

import hashlib

import numpy as np
import pytest
from blake3 import blake3

from fsl_async.digests import LONG_PART, Domain, digest
from tests.support.cases import in_turn

SIZES = (0, 1, 127, 128, 129, LONG_PART - 1, LONG_PART, LONG_PART + 1, 2 * LONG_PART, 3 * LONG_PART + 1, 10**6)


def oracle(domain: Domain, parts: list[bytes], key: bytes) -> bytes:
    short = [part if len(part) <= LONG_PART else blake3(part).digest() for part in parts]
    joined = b"".join(len(part).to_bytes(8, "little") + given for part, given in zip(parts, short, strict=True))
    return hashlib.blake2b(joined, digest_size=32, person=domain.value, key=key).digest()


@in_turn("key", [b"", b"k", bytes(range(64))])
@in_turn("domain", [Domain.TASK, Domain.SHARE_COMMITMENT])
@in_turn("size", SIZES)
def test_every_length_under_every_tag_and_key(size: int, domain: Domain, key: bytes) -> None:
    content = np.random.default_rng(size).bytes(size)
    for parts in ([content], [b"", content, b"more"], [content[: size // 3], content[size // 3 :]]):
        assert digest(domain, *parts, key=key) == oracle(domain, parts, key)


@pytest.mark.parametrize("size", [100, 3 * LONG_PART])
def test_any_buffer_of_bytes_will_do(size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    expected = oracle(Domain.TREE, [content], b"")
    for buffer in (content, bytearray(content), memoryview(b"x" + content)[1:], np.frombuffer(content, np.uint8).data):
        assert digest(Domain.TREE, buffer) == expected


def test_blake3_is_that_of_its_authors() -> None:
    assert blake3(b"abc").hexdigest() == "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"


def test_a_long_part_is_not_its_digest() -> None:
    content = bytes(LONG_PART + 1)
    assert digest(Domain.TREE, content) != digest(Domain.TREE, blake3(content).digest())


def test_without_parts() -> None:
    assert digest(Domain.TREE) == oracle(Domain.TREE, [], b"")
