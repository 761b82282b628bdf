"""TREC's files: what is read of them, and what is refused."""

import re

import numpy as np
import pytest

from examples.paper.accuracy.trec import PADDING, UNKNOWN, Question, Vocabulary, labels, load, read_questions
from fsl_async import MisuseError

LINES = "DESC:def What is caf\xe9 ?\nNUM:date When was Rome built ?\n"


def written(folder, text, name="train_5500.label"):
    path = folder / name
    path.write_bytes(text.encode("latin-1"))
    return path


def test_questions_are_words_in_lower_case_and_the_coarse_class(tmp_path):
    first, second = read_questions(written(tmp_path, LINES), 2)
    assert first == Question(("what", "is", "café", "?"), 1)
    assert (second.words[0], second.label) == ("when", 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DESC:def What is it ?\n", "2 questions expected, got 1"),
        (LINES + "HUM:ind Who ?\n", "2 questions expected, got 3"),
        ("DESC:def What ?\nWHAT:ever Who ?\n", "line 2: .* got 'WHAT:ever Who \\?'"),
        ("DESC What ?\nDESC:def Who ?\n", "line 1"),
        ("DESC:def \nDESC:def Who ?\n", "line 1"),
        ("\x00\x01\x02\n\n", "line 1"),
    ],
)
def test_a_file_that_is_not_whole_or_another_is_refused_by_its_name(tmp_path, text, said):
    with pytest.raises(MisuseError, match=f"train_5500.label.*{said}"):
        read_questions(written(tmp_path, text), 2)


def test_a_file_that_is_missing_is_refused_by_its_name(tmp_path):
    with pytest.raises(MisuseError, match=re.escape(str(tmp_path / "train_5500.label"))):
        load(tmp_path)


def test_each_known_word_has_a_row_and_rows_0_and_1_are_no_words():
    questions = [Question(("who", "is", "who"), 3), Question(("is", "it"), 1)]
    words = Vocabulary.of(questions)
    assert words.rows == {"is": 2, "it": 3, "who": 4}
    assert len(words) == 5
    table = words.padded([*questions, Question(("what", "is", "it", "not"), 0)], 3)
    assert np.array_equal(table, [[4, 2, 4], [2, 3, PADDING], [UNKNOWN, 2, 3]])
    assert labels(questions).tolist() == [3, 1]
