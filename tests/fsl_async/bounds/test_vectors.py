"""docs/bound-vectors.json: the library makes it again, and the reference reads it."""

import json
import runpy
from typing import Any

import pytest

from tests import ROOT
from tests.support.reference_bounds import Reference
from tests.support.wire_page import of

FILE = ROOT / "docs" / "bound-vectors.json"
VECTORS = json.loads(FILE.read_text(encoding="utf-8"))

each_example = pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['method']} {case['l']} {case['L']}")


def words_of(share: str, bits: int) -> list[int]:
    data = of(share)
    return [int.from_bytes(data[i : i + bits // 8], "little") for i in range(0, len(data), bits // 8)]


def reference_of(case: dict[str, Any]) -> Reference:
    return Reference(case["l"], case["b"], len(case["weights"]), case["N"], case["L"], case["place"])


def test_the_library_makes_these_examples():
    made = runpy.run_path(str(ROOT / "docs" / "generate_bound_vectors.py"))["text"]()
    assert made == FILE.read_text(encoding="utf-8"), "`make docs` writes the file again"


@each_example
def test_the_reference_gives_the_same_answers(case: dict[str, Any]):
    reference, msk = reference_of(case), [of(seed) for seed in case["msk"]]
    shares = [words_of(share, case["l"]) for share in case["shares"]]
    assert [(x - z - w) % 2 ** case["l"] for x, z, w in zip(*shares, case["weights"], strict=True)] == [0] * 7
    bind, query, submission = of(case["bind"]), of(case["query"]), of(case["submission"])
    assert str(reference.point(query, submission)) == case["t"]
    answers = [
        reference.verifier_share(
            server,
            shares[server],
            of(case["private"]) if server == case["carrier"] else None,
            msk[server],
            bind,
            query,
            submission,
        )
        for server in (0, 1)
    ]
    assert [answer.hex() for answer in answers] == case["answers"]
    width, start = reference.element[0], 32 if case["N"] else 0
    left, right = (
        [int.from_bytes(answer[i : i + width], "little") for i in range(start, len(answer), width)]
        for answer in answers
    )
    assert reference.holds(left, right)
    assert answers[0][:start] == answers[1][:start]


@each_example
def test_the_private_part_is_the_references_proof_of_what_it_shares(case: dict[str, Any]):
    reference, msk, bind = reference_of(case), of(case["msk"][1 - case["carrier"]]), of(case["bind"])
    private, size, width = of(case["private"]), reference.mask_bytes, reference.element[0]
    end = size * reference.integers
    pieces = [private[i : i + size] for i in range(0, end, size)]
    masked = [
        int.from_bytes(piece, "little") - mask - reference.offset
        for piece, mask in zip(pieces, reference.integer_masks(msk, bind), strict=True)
    ]
    shown = reference.project(bind, case["weights"]) if case["N"] else case["weights"]
    weight, most = case["weights"][case["place"]], case["L"]
    squares = masked[len(masked) - (8 if most else 4) :][:4]
    assert masked[: len(shown)] == shown or not case["N"]
    assert sum(value**2 for value in (*shown, *squares)) == reference.limit
    assert not most or (2 * weight - most) ** 2 + sum(value**2 for value in masked[-4:]) == most**2
    shares = [int.from_bytes(private[i : i + width], "little") for i in range(end, len(private), width)]
    proof = [
        (share + mask) % reference.prime for share, mask in zip(shares, reference.proof_mask(msk, bind), strict=True)
    ]
    values = reference.values(case["weights"], masked)
    assert proof == reference.prove(values, proof[: reference.wires])
    assert reference.private_part(masked, proof, msk, bind) == private
