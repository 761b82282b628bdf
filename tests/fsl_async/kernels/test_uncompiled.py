"""The kernels as plain Python: the same sources without the compiler give the same blocks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np

from examples.sketching.inner_products import sketch_sums
from fsl_async import kernels
from tests import ROOT
from tests.support.kernel_cases import HASH, MASK, SEGMENTS, SELECT, TAG, Case

SHAPES = [(1, 3, 1, 128), (9, 4, 2, 32), (3, 1, 1, 64)]


def results(bins: int, leaves: int, planes: int, bits: int) -> str:
    """Everything that kernels compute for a small case, as one digest."""
    case = Case(bins, leaves, planes, bits)
    masks = [kernels.keystream(key, nonce=0, count=leaves) for key in (MASK, HASH)]
    tag = kernels.key_schedule(TAG)
    corrections = kernels.tag_corrections(tag, *case.at_alpha, masks[0][case.alphas])
    verification = kernels.Verification(tag, *masks, corrections)
    select, slots = kernels.key_schedule(SELECT), np.arange(case.trees, dtype=np.uint8) % 4
    hints = kernels.make_select_hints(select, *case.at_alpha, slots, 4)
    slotted = kernels.Selection(case.keys, case.roots[0], case.tree, select, hints, 4)
    sums, proofs = case.accumulator(), np.zeros((case.trees, 2), dtype=np.uint64)
    totals = [case.totals() for _ in range(3)]
    marks = np.zeros((SEGMENTS, leaves, -(-bins // 8)), dtype=np.uint8)
    slot_marks = np.zeros((SEGMENTS, leaves, -(-bins * 4 // 8)), dtype=np.uint8)
    for segment in range(SEGMENTS):
        kernels.verifying_adder(case.evaluation(1), verification, sums, proofs)(segment, 0, bins)
        kernels.adder(case.evaluation(1), sums)(segment, 0, bins)
        kernels.evaluate_select(case.selection(1), marks, segment, 0, bins)
        kernels.evaluate_select(slotted, slot_marks, segment, 0, bins)
        kernels.add_leaves(case.evaluation(0), case.all_leaves(0), sums, segment, 0, bins)
        kernels.verifying_adder(case.evaluation(1), verification, sums, proofs, totals[0])(segment, 0, bins)
        kernels.adder(case.evaluation(1), sums, totals[1])(segment, 0, bins)
        kernels.add_leaves(case.evaluation(0), case.all_leaves(0), sums, segment, 0, bins, totals[2])
    whole = [case.tree.words, case.hints, hints, sums, proofs, marks, slot_marks]
    if bins == 1:
        whole += tagged(case, row_bytes=13, queries=1) + tagged(case, row_bytes=103, queries=8)
    whole += [asked.sums for asked in totals]
    whole += [sketch_sums(shares_of(planes), shares_of(1)[:, :, 0]) for planes in (2, 4)]
    return hashlib.blake2b(b"".join(array.tobytes() for array in whole)).hexdigest()


def shares_of(planes: int) -> np.ndarray:
    """Words that fill all 64 bits."""
    return (np.arange(3 * 2 * planes, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).reshape(3, 2, planes)


def tagged(case: Case, row_bytes: int, queries: int) -> list[np.ndarray]:
    """Answers and tags of queries alike, alone or so many and such rows that they share a pass."""
    table = (np.arange(case.leaves * case.bins * row_bytes) % 251).astype(np.uint8).reshape(-1, row_bytes)
    answers = np.empty((queries, case.bins, row_bytes), dtype=np.uint8)
    sums = np.zeros((queries, kernels.tag_words(row_bytes), 2), dtype=np.uint64)
    kernels.answer_tagged([case.selection(1)] * queries, table, answers, sums, 2, 0, case.bins)
    return [answers, kernels.finish_tags(sums[np.newaxis])]


def test_plain_python_agrees(isa: str) -> None:
    compiled = [results(*shape) for shape in SHAPES]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", __name__, isa]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == compiled


if __name__ == "__main__":
    kernels.select_isa(sys.argv[1])
    for arguments in SHAPES:
        print(results(*arguments))
