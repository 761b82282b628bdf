"""Two submissions on the same trees in one epoch, as of a client that was started again from a copy of what it kept.

Servers that follow the protocol refuse the second one. One that does not has both, and must learn no more from them
than from two submissions on trees of their own: without salts their difference is that of the values, in every bin.
"""

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.bounds import terms_of
from fsl_async.bounds.masking import integer_masks, proof_mask
from fsl_async.client import upload
from fsl_async.client.planting import MasterSeeds
from fsl_async.client.upload import submission_bulk
from fsl_async.config import BlockModel
from fsl_async.derivation import dense_mask
from fsl_async.union import UnionBlock
from fsl_async.wire.public_part import Layout, Trees, forests_of
from tests.support.rounds import Round

ROWS = np.array([3, 50, 171], dtype=np.uint32)
TASK = Task(
    name="words",
    blocks=(Sparse("words", rows=300, select=6, width=2), Dense("head", size=8)),
    ring=Ring(64),
    selection="fixed",
)


@pytest.fixture
def round_() -> Round:
    model = {"words": np.zeros((300, 2), np.float32), "head": np.zeros(8, np.float32)}
    return Round(TASK, model, seed=5)


def hints(round_: Round, client_trees, value: int, trees: Trees = Trees.SESSION, **also) -> dict[str, np.ndarray]:
    """Salt and hints of a submission of one value in every row."""
    elements = TASK.ring.encode(np.full((len(ROWS), 2), value), TASK.largest_integer)
    part, _ = submission_bulk(round_.config, "ada", client_trees, {0: (ROWS, elements)}, trees, **also)
    found = {"salt": [], "hint": []}
    for (_, kind), piece in Layout.submission(planned(TASK), trees).split(memoryview(part)).items():
        found.setdefault(kind, []).append(np.frombuffer(piece, np.uint8))
    return {kind: np.concatenate(pieces) for kind, pieces in found.items() if pieces}


@pytest.mark.parametrize("trees", list(Trees))
def test_other_values_on_the_same_trees_are_hidden_by_other_masks(round_: Round, trees: Trees) -> None:
    client_trees = round_.plant({"words": ROWS})
    first, second = hints(round_, client_trees, 1, trees), hints(round_, client_trees, 2, trees)
    assert not np.array_equal(first["salt"], second["salt"])
    elements = [part["hint"].view("<u8").reshape(-1, 2) for part in (first, second)]
    assert len(elements[0]) == sum(forest.trees for _, forest in forests_of(planned(TASK)))
    difference = elements[1] - elements[0]
    assert not np.isin(difference, np.array([0, 1, 2**64 - 1], dtype=np.uint64)).any()


def test_the_same_values_on_the_same_trees_are_the_same_bytes(round_: Round) -> None:
    client_trees = round_.plant({"words": ROWS})
    first, second = hints(round_, client_trees, 1), hints(round_, client_trees, 1)
    assert all(np.array_equal(first[kind], second[kind]) for kind in ("salt", "hint"))


def head(value: int) -> dict[int, np.ndarray]:
    return {0: TASK.ring.encode(np.full(8, value), TASK.largest_integer)}


def share(config, client_trees, dense, plain) -> np.ndarray:
    """The carrier's share of a submission that changes no row of a tree."""
    found = submission_bulk(config, "ada", client_trees, {}, Trees.SESSION, dense, plain)[1]
    return np.frombuffer(found, "<u8")


def test_the_same_rows_beside_other_dense_values_are_hidden_by_other_masks(round_: Round) -> None:
    """One salt serves all: it tells whether everything is the same, and nothing of what is not."""
    client_trees = round_.plant({"words": ROWS})
    first, second = (hints(round_, client_trees, 1, dense=head(value)) for value in (1, 2))
    assert not np.array_equal(first["salt"], second["salt"])
    assert not np.isin(first["hint"].view("<u8") - second["hint"].view("<u8"), np.uint64(0)).any()


def test_random_bytes_make_the_salt_of_the_same_values_another(round_: Round) -> None:
    client_trees = round_.plant({"words": ROWS})
    salts = [hints(round_, client_trees, 1, fresh=fresh)["salt"].tobytes() for fresh in (b"", bytes(16), b"\x01" * 16)]
    assert len(set(salts)) == 3


def test_dense_values_too(round_: Round) -> None:
    client_trees = round_.plant({"words": ROWS})
    shares = [share(round_.config, client_trees, head(value), {}) for value in (1, 2, 1)]
    assert np.array_equal(shares[0], shares[2])
    assert not np.isin(shares[1] - shares[0], np.array([0, 1], dtype=np.uint64)).any()


def test_values_of_rows_that_move_plainly_too(round_: Round) -> None:
    """Beside dense values that are the same both times."""
    client_trees = round_.plant({"words": ROWS})
    union, plain_model = (UnionBlock("words", 3, bytes(32)),), (BlockModel("words", "f4", bytes(32)),)
    config = replaced(round_.config, union=union, bins=(0,), plain=plain_model)
    shares = []
    for value in (1, 2, 1):
        plain = {0: TASK.ring.encode(np.full(6, value), TASK.largest_integer)}
        shares.append(share(config, client_trees, head(1), plain))
    assert len(shares[0]) == 8 + 6
    assert np.array_equal(shares[0], shares[2])
    assert not np.isin(shares[1] - shares[0], np.array([0, 1], dtype=np.uint64)).any()


@pytest.mark.parametrize("server", [0, 1])
def test_a_salt_cannot_be_found_from_one_server_s_seed_and_a_guess_of_the_values(round_: Round, server: int) -> None:
    client_trees = round_.plant({"words": ROWS})
    seeds = list(client_trees.seeds.msk)
    seeds[server] = bytes(16)
    other = replace(client_trees, seeds=MasterSeeds((seeds[0], seeds[1])))
    assert not np.array_equal(hints(round_, client_trees, 1)["salt"], hints(round_, other, 1)["salt"])


def test_a_salt_that_a_client_uses_again_in_another_round_meets_other_masks(round_: Round, monkeypatch) -> None:
    monkeypatch.setattr(upload, "_salt", lambda *of: bytes(16))
    client_trees, rows = round_.plant({"words": ROWS}), TASK.ring.encode(np.full((3, 2), 1), TASK.largest_integer)
    parts, shares = [], []
    for config in (round_.config, replaced(round_.config, number=2)):
        part, found = submission_bulk(config, "ada", client_trees, {0: (ROWS, rows)}, Trees.SESSION, head(1))
        parts.append(np.frombuffer(part[16:-32], "<u8"))
        shares.append(np.frombuffer(found, "<u8"))
    assert not np.isin(parts[1] - parts[0], np.uint64(0)).any()
    assert not np.isin(shares[1] - shares[0], np.uint64(0)).any()


def test_what_one_salt_serves_has_keys_of_its_own(round_: Round) -> None:
    """The conversion of two blocks, the dense masks of both seeds, and the masks of a bound's proof."""
    salt, seeds = bytes(16), (b"0" * 16, b"1" * 16)
    terms = terms_of(planned(Task(name="t", blocks=[Dense("head", size=8)], ring=Ring(64), min_clients=2, bound=1.0)))
    assert terms is not None
    found = [round_.config.convert_key(block, salt) for block in (0, 1)]
    found += [dense_mask(round_.config.shape, seed, 1, salt).tobytes()[:16] for seed in seeds]
    found += [bytes(str(integer_masks(terms, seed, salt * 2)[0]), "ascii") for seed in seeds]
    found += [bytes(str(proof_mask(terms, seed, salt * 2)[0]), "ascii") for seed in seeds]
    assert len(set(found)) == 8
