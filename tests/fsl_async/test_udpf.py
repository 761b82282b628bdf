"""The updatable distributed point function: correctness, what a single key shows, and every refusal."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import MisuseError, Ring, udpf
from fsl_async.digests import Domain, derive_key
from fsl_async.randomness import SeededSource
from tests.support import reference
from tests.support.cases import in_turn
from tests.support.wire_page import H, K

RINGS = st.sampled_from([Ring(32), Ring(64), Ring(128)])


def random_elements(ring: Ring, source: SeededSource, *shape: int) -> np.ndarray:
    return ring.from_bytes(source(int(np.prod(shape)) * ring.element_bytes), *shape, writable=True)


def total(ring: Ring, keys: tuple[udpf.Key, udpf.Key], points: Any) -> np.ndarray:
    return ring.add(*(udpf.evaluate(key, points) for key in keys))


def expected(family: udpf.Family, alphas: Any, betas: np.ndarray, points: Any) -> np.ndarray:
    """β at α, 0 elsewhere: (trees, points, width)."""
    table = family.ring.zeros(len(alphas), len(points), family.width)
    for tree, alpha in enumerate(alphas):
        table[tree, np.asarray(points) == alpha] = betas[tree]
    return table


def advance(
    keys: tuple[udpf.Key, udpf.Key], betas: np.ndarray, epoch: int
) -> tuple[tuple[udpf.Key, udpf.Key], udpf.Hint]:
    hint = udpf.next_hint(*keys, betas, epoch)
    return (udpf.update(keys[0], hint), udpf.update(keys[1], hint)), hint


def assert_same(left: udpf.Key, right: udpf.Key) -> None:
    for name in ("family", "server", "salt", "epoch"):
        assert getattr(left, name) == getattr(right, name)
    assert (left.hint.family, left.hint.salt) == (right.hint.family, right.hint.salt)
    for of in ("roots", "tree.words", "hint.elements"):
        a, b = left, right
        for name in of.split("."):
            a, b = getattr(a, name), getattr(b, name)
        assert np.array_equal(a, b), of


# ---- correctness


@in_turn("domain", range(1, 10))
@in_turn("width", [1, 3])
def test_every_point_of_every_tiny_tree_in_several_epochs(ring: Ring, domain: int, width: int) -> None:
    """One tree for each α, evaluated at every point, after `gen` and after each of three updates."""
    family = udpf.Family(domain, ring, width)
    source = SeededSource(1, f"{ring.bits}/{domain}/{width}")
    everywhere = range(domain)
    betas = random_elements(ring, source, domain, width)
    keys = udpf.gen(family, everywhere, betas, source)
    for epoch in (0, 1, 2, 2**40):
        if epoch:
            betas = random_elements(ring, source, domain, width)
            keys, _ = advance(keys, betas, epoch)
        assert keys[0].epoch == keys[1].epoch == epoch
        assert np.array_equal(total(ring, keys, everywhere), expected(family, everywhere, betas, everywhere))


@given(
    ring=RINGS,
    domain=st.integers(1, 3000),
    width=st.integers(1, 7),
    trees=st.sampled_from([1, 7, 513]),
    epochs=st.sets(st.integers(1, 2**64 - 1), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_random_functions_in_random_epochs(
    ring: Ring, domain: int, width: int, trees: int, epochs: set[int], seed: int
) -> None:
    family = udpf.Family(domain, ring, width)
    source, rng = SeededSource(seed, "udpf"), np.random.default_rng(seed)
    alphas = rng.integers(0, domain, trees)
    points = np.concatenate([alphas[:3], rng.integers(0, domain, 5), alphas[:1]])  # in any order, some twice
    betas = random_elements(ring, source, trees, width)
    keys = udpf.gen(family, alphas, betas, source)
    assert np.array_equal(total(ring, keys, points), expected(family, alphas, betas, points))
    for epoch in sorted(epochs):
        betas = random_elements(ring, source, trees, width)
        keys, _ = advance(keys, betas, epoch)
        assert np.array_equal(total(ring, keys, points), expected(family, alphas, betas, points))


def test_a_value_of_zero_is_shared_like_any_other(ring: Ring) -> None:
    family = udpf.Family(6, ring, 2)
    keys = udpf.gen(family, [3, 0], ring.zeros(2, 2), SeededSource(2, "zero"))
    assert not total(ring, keys, range(6)).any()
    assert udpf.evaluate(keys[0], range(6)).all(axis=None)
    assert keys[0].hint.elements.all()


# ---- against the reference


@in_turn("domain", [1, 2, 6])
@in_turn("width", [1, 2, 5])
def test_trees_hints_and_shares_are_those_of_the_reference(ring: Ring, domain: int, width: int) -> None:
    family, source = udpf.Family(domain, ring, width), SeededSource(3, f"{ring.bits}/{domain}/{width}")
    alphas = [source(1)[0] % domain for _ in range(4)]
    keys = udpf.gen(family, alphas, random_elements(ring, source, 4, width), source)
    betas = random_elements(ring, source, 4, width)
    keys, hint = advance(keys, betas, 7)
    shares = [udpf.evaluate(key, range(domain)) for key in keys]
    for tree, alpha in enumerate(alphas):
        known = Known(keys, tree, alpha, 7)
        assert as_integers(hint.elements[tree], ring) == known.hint(as_integers(betas[tree], ring), ring.bits)
        for x in range(domain):
            for server in (0, 1):
                assert as_integers(shares[server][tree, x], ring) == known.share(server, x, ring.bits)


def as_integers(elements: np.ndarray, ring: Ring) -> list[int]:
    return [int(value) % 2**ring.bits for value in ring.to_integers(elements)]


class Known:
    """One tree, worked out with Python's integers."""

    def __init__(self, keys: tuple[udpf.Key, udpf.Key], tree: int, alpha: int, epoch: int) -> None:
        salt, depth = keys[0].salt, keys[0].tree.depth
        self._expand = derive_key(Domain.EXPAND, udpf.PURPOSE, salt)
        self._convert = derive_key(Domain.CONVERT, udpf.PURPOSE, salt, epoch.to_bytes(8, "little"))
        self._roots = tuple(reference.to_ints(key.roots[tree])[0] for key in keys)
        self._words, *self._at_alpha = reference.generate(self._expand, self._roots, alpha, depth)

    def hint(self, beta: list[int], bits: int) -> list[int]:
        per_plane = 128 // bits
        self._hints = [
            reference.hint(
                self._convert,
                tuple(self._at_alpha),
                plane,
                reference.joined(beta[plane * per_plane : (plane + 1) * per_plane], bits),
                bits,
            )
            for plane in range(-(-len(beta) // per_plane))
        ]
        self._width = len(beta)
        return [element for hint in self._hints for element in reference.elements(hint, bits)][: self._width]

    def share(self, server: int, x: int, bits: int) -> list[int]:
        node = reference.leaf(self._expand, self._words, self._roots[server], x)
        elements = [
            element
            for plane, hint in enumerate(self._hints)
            for element in reference.elements(reference.share(self._convert, node, plane, hint, bits), bits)
        ]
        return [(-1) ** server * element % 2**bits for element in elements[: self._width]]


# ---- bytes


@given(
    ring=st.builds(Ring, st.sampled_from([32, 64, 128]), st.integers(0, 30)),
    domain=st.integers(1, 70_000),
    width=st.integers(1, 5),
    trees=st.sampled_from([1, 2, 7, 8, 9, 17]),
    epoch=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**32),
)
def test_keys_and_hints_come_back_from_their_bytes(
    ring: Ring, domain: int, width: int, trees: int, epoch: int, seed: int
) -> None:
    family, source = udpf.Family(domain, ring, width), SeededSource(seed, "bytes")
    alphas = np.random.default_rng(seed).integers(0, domain, trees)
    keys = udpf.gen(family, alphas, random_elements(ring, source, trees, width), source, epoch)
    read = tuple(udpf.Key.from_bytes(key.to_bytes()) for key in keys)
    for key, again in zip(keys, read, strict=True):
        assert_same(key, again)
        assert again.to_bytes() == key.to_bytes()
        size = 60 + trees * (16 + 16 * family.depth + family.value_bytes)
        assert len(key.to_bytes()) == size
    assert np.array_equal(total(ring, read, alphas), total(ring, keys, alphas))
    hint = udpf.Hint.from_bytes(memoryview(keys[0].hint.to_bytes()))
    assert udpf.update(keys[1], hint) is keys[1]
    assert len(hint.to_bytes()) == 60 + trees * family.value_bytes
    if epoch < 2**64 - 1:
        later, made = advance(read, random_elements(ring, source, trees, width), 2**64 - 1)
        assert_same(udpf.update(keys[0], udpf.Hint.from_bytes(made.to_bytes())), later[0])


@given(data=st.data(), server=st.sampled_from([0, 1, 2]))
def test_bytes_that_were_altered_are_refused_or_are_another_key(data: st.DataObject, server: int) -> None:
    """Only a key of the form that `to_bytes` writes is read, whatever was done to the bytes."""
    source = SeededSource(16, "altered")
    keys = udpf.gen(udpf.Family(5, Ring(32)), [1, 2, 3], random_elements(Ring(32), source, 3, 1), source)
    kind = udpf.Hint if server == 2 else udpf.Key
    content = bytearray((keys[0].hint if server == 2 else keys[server]).to_bytes())
    match data.draw(st.sampled_from(["flip", "cut", "extend", "foreign"])):
        case "flip":
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        case "extend":
            content += data.draw(st.binary(min_size=1, max_size=70))
        case _:
            content = bytearray(data.draw(st.binary(max_size=200)))
    try:
        read = kind.from_bytes(content)
    except MisuseError:
        return
    assert read.to_bytes() == content


@pytest.fixture
def content() -> bytes:
    """A key of server 1 to three trees over 5 points."""
    return udpf.gen(udpf.Family(5, Ring(32)), [1, 2, 3], Ring(32).zeros(3, 1), SeededSource(17, "content"))[
        1
    ].to_bytes()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (slice(0, 4), b"NPKT", "not a key: it begins with b'NPKT' instead of b'UDPF'"),
        (slice(4, 5), b"\x01", "a key of version 1; this release reads version 2"),
        (slice(5, 6), b"\x02", "not a key: its kind is 2, expected 0 or 1"),
        (slice(5, 6), b"\x00", "not a key of server 0: a root's lowest bit"),
        (slice(6, 7), b"\x21", "ring: bits must be 32, 64 or 128, not 33"),
        (slice(7, 8), b"\x1f", "ring: fraction_bits must be from 0 to 30, not 31"),
        (slice(8, 12), bytes(4), "got 0 points"),
        (slice(8, 12), b"\xff" * 4, "got 4294967295 points"),
        (slice(8, 12), b"\x09\0\0\0", "bytes expected, as the header says"),
        (slice(12, 16), bytes(4), "and 0 elements"),
        (slice(12, 16), b"\0\0\0\x80", "bytes expected, as the header says"),
        (slice(16, 20), bytes(4), "it has no tree"),
        (slice(16, 20), b"\xff" * 4, "bytes expected, as the header says"),
        (slice(60, 61), b"\x00", "not a key of server 1: a root's lowest bit"),
        (slice(59, None), b"", "59 bytes are fewer than its header's 60"),
        (slice(None, None), b"", "0 bytes are fewer than its header's 60"),
        (slice(-1, None), b"", "the bytes are cut, extended or altered"),
        (slice(2**10, None), b"\0", "the bytes are cut, extended or altered"),
    ],
)
def test_bytes_of_no_key_are_refused_by_name(content: bytes, place: slice, value: bytes, message: str) -> None:
    altered = bytearray(content)
    altered[place] = value
    with pytest.raises(MisuseError, match=re.escape(message)):
        udpf.Key.from_bytes(altered)


def test_a_key_is_no_hint_and_a_hint_no_key(content: bytes) -> None:
    with pytest.raises(MisuseError, match="not a hint: its kind is 1, expected 2"):
        udpf.Hint.from_bytes(content)
    with pytest.raises(MisuseError, match="not a key: its kind is 2, expected 0 or 1"):
        udpf.Key.from_bytes(udpf.Key.from_bytes(content).hint.to_bytes())


# ---- updates


def test_the_order_of_calls_does_not_matter(ring: Ring) -> None:
    """Born with a value, updated to it at once or by way of others: the keys are equal."""
    family, seed = udpf.Family(11, ring, 3), 4
    first, second, third = (random_elements(ring, SeededSource(seed, "betas", str(i)), 5, 3) for i in range(3))
    alphas = [0, 10, 3, 3, 7]

    def born(betas: np.ndarray, epoch: int) -> tuple[udpf.Key, udpf.Key]:
        return udpf.gen(family, alphas, betas, SeededSource(seed, "keys"), epoch)

    directly, _ = advance(born(first, 0), third, 9)
    by_way, _ = advance(advance(born(first, 0), second, 5)[0], third, 9)
    for left, middle, right in zip(directly, by_way, born(third, 9), strict=True):
        assert_same(left, middle)
        assert_same(left, right)


def test_an_update_changes_the_hint_alone_and_leaves_the_old_key_as_it_was(ring: Ring) -> None:
    family, source = udpf.Family(8, ring, 2), SeededSource(5, "alone")
    betas = random_elements(ring, source, 3, 2)
    before = udpf.gen(family, [1, 2, 3], betas, source)
    after, hint = advance(before, random_elements(ring, source, 3, 2), 1)
    assert (before[0].epoch, after[0].epoch) == (0, 1)
    assert np.array_equal(total(ring, before, range(8)), expected(family, [1, 2, 3], betas, range(8)))
    assert_same(replace(after[0], hint=before[0].hint), before[0])
    assert hint.elements.nbytes == 3 * 2 * ring.element_bytes == 3 * family.value_bytes


def test_the_same_hint_again_is_harmless(ring: Ring) -> None:
    family, source = udpf.Family(8, ring), SeededSource(6, "again")
    keys = udpf.gen(family, [4], random_elements(ring, source, 1, 1), source)
    keys, hint = advance(keys, random_elements(ring, source, 1, 1), 1)
    copy = replace(hint, elements=hint.elements.copy())
    assert udpf.update(keys[0], copy) is keys[0]


def test_hints_of_one_tree_differ_in_every_epoch_though_its_value_does_not(ring: Ring) -> None:
    family, source = udpf.Family(64, ring, 4), SeededSource(7, "epochs")
    betas = random_elements(ring, source, 20, 4)
    alphas = [source(1)[0] % 64 for _ in range(20)]
    keys = udpf.gen(family, alphas, betas, source)
    hints = [keys[0].hint.elements]
    for epoch in range(1, 6):
        keys, hint = advance(keys, betas, epoch)
        hints.append(hint.elements)
        assert np.array_equal(total(ring, keys, range(64)), expected(family, alphas, betas, range(64)))
    for i, one in enumerate(hints):
        for other in hints[:i]:
            assert (one != other).reshape(80, -1).any(axis=1).all()


# ---- what one key shows


@pytest.mark.parametrize("server", [0, 1])
@pytest.mark.parametrize("place", ["alpha", "elsewhere", "hint"])
def test_what_one_server_sees_looks_uniform(ring: Ring, server: int, place: str) -> None:
    """Bytes of shares and hints, for one constant value at one constant point, fill all 256 values evenly.

    65,536 bytes and 255 degrees of freedom: the statistic is 255 ± 22.6, and the bound is six deviations away.
    """
    trees = 65_536 // ring.element_bytes
    family, source = udpf.Family(16, ring), SeededSource(8, place)
    constant = ring.encode(np.ones((trees, 1), dtype=np.int64), 1)
    keys = udpf.gen(family, np.full(trees, 5), constant, source)
    keys, hint = advance(keys, constant, 1)
    seen = hint.elements if place == "hint" else udpf.evaluate(keys[server], [5 if place == "alpha" else 6])
    counts = np.bincount(np.ascontiguousarray(seen).reshape(-1).view(np.uint8), minlength=256)
    statistic = ((counts - 256) ** 2 / 256).sum()
    assert 255 - 6 * 22.6 < statistic < 255 + 6 * 22.6
    words = np.ascontiguousarray(seen).reshape(trees, -1)
    assert len(np.unique(words, axis=0)) > 0.99 * trees


def test_keys_of_different_points_cannot_be_told_apart_by_their_control_bits() -> None:
    """Over many trees, a key's correction words and the shares' lowest bits are balanced whatever the point."""
    ring, trees = Ring(64), 20_000
    family = udpf.Family(8, ring)
    for alpha in range(8):
        source = SeededSource(9, str(alpha))
        key, _ = udpf.gen(family, np.full(trees, alpha), ring.zeros(trees, 1), source)
        bits = np.concatenate(
            [
                (key.tree.words[..., 0] & np.uint64(1)).reshape(-1),
                (udpf.evaluate(key, range(8)) & np.uint64(1)).reshape(-1),
            ]
        )
        deviations = (bits.mean() - 0.5) * 2 * np.sqrt(len(bits))
        assert abs(deviations) < 6, f"alpha {alpha}"


def test_no_secret_shows() -> None:
    key, _ = udpf.gen(udpf.Family(8, Ring(64)), [3], Ring(64).zeros(1, 1), SeededSource(10, "repr"))
    family = "family=Family(domain=8, ring=Ring(bits=64, fraction_bits=0), width=1)"
    assert repr(key) == f"Key({family}, server=0, hint=Hint({family}, epoch=0))"


def test_randomness_is_the_argument_and_every_pair_has_its_own_salt() -> None:
    family, betas = udpf.Family(8, Ring(64)), Ring(64).zeros(1, 1)
    one, again, other = (udpf.gen(family, [3], betas, SeededSource(seed, "r"))[0] for seed in (11, 11, 12))
    assert_same(one, again)
    assert one.salt != other.salt
    assert not np.array_equal(one.roots, other.roots)


# ---- refusals


@pytest.fixture
def pair() -> tuple[udpf.Key, udpf.Key]:
    """Two trees at epoch 3."""
    source = SeededSource(13, "pair")
    family = udpf.Family(10, Ring(64), 2)
    return udpf.gen(family, [4, 9], random_elements(Ring(64), source, 2, 2), source, epoch=3)


@pytest.mark.parametrize("epoch", [0, 2, 3])
def test_an_epoch_only_rises(pair: tuple[udpf.Key, udpf.Key], epoch: int) -> None:
    betas = random_elements(Ring(64), SeededSource(14, "x"), 2, 2)
    with pytest.raises(MisuseError, match=f"epoch {epoch} does not rise: the keys are at 3"):
        udpf.next_hint(*pair, betas, epoch)
    if epoch < 3:
        with pytest.raises(MisuseError, match=f"epoch {epoch} does not rise: the key is at 3"):
            udpf.update(pair[0], replace(pair[0].hint, epoch=epoch, elements=betas))
    assert pair[0].epoch == 3


def test_a_second_different_hint_is_refused(pair: tuple[udpf.Key, udpf.Key]) -> None:
    one, other = (udpf.next_hint(*pair, random_elements(Ring(64), SeededSource(s, "x"), 2, 2), 4) for s in (1, 2))
    key = udpf.update(pair[1], one)
    with pytest.raises(MisuseError, match="a second, different hint for epoch 4"):
        udpf.update(key, other)
    with pytest.raises(MisuseError, match="a second, different hint for epoch 3"):
        udpf.update(pair[0], replace(one, epoch=3))
    assert udpf.update(key, one) is key


def test_a_hint_of_other_trees_is_refused(pair: tuple[udpf.Key, udpf.Key]) -> None:
    others = udpf.gen(pair[0].family, [4, 9], Ring(64).zeros(2, 2), SeededSource(18, "others"), epoch=3)
    hint = udpf.next_hint(*others, Ring(64).zeros(2, 2), 4)
    for strange in (hint, replace(pair[0].hint, epoch=4, family=udpf.Family(11, Ring(64), 2))):
        with pytest.raises(MisuseError, match="made for other trees"):
            udpf.update(pair[0], strange)


@pytest.mark.parametrize(
    "elements",
    [
        np.zeros((2, 1), dtype=np.uint64),
        np.zeros((3, 2), dtype=np.uint64),
        np.zeros((2, 2, 2), dtype=np.uint64),
        np.zeros(4, dtype=np.uint64),
        np.zeros((2, 2), dtype=np.uint32),
        np.zeros((2, 2), dtype=np.float64),
        [[0, 0], [0, 0]],
    ],
    ids=["width", "trees", "axes", "flat", "ring", "floats", "list"],
)
def test_hints_and_values_of_another_shape_are_refused(pair: tuple[udpf.Key, udpf.Key], elements: Any) -> None:
    with pytest.raises(MisuseError, match=r"hint: uint64 \(2, 2\) expected for 2 trees"):
        udpf.update(pair[0], replace(pair[0].hint, epoch=4, elements=elements))
    with pytest.raises(MisuseError, match=r"betas: uint64 \(2, 2\) expected for 2 trees"):
        udpf.next_hint(*pair, elements, 4)
    with pytest.raises(MisuseError, match=r"betas: uint64 \(2, 2\) expected for 2 trees"):
        udpf.gen(pair[0].family, [4, 9], elements, SeededSource(1, "x"))


@pytest.mark.parametrize("points", [[10], [-1], [3, 2**40], [[1, 2]], [1.5], [], ["1"]])
def test_points_outside_the_domain_and_what_is_no_point_are_refused(
    pair: tuple[udpf.Key, udpf.Key], points: Any
) -> None:
    with pytest.raises(MisuseError, match=r"points: "):
        udpf.evaluate(pair[0], points)
    with pytest.raises(MisuseError, match=r"points: "):
        udpf.gen(pair[0].family, points, Ring(64).zeros(len(points), 2), SeededSource(1, "x"))


@pytest.mark.parametrize(("domain", "width"), [(0, 1), (2**31 + 1, 1), (4, 0)])
def test_a_family_has_points_and_elements(domain: int, width: int) -> None:
    with pytest.raises(MisuseError, match=f"points and 1 to {2**31} elements expected"):
        udpf.Family(domain, Ring(64), width)


@pytest.mark.parametrize("epoch", [-1, 2**64])
def test_epochs_have_64_bits(pair: tuple[udpf.Key, udpf.Key], epoch: int) -> None:
    with pytest.raises(MisuseError, match=f"not {epoch}"):
        udpf.gen(pair[0].family, [1], Ring(64).zeros(1, 2), SeededSource(1, "x"), epoch)
    if epoch > 0:
        with pytest.raises(MisuseError, match=f"not {epoch}"):
            udpf.update(pair[0], replace(pair[0].hint, epoch=epoch))


def with_bytes(key: udpf.Key, place: int, content: bytes | None = None) -> udpf.Key:
    """The key read from its bytes with others from `place` on, or with the lowest bit of the byte there flipped."""
    data = bytearray(key.to_bytes())
    content = content or bytes([data[place] ^ 1])
    place %= len(data)
    data[place : place + len(content)] = content
    return udpf.Key.from_bytes(data)


def test_keys_that_are_no_pair_are_refused(pair: tuple[udpf.Key, udpf.Key]) -> None:
    betas = Ring(64).zeros(2, 2)
    first, second = pair
    others = udpf.gen(first.family, [4, 9], betas, SeededSource(15, "x"), epoch=3)
    later = udpf.update(second, udpf.next_hint(first, second, betas, 4))
    fewer = udpf.gen(first.family, [4], betas[:1], SeededSource(15, "fewer"), epoch=3)[1]
    strange_roots = second.roots.copy()
    strange_roots[1, 1] ^= np.uint64(1)
    for one, other, message in (
        (second, first, "server 0's key, then server 1's expected"),
        (first, first, "server 0's key, then server 1's expected"),
        (first, others[1], "made apart"),
        (first, later, "one key is at epoch 3, the other at 4"),
        (first, replace(second, roots=strange_roots), "their roots are of different trees"),
        (first, with_bytes(second, 60 + 2 * 16), "their correction words differ"),
        (first, with_bytes(fewer, 28, first.salt), "their correction words differ"),
        (first, with_bytes(second, -1), "different hints for epoch 3"),
    ):
        with pytest.raises(MisuseError, match=message):
            udpf.next_hint(one, other, betas, 5)


def test_keys_and_hints_of_the_primitive():
    """Read with decoders of the tests' own, from what the module says of its bytes; which have not changed."""
    ring = Ring(64, fraction_bits=8)
    betas = ring.encode(np.array([[1.5, -2.0], [0.25, 4.0]]), 2**40)
    keys = udpf.gen(udpf.Family(6, ring, 2), [4, 0], betas, SeededSource(16, "udpf"), epoch=3)
    made, shares = keys[0].hint.to_bytes(), []
    assert (
        H("fsl.tree", *[key.to_bytes() for key in keys], made).hex()
        == "a0402d550a9ae84054401fe52fc4fd90a0ab3c8a0881d9a89beb535d6588a852"
    )
    for server, content in enumerate(key.to_bytes() for key in keys):
        assert content[:6] == b"UDPF\x02" + bytes([server])
        bits, fraction = content[6:8]
        points, width, trees = (int.from_bytes(content[at : at + 4], "little") for at in (8, 12, 16))
        epoch, salt, body = content[20:28], content[28:60], content[60:]
        assert made == b"UDPF\x02\x02" + content[6:60] + content[-trees * width * bits // 8 :]
        assert (bits, fraction, points, width, trees, int.from_bytes(epoch, "little")) == (64, 8, 6, 2, 2, 3)
        purpose = b"updatable distributed point function"
        expand = K("fsl.expand", purpose, salt)
        convert = K("fsl.convert", purpose, salt, epoch)
        words, depth = body[16 * trees :], (points - 1).bit_length()
        hints = words[16 * depth * trees :]
        for tree in range(trees):
            root = int.from_bytes(body[16 * tree : 16 * tree + 16], "little")
            way = [int.from_bytes(words[16 * (level * trees + tree) :][:16], "little") for level in range(depth)]
            hint = int.from_bytes(hints[16 * tree : 16 * tree + 16], "little")
            for point in range(points):
                node = reference.leaf(expand, way, root, point)
                found = reference.elements(reference.share(convert, node, 0, hint, bits), bits)
                shares.append([(-1) ** server * value for value in found])
    totals = [
        [(a + b) % 2**64 for a, b in zip(*pair, strict=True)] for pair in zip(shares[:12], shares[12:], strict=True)
    ]
    signed = [[(v - 2**64 if v >= 2**63 else v) / 2**8 for v in total] for total in totals]
    expected = [[0.0, 0.0] for _ in range(12)]
    expected[4], expected[6] = [1.5, -2.0], [0.25, 4.0]
    assert signed == expected
