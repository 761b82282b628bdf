"""What a round's clients can have contributed to its sum: every weight, and where norms are proved, all of it."""

from math import isqrt
from typing import Any

import numpy as np
import pytest

from fsl_async import Dense, Privacy, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.bounds import terms_of
from fsl_async.privacy.doses import noise_norm
from fsl_async.server.sum_limits import BeyondNormsError, ContributionCheck, ExcessError, largest_square

CLIENTS = 7


def task(**changes: Any) -> Task:
    fields = {
        "name": "t",
        "blocks": [Sparse("a", rows=50, select=4, width=2), Dense("d", size=10)],
        "ring": Ring(64, fraction_bits=16),
        "bound": 1.0,
        "max_clients": 100,
    }
    return Task(**(fields | changes))


def sums(first: int, rest: int = 0) -> dict[str, np.ndarray]:
    """One weight, and the square of what the others come to: split over both blocks."""
    arrays = {"a": np.zeros((50, 2), np.int64), "d": np.zeros(10, np.int64)}
    arrays["a"][3, 1] = first
    arrays["d"][7] = -rest
    return arrays


def check_contributions(of: Task, arrays: dict[str, np.ndarray], clients: int) -> None:
    check = ContributionCheck(of, clients)
    for name, weights in arrays.items():
        check.take(name, weights)
    check.finish()


def most(of: Task, clients: int = CLIENTS) -> int:
    terms = terms_of(planned(of))
    assert terms is not None
    return largest_square(of, terms, clients)


@pytest.mark.parametrize("bits", [64, 128])
def test_a_sum_may_be_as_long_as_all_proved_norms_together(bits: int) -> None:
    bounded = task(ring=Ring(bits, fraction_bits=16))
    assert most(bounded) == CLIENTS**2 * 3 * 2**32
    longest = isqrt(most(bounded))
    kind = object if bits == 128 else np.int64
    check_contributions(bounded, {name: array.astype(kind) for name, array in sums(longest).items()}, CLIENTS)
    for beyond in (sums(longest + 1), sums(longest, isqrt(most(bounded) - longest**2) + 1)):
        with pytest.raises(BeyondNormsError, match=r"norm of at most 1 .* one of the servers"):
            check_contributions(bounded, {name: array.astype(kind) for name, array in beyond.items()}, CLIENTS)


def test_every_limb_of_every_weight_is_squared() -> None:
    """Random weights of every length, against Python's integers, at the edge of what is allowed."""
    numbers = np.random.default_rng(4)
    for length in range(1, 24):
        weights = numbers.integers(-(2**length), 2**length, (50, 2))
        squares = sum(int(weight) ** 2 for weight in weights.reshape(-1))
        clients = isqrt(-(-squares // most(task(), 1))) + 1
        arrays = {"a": weights, "d": np.zeros(10, np.int64)}
        check_contributions(task(), arrays, clients)
        rest = isqrt(most(task(), clients) - squares)
        arrays["d"][2] = rest
        check_contributions(task(), arrays, clients)
        arrays["d"][2] = rest + 1
        with pytest.raises(BeyondNormsError):
            check_contributions(task(), arrays, clients)


def test_a_sum_that_wraps_the_sum_of_squares_is_refused() -> None:
    """2^63, the only number without its negative, and enough others that 64 bits would not hold their squares."""
    unlimited = task(ring=Ring(64, fraction_bits=0), bound=4.0, max_clients=16)
    arrays = {"a": np.full((50, 2), -(2**60)), "d": np.zeros(10, np.int64)}
    with pytest.raises(BeyondNormsError, match="longer than 3 clients"):
        check_contributions(unlimited, arrays, 3)


def test_a_weight_beyond_every_clients_largest_shows_who_lied_where_norms_are_proved() -> None:
    """The more a server adds, the clearer it is: no client whose norm is proved can have made it."""
    for weight in (2**62, -(2**63)):
        with pytest.raises(BeyondNormsError):
            check_contributions(task(largest=1.0), sums(weight), CLIENTS)
        with pytest.raises(ExcessError, match=r"the sum of block 'a' at \[3, 1\]") as caught:
            check_contributions(task(bound=None, largest=1.0), sums(weight), CLIENTS)
        assert not isinstance(caught.value, BeyondNormsError)
    with pytest.raises(ExcessError, match=r"values of at most 0\.25") as caught:
        check_contributions(task(largest=0.25), sums(CLIENTS * 2**14 + 1), CLIENTS)
    assert not isinstance(caught.value, BeyondNormsError)


def test_stash_slots_dense_tasks_projections_and_noise_change_what_is_allowed() -> None:
    assert most(task(blocks=[Sparse("a", rows=50, select=4, stash=2)])) == CLIENTS**2 * 5 * 2**32
    assert most(task(blocks=[Dense("d", size=10)])) == CLIENTS**2 * 2**32
    projected = task(bound_proof="projected")
    terms = terms_of(planned(projected))
    assert terms is not None
    assert most(projected) == CLIENTS**2 * 3 * terms.guaranteed_square > 4 * most(task())
    noisy = task(privacy=Privacy(noise=2.0, delta=1e-6, budget=100.0))
    noise = noise_norm(noisy.doses.values, 50 * 2 + 10)
    assert most(noisy) == (isqrt(most(task())) + 1 + noise) ** 2


def test_a_sum_of_weights_that_no_clients_have_proved_shows_who_lied() -> None:
    blocks = [Dense("a", size=100), Dense("d", size=10), Dense("n", size=1)]
    fields = {"blocks": blocks, "apply": "weighted-mean", "weights": "n", "bound": 8.0, "largest_weight": 0.5}
    noisy = task(**fields, privacy=Privacy(noise=2.0, delta=1e-6, budget=100.0))
    for made, reach in ((task(**fields), 0), (noisy, noisy.noise_reach)):
        for weight, wrong in ((-reach, False), (-reach - 1, True), (CLIENTS * 2**15 + reach, False)):
            arrays = {"a": np.zeros(100, np.int64), "d": np.zeros(10, np.int64), "n": np.array([weight])}
            if not wrong:
                check_contributions(made, arrays, CLIENTS)
                continue
            with pytest.raises(BeyondNormsError, match=r"7 clients of 0 to 0\.5 each cannot weigh"):
                check_contributions(made, arrays, CLIENTS)
    with pytest.raises(BeyondNormsError):
        check_contributions(task(**fields), arrays | {"n": np.array([CLIENTS * 2**15 + 1])}, CLIENTS)
