"""AES on every instruction set of this processor: known answers, the reference, and what must be refused."""

import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.errors import MisuseError
from fsl_async.kernels import selftest
from fsl_async.kernels.simd import circuit, expansion
from fsl_async.kernels.simd.isa import ISAS, find_isa, schedule
from tests.support import reference
from tests.support.cases import in_turn

KEY = bytes(range(16))


def random_blocks(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), dtype=np.uint64)


def test_reference_passes_the_standards_example() -> None:
    plain = bytes.fromhex("3243f6a8885a308d313198a2e0370734")  # FIPS 197, appendix B
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    cipher = reference.aes(key, int.from_bytes(plain, "little"))
    assert cipher.to_bytes(16, "little").hex() == "3925841d02dc09fbdc118597196a0b32"


def test_circuit_is_the_s_box() -> None:
    planes = [np.array([byte >> bit & 1 for byte in range(256)], dtype=np.uint8) for bit in range(8)]
    result = circuit.substitute(planes)
    values = [sum(int(plane[byte] & 1) << bit for bit, plane in enumerate(result)) for byte in range(256)]
    assert values == reference.S_BOX


@pytest.mark.parametrize("register", [1, 2, 4])
def test_round_keys(register: int) -> None:
    keys = [KEY, bytes(16), b"\xff" * 16, *(np.random.default_rng(seed).bytes(16) for seed in range(40))]
    for key in keys:
        blocks = np.frombuffer(b"".join(reference.expand_key(key)), dtype="<u8").reshape(-1, 2)
        expected = np.tile(blocks, (1, register))
        np.testing.assert_array_equal(expansion.expand_key(key, register), expected)
    held = [expansion.expand_key(key, register) for key in keys]
    assert all(schedule.ctypes.data % 64 == 0 and schedule.flags.c_contiguous for schedule in held)
    uncompiled = expansion.expand.py_func(np.frombuffer(keys[-1], dtype="<u4"), register)
    np.testing.assert_array_equal(uncompiled, expected)


@in_turn("count", [0, 1, 3, 15, 16, 17, 300])
def test_encrypt_and_hash(isa: str, count: int) -> None:
    blocks = random_blocks(count, count)
    keys = kernels.key_schedule(KEY)
    plain = reference.to_ints(blocks)
    assert reference.to_ints(kernels.encrypt_blocks(keys, blocks)) == [reference.aes(KEY, x) for x in plain]
    assert reference.to_ints(kernels.hash_blocks(keys, blocks)) == [reference.hash_block(KEY, x) for x in plain]
    assert reference.to_ints(blocks) == plain


def test_keystream_counts_in_the_low_word(isa: str) -> None:
    stream = reference.to_ints(kernels.keystream(KEY, nonce=2**63 + 5, count=5))
    assert stream == [reference.aes(KEY, reference.pair(i, 2**63 + 5)) for i in range(5)]


def test_fastest_set_is_the_default() -> None:
    assert kernels.select_isa() == kernels.isa_names()[0] == kernels.active_isa()


def test_unknown_set_is_refused() -> None:
    absent = next(isa.name for isa in ISAS if isa.name not in kernels.isa_names())
    for name in ("enigma", absent):
        with pytest.raises(MisuseError, match="this processor has"):
            kernels.select_isa(name)


def test_set_that_computes_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_passed", set())
    monkeypatch.setattr(selftest, "schedule", lambda isa, key: schedule(isa, bytes(16)))
    with pytest.raises(kernels.KernelFaultError, match="known-answer"):
        selftest.check_isa(find_isa(kernels.active_isa()))


def test_wrong_trees_are_noticed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_passed", set())
    monkeypatch.setattr(selftest, "LEAVES", "00" * 16)
    with pytest.raises(kernels.KernelFaultError, match="known-answer"):
        selftest.check_isa(find_isa(kernels.active_isa()))


def test_keys_hide_themselves() -> None:
    assert repr(kernels.key_schedule(KEY)).endswith("Keys(...)")


def test_misuse() -> None:
    keys = kernels.key_schedule(KEY)
    with pytest.raises(MisuseError, match="16 bytes"):
        kernels.key_schedule(bytes(15))
    with pytest.raises(MisuseError, match="blocks: expected uint64"):
        kernels.encrypt_blocks(keys, np.zeros((4, 3), dtype=np.uint64))
    with pytest.raises(MisuseError, match="blocks: expected uint64"):
        kernels.hash_blocks(keys, np.zeros((4, 2), dtype=np.int64))
    with pytest.raises(MisuseError, match="nonce"):
        kernels.keystream(KEY, nonce=2**64, count=1)
    with pytest.raises(MisuseError, match="count"):
        kernels.keystream(KEY, nonce=0, count=-1)
