"""Slow, obvious oracles for the kernels that permute, place, select and fold."""

import hashlib
from functools import cache

import numpy as np


@cache
def _tables(key: bytes, segment: int, size: int) -> bytes:
    return hashlib.shake_256(b"fsl-async permutation rounds v1" + bytes([segment]) + key).digest(size)


def permute(key: bytes, segment: int, rows: int, value: int) -> int:
    """P_s of one row, from the definition: eight Feistel rounds, again until the result is a row."""
    bits = (rows - 1).bit_length()
    high_bits, low_bits = bits // 2, bits - bits // 2
    stream = _tables(key, segment, 16 << low_bits)

    def round_value(number: int, at: int, width: int) -> int:
        start = 2 * ((number << low_bits) + at)
        return int.from_bytes(stream[start : start + 2], "little") % (1 << width)

    while True:
        high, low = divmod(value, 1 << low_bits)
        for number in range(0, 8, 2):
            high ^= round_value(number, low, high_bits)
            low ^= round_value(number + 1, high, low_bits)
        value = (high << low_bits) + low
        if value < rows:
            return value


def most_placed(bins_of: np.ndarray) -> int:
    """The size of a maximum matching of rows to bins, by one augmenting path after another (Kuhn)."""
    row_at: dict[tuple[int, int], int] = {}

    def augment(row: int, seen: set[tuple[int, int]]) -> bool:
        for place in enumerate(map(int, bins_of[row])):
            if place not in seen:
                seen.add(place)
                if place not in row_at or augment(row_at[place], seen):
                    row_at[place] = row
                    return True
        return False

    return sum(augment(row, set()) for row in range(len(bins_of)))


def permuted_model(model_rows: np.ndarray, inverse: np.ndarray, bins: int, positions: int) -> np.ndarray:
    """Row inverse[y] at place y, and zeros up to a whole number of leaves."""
    rows, row_bytes = model_rows.shape
    leaves = -(-rows // (bins * positions))
    table = np.zeros((leaves * bins * positions, row_bytes), np.uint8)
    for place in range(rows):
        table[place] = model_rows[inverse[place]]
    return table


def select_rows(table: np.ndarray, bits: np.ndarray, bins: int, positions: int) -> np.ndarray:
    """The XOR of the chosen rows, one row, one query and one bin at a time."""
    queries, leaves, _ = bits.shape
    answers = np.zeros((queries, bins, table.shape[1]), np.uint8)
    for query in range(queries):
        for leaf in range(leaves):
            for place in range(bins * positions):
                if bits[query, leaf, place // 8] >> (place % 8) & 1:
                    answers[query, place // positions] ^= table[leaf * bins * positions + place]
    return answers


def payload(accumulator: np.ndarray, segment: int, leaf: int, bin_: int) -> bytes:
    """The bytes under one leaf: its planes one after another."""
    return b"".join(accumulator[segment, leaf, plane, bin_].tobytes() for plane in range(accumulator.shape[2]))


def fold(accumulator: np.ndarray, tables: np.ndarray, width: int, element_bits: int, positions: int) -> list[list[int]]:
    """Each row's sum over the segments, as Python integers."""
    bins, size = accumulator.shape[3], element_bits // 8
    sums = []
    for row in range(tables.shape[1]):
        totals = [0] * width
        for segment in range(3):
            place, slot = divmod(int(tables[segment, row]), positions)
            leaf, bin_ = divmod(place, bins)
            data = payload(accumulator, segment, leaf, bin_)
            for column in range(width):
                start = (slot * width + column) * size
                totals[column] += int.from_bytes(data[start : start + size], "little")
        sums.append([total % 2**element_bits for total in totals])
    return sums
