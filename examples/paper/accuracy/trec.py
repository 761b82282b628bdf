"""TREC's questions and their six coarse classes, from the two files in which they are published.

Rules: a file that is not what it should be is refused by its name and line; the words that a model knows are those of
the questions for training, so nothing of the test set is in a model but its accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fsl_async import MisuseError

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

FILES = {"train": ("train_5500.label", 5_452), "test": ("TREC_10.label", 500)}
"""By part, its file's name and how many questions it holds."""

PADDING, UNKNOWN = 0, 1
"""The rows of no word, and of a word that no question for training holds."""


@dataclass(frozen=True)
class Question:
    """A question in lower-case words, and the index of its class."""

    words: tuple[str, ...]
    label: int


def read_questions(path: Path, expected: int) -> list[Question]:
    """Read a file of lines `COARSE:fine question`, in latin-1.

    Args:
        path: the file.
        expected: how many questions it must hold.

    Raises:
        MisuseError: it is missing, holds another number of questions, or a line is no question; the message names both.
    """
    try:
        text = path.read_bytes().decode("latin-1")
    except OSError as error:
        raise MisuseError(
            f"{path}: cannot be read ({error.strerror}); it is one of TREC's two files of questions"
        ) from error
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    questions = [_question(path, number, line) for number, line in enumerate(lines, start=1)]
    if len(questions) != expected:
        raise MisuseError(
            f"{path}: {expected:,} questions expected, got {len(questions):,}; the file is not whole, or another"
        )
    return questions


def _question(path: Path, number: int, line: str) -> Question:
    label, _, text = line.partition(" ")
    coarse, colon, fine = label.partition(":")
    words = tuple(text.lower().split())
    if coarse not in CLASSES or not colon or not fine or not words:
        raise MisuseError(
            f"{path}, line {number}: `COARSE:fine question` expected, COARSE one of {CLASSES}, got {line[:60]!r}"
        )
    return Question(words, CLASSES.index(coarse))


def load(folder: Path) -> tuple[list[Question], list[Question]]:
    """The questions for training, and those of the test, from a folder that holds TREC's two files.

    Raises:
        MisuseError: a file is missing or damaged.
    """
    train, test = (read_questions(folder / name, expected) for name, expected in FILES.values())
    return train, test


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows, and the row of each.

    Attributes:
        rows: by word, its row.
        padding: rows that stand before the words'.
    """

    rows: dict[str, int]

    @staticmethod
    def of(questions: Iterable[Question], reserved: int = 2) -> Vocabulary:
        """All words of the questions, in alphabetical order after the reserved rows."""
        words = sorted({word for question in questions for word in question.words})
        return Vocabulary({word: row for row, word in enumerate(words, start=reserved)})

    def __len__(self) -> int:
        """How many rows a table of them has."""
        return len(self.rows) + 2

    def known(self, question: Question) -> list[int]:
        """The rows of the words that are known."""
        return [self.rows[word] for word in question.words if word in self.rows]

    def padded(self, questions: Sequence[Question], length: int) -> npt.NDArray[np.int64]:
        """A line of rows for each question, cut or padded to a length; a word that is not known is `UNKNOWN`."""
        table = np.full((len(questions), length), PADDING, dtype=np.int64)
        for line, question in zip(table, questions, strict=True):
            words = question.words[:length]
            line[: len(words)] = [self.rows.get(word, UNKNOWN) for word in words]
        return table


def labels(questions: Iterable[Question]) -> npt.NDArray[np.int64]:
    """The class of each question."""
    return np.array([question.label for question in questions], dtype=np.int64)
