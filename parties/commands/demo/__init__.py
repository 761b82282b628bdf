"""What `fsl-async demo` learns: to tell the chapters of the Python manual apart by their words."""

from parties.commands.demo.corpus import CHAPTERS, Corpus, Excerpt, load
from parties.commands.demo.learner import (
    BLOCKS,
    Learner,
    accuracy,
    initial_model,
    majority,
    telling_words,
    train_in_the_clear,
    updated,
)

__all__ = [
    "BLOCKS",
    "CHAPTERS",
    "Corpus",
    "Excerpt",
    "Learner",
    "accuracy",
    "initial_model",
    "load",
    "majority",
    "telling_words",
    "train_in_the_clear",
    "updated",
]
