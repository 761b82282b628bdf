"""Updates beyond the bound, proofs of something else, and messages of a server that lies: none is accepted."""

from collections.abc import Sequence
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsl_async.bounds import accepts, check_private, private_digest, private_part
from fsl_async.bounds.masking import query_point
from fsl_async.bounds.terms import BoundTerms
from fsl_async.errors import BoundExceededError, PeerViolationError
from fsl_async.ring import Ring
from tests.support.bounded import ALL, EXACT, PROJECTED, PROJECTED_64, Scene, elements_of, of_norm

each_method = pytest.mark.parametrize("terms", ALL.values(), ids=ALL)


# ---- honest clients


@each_method
@pytest.mark.parametrize("carrier", [0, 1])
def test_an_update_within_the_bound_is_accepted(terms: BoundTerms, carrier: int):
    for places in (1, 2, 5, 40):
        scene = Scene(terms, of_norm(terms.norm, 40, places), carrier, seed=places)
        private = scene.honest()
        check_private(terms, private, "alice")
        assert len(private) == terms.private_bytes
        assert len(scene.answer(0, private)) == len(scene.answer(1, private)) == terms.verifier_bytes
        assert scene.accepted(private)


@each_method
def test_no_update_at_all_and_one_of_just_the_bound_are_accepted(terms: BoundTerms):
    for weights in ([0] * 40, [terms.norm] + [0] * 39, [0] * 39 + [-terms.norm]):
        assert Scene(terms, weights).accepted(Scene(terms, weights).honest())


@each_method
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_update_is_accepted_or_refused_by_its_norm(terms: BoundTerms, data: st.DataObject):
    most = 2 * terms.norm // 6
    weights = data.draw(st.lists(st.integers(-most, most), min_size=40, max_size=40))
    scene = Scene(terms, weights, data.draw(st.integers(0, 1)), data.draw(st.integers(0, 99)))
    if sum(weight * weight for weight in weights) > terms.norm**2:
        with pytest.raises(BoundExceededError):
            scene.honest()
    else:
        assert scene.accepted(scene.honest())


@each_method
def test_a_client_does_not_send_what_exceeds_the_bound(terms: BoundTerms):
    with pytest.raises(BoundExceededError, match=r"L2 norm over all blocks is .* task's bound is") as refused:
        Scene(terms, [0] * 39 + [terms.norm + 1]).honest()
    assert refused.value.bound == terms.norm / 2**terms.fraction_bits
    assert refused.value.norm == pytest.approx((terms.norm + 1) / 2**terms.fraction_bits, rel=1e-9)


def test_the_same_randomness_for_another_update_does_not_repeat_seeds():
    one, other = (Scene(EXACT, of_norm(EXACT.norm, 40, 5, seed)) for seed in (1, 2))
    parts = [private_part(EXACT, scene.elements, scene.msk[1], scene.bind, bytes) for scene in (one, other)]
    start = EXACT.integer_bytes
    assert one.msk == other.msk
    assert parts[0][start:][:32] != parts[1][start:][:32]


# ---- updates that are too large


def too_large(terms: BoundTerms) -> dict[str, list[int]]:
    half = 2 ** (terms.ring_bits - 1)
    least = -(-int(terms.slack * 1000) * terms.norm // 1000) + terms.norm // 50 if not terms.exact else terms.norm + 1
    return {
        "one just beyond": [least] + [0] * 39,
        "the last, a dense one": [0] * 39 + [-least],
        "one half of the ring": [half] + [0] * 39,
        "all half of the ring": [half] * 40,
        "two half of the ring": [half, half] + [0] * 38,
        "all a third of the ring": [2 * half // 3] * 40,
        "many small ones": [least // 6 + 1] * 40,
    }


@each_method
@pytest.mark.parametrize("name", too_large(EXACT))
def test_what_is_too_large_is_not_accepted_whatever_is_proved(terms: BoundTerms, name: str):
    scene = Scene(terms, too_large(terms)[name])
    zeros = [0, 0, 0, 0]
    shrunk = of_norm(terms.norm // 2, 40, 9)
    if terms.exact:
        tries = {
            "the servers' own words": (scene.lifted(), zeros),
            "nothing": ([0] * 40, scene.squares(terms.limit)),
            "a smaller update": (shrunk, scene.squares(terms.limit - sum(w * w for w in shrunk))),
            "the words, and squares as if of a smaller one": (scene.lifted(), scene.squares(terms.limit)),
            "the words, and all bits of the squares": (scene.lifted(), [2 ** (8 * terms.mask_bytes - 1) - 1] * 4),
        }
        for values, squares in tries.values():
            assert not scene.accepted(scene.pack(squares, scene.proof([*values, *squares])))
    else:
        true, whole = scene.projected(), 2**terms.ring_bits
        short = [value // 8 for value in true]
        rest = scene.squares(max(0, terms.limit - sum(value * value for value in short)))
        fit = 2 ** (8 * terms.mask_bytes - 2)
        tries = {
            "the projections": (true, zeros),
            "the projections as words": ([value % whole for value in true], zeros),
            "nothing": ([0] * terms.projections, scene.squares(terms.limit)),
            "shorter ones": (short, rest),
        }
        for values, squares in tries.values():
            if all(-terms.offset <= value < fit for value in values):  # others have no integer that could be sent
                assert not scene.accepted(scene.pack([*values, *squares], scene.proof([*values, *squares])))


def test_a_root_in_the_field_does_not_fit_an_integer():
    """b² - S is negative and may have a root mod P: one that no masked integer holds, honest or not."""
    prime = EXACT.field.prime
    for extra in range(1, 40):
        number = (EXACT.norm**2 - (EXACT.norm + extra) ** 2) % prime
        root = pow(number, (prime + 3) // 8, prime)
        for candidate in (root, root * pow(2, (prime - 1) // 4, prime) % prime):
            if candidate * candidate % prime == number:
                assert min(candidate, prime - candidate) > 2 ** (8 * EXACT.mask_bytes)


def test_the_largest_sum_of_any_proof_is_below_the_prime():
    for terms in ALL.values():
        word, integer = 2**terms.ring_bits - 1, 2 ** (8 * terms.mask_bytes) + terms.offset
        reached = terms.masked * integer**2 + (terms.weights * word**2 if terms.exact else 0)
        assert reached + terms.limit <= terms.largest_sum < terms.field.prime


@each_method
def test_a_bent_q_passes_at_its_chosen_points_alone(terms: BoundTerms):
    """Q′ = Q + c·z with 2G chosen zeros and T forced: it would pass if the toss hit a zero, and it does not."""
    scene = Scene(terms, too_large(terms)["one just beyond"])
    masked = [*([] if terms.exact else scene.projected()), 0, 0, 0, 0]
    values = [*scene.lifted(), *masked] if terms.exact else masked
    prime, calls, wires = terms.field.prime, terms.wires.calls, terms.wires.count
    proof, excess = scene.proof(values), terms.limit - sum(value * value for value in values)

    def bent(zeros: Sequence[int]) -> list[int]:
        z = [prod(t - zero for zero in zeros) for t in range(2 * calls + 1)]
        c = excess * pow(sum(z[1 : calls + 1]), -1, prime)
        return proof[:wires] + [(q + c * at) % prime for q, at in zip(proof[wires:], z, strict=True)]

    guessed = range(10**6, 10**6 + 2 * calls)
    assert not scene.accepted(scene.pack(masked, bent(guessed)))
    # Who knew the toss beforehand would pass: that is what the proof rests on.
    hit = query_point(terms, scene.toss, scene.submission)
    assert scene.accepted(scene.pack(masked, bent([hit, *guessed[1:]])))


# ---- private parts of something else


@each_method
def test_a_part_of_another_round_client_epoch_or_carrier_is_not_accepted(terms: BoundTerms):
    weights = of_norm(terms.norm // 2, 40, 9)
    here, elsewhere = Scene(terms, weights, seed=1), Scene(terms, weights, seed=1)
    elsewhere.bind = Scene(terms, weights, seed=2).bind  # a round, a client and an epoch are all in the binding
    assert here.accepted(here.honest())
    assert not here.accepted(elsewhere.honest())
    other_carrier = Scene(terms, weights, carrier=1, seed=1)
    assert not here.accepted(other_carrier.honest())


@each_method
def test_a_share_off_by_one_anywhere_is_not_accepted(terms: BoundTerms):
    ring = Ring(terms.ring_bits)
    for place in (0, 17, 39):
        scene = Scene(terms, of_norm(terms.norm // 2, 40, 9))
        private = scene.honest()
        assert scene.accepted(private)
        error = elements_of([int(place == other) for other in range(40)], terms.ring_bits)
        scene.shares[place % 2] = ring.add(scene.shares[place % 2], error)
        assert not scene.accepted(private)


@each_method
def test_any_bit_of_the_part_matters(terms: BoundTerms):
    scene = Scene(terms, of_norm(terms.norm // 2, 40, 9))
    private = scene.honest()
    for place in range(0, len(private), len(private) // 11):
        spoilt = bytearray(private)
        spoilt[place] ^= 1
        try:
            check_private(terms, spoilt, "alice")
        except PeerViolationError:
            continue
        assert not scene.accepted(bytes(spoilt))


@each_method
def test_parts_of_another_size_or_with_elements_beyond_the_prime_are_refused_by_name(terms: BoundTerms):
    private = Scene(terms, of_norm(terms.norm // 2, 40, 9)).honest()
    for wrong in (private[:-1], private + b"\0", b""):
        with pytest.raises(PeerViolationError, match=f"alice: proved its bound with {len(wrong)} bytes, the task impl"):
            check_private(terms, wrong, "alice")
    size = terms.field.element_bytes
    for number in (terms.field.prime, 2 ** (8 * size) - 1):
        with pytest.raises(
            PeerViolationError, match=r"alice: proved its bound with a malformed proof: element .* below"
        ):
            check_private(terms, private[:-size] + number.to_bytes(size, "little"), "alice")


def test_a_part_is_committed_to_under_the_carriers_seed():
    private = Scene(EXACT, [0] * 40).honest()
    digests = {private_digest(private, b"a" * 16), private_digest(private, b"b" * 16), private_digest(b"", b"a" * 16)}
    assert len(digests) == 3


# ---- a forced wrap, and servers that lie


def test_a_client_that_forces_a_wrap_is_out_and_nothing_else():
    """By its choice of seeds a client may bring z so near to 2^64 that x wraps: it has proved another B, and is out."""
    scene = Scene(EXACT, [5] + [0] * 39)
    second = elements_of([2**64 - 3] + [9] * 39, 64)
    scene.shares = [Ring(64).add(scene.elements, second), second]
    assert scene.lifted()[0] == 5 - 2**64
    assert not scene.accepted(scene.honest())


@each_method
def test_a_server_can_only_leave_a_client_out(terms: BoundTerms):
    scene = Scene(terms, of_norm(terms.norm // 2, 40, 9))
    private = scene.honest()
    ours, theirs = (scene.answer(server, private) for server in (0, 1))
    assert accepts(terms, ours, theirs)
    size, prime = terms.field.element_bytes, terms.field.prime
    start = len(theirs) % size if terms.exact else 32
    negative = terms.field.pack((-element) % prime for element in terms.field.unpack(theirs[start:]))
    beyond = prime.to_bytes(size, "little")
    for garbage in (
        b"",
        theirs[:-1],
        theirs + b"\0",
        bytes(len(theirs)),
        ours,
        theirs[:start] + negative,
        theirs[:-size] + beyond,
        bytes([theirs[0] ^ 1]) + theirs[1:],
    ):
        assert not accepts(terms, ours, garbage)


@each_method
def test_an_answer_under_another_toss_or_of_another_submission_does_not_fit(terms: BoundTerms):
    scene = Scene(terms, of_norm(terms.norm // 2, 40, 9))
    private = scene.honest()
    ours = scene.answer(0, private)
    assert not accepts(terms, ours, scene.answer(1, private, query=bytes(32)))
    assert not accepts(terms, ours, scene.answer(1, private, submission=bytes(32)))


def test_the_links_digest_says_nothing_that_a_server_does_not_know():
    """For an honest client both links are one digest, whatever the update; it varies with the shares alone."""
    for seed in range(5):
        scene = Scene(PROJECTED, of_norm(PROJECTED.norm // 2, 40, 9, seed), seed=seed)
        private = scene.honest()
        assert scene.answer(0, private)[:32] == scene.answer(1, private)[:32]


def test_the_verdict_does_not_depend_on_the_place_of_the_update():
    for terms in (EXACT, PROJECTED_64):
        for place in range(0, 40, 13):
            for value, verdict in ((terms.norm, True), (3 * terms.norm, False)):
                scene = Scene(terms, [0] * place + [value] + [0] * (39 - place))
                if verdict:
                    assert scene.accepted(scene.honest())
                else:
                    masked = [0] * (terms.masked - 4) + scene.squares(terms.limit)
                    values = ([0] * 40 if terms.exact else []) + masked
                    assert not scene.accepted(scene.pack(masked, scene.proof(values)))
