"""The text from which the demo learns: the language reference that is part of every CPython, for `help()`.

`pydoc_data.topics` has about eighty pages of the Python manual, from nine of its chapters. An example is an excerpt (a
long paragraph or a few short ones of a page), and its label is the chapter. Rules:

- No paragraph is used twice. The manual repeats itself (the page on compound statements contains the page on `if`), and
  a held-out paragraph that a client also has would measure memory, not learning.
- Whole stretches of a page go to one client, or are held out: a client has passages, not shuffled sentences.
- Nothing depends on the wording or the number of pages, which change with every Python version. A page that no chapter
  names is left out, and a page that a version lacks is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import TypeVar

import numpy as np

from fsl_async.errors import MisuseError

Item = TypeVar("Item")

# Title of the chapter -> its pages among the topics: the division of the manual's own table of contents.
CHAPTERS: Mapping[str, str] = {
    "data model": "attribute-access callable-types context-managers customization numeric-types objects "
    "sequence-types specialnames types",
    "built-in types": "bltin-code-objects bltin-ellipsis-object bltin-null-object bltin-type-objects specialattrs "
    "string-methods truth typesfunctions typesmapping typesmethods typesmodules typesseq typesseq-mutable",
    "compound statements": "async class compound else for function if try while with",
    "simple statements": "assert assignment augassign break continue del global import nonlocal pass raise return",
    "expressions": "assignment-expressions atom-identifiers atom-literals attribute-references await binary bitwise "
    "booleans calls comparisons conversions dict exprlists in lambda lists operator-summary power shifting "
    "slicings subscriptions unary yield",
    "lexical analysis": "floating id-classes identifiers imaginary integers numbers strings",
    "execution model": "dynamic-features exceptions execmodel naming",
    "debugger": "debugger",
    "string formatting": "formatstrings",
}
SHORTEST_EXCERPT = 40  # words; shorter paragraphs are joined with the next of their page
LONGEST_PARAGRAPH = 200  # words; longer ones are cut
STRETCH = 2  # consecutive excerpts that stay together
HELD_OUT = 0.25  # share of the stretches that no client gets

_WORD = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """At least `SHORTEST_EXCERPT` consecutive words of one page, and the chapter (an index) the page is from."""

    chapter: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Each client's excerpts, in random order, and the held-out excerpts that no client has."""

    shards: tuple[tuple[Excerpt, ...], ...]
    held_out: tuple[Excerpt, ...]


def load(clients: int, seed: int, pages: Mapping[str, str] = topics) -> Corpus:
    """Divide the manual among `clients` clients and a held-out part, the same way for the same seed.

    With more clients than stretches of text some shards are empty.

    Raises:
        MisuseError: fewer than one client, or pages with too little text of the nine chapters to hold any out.
    """
    if clients < 1:
        raise MisuseError(f"expected at least one client, got {clients}")
    stretches = list(_stretches(pages))
    held = round(HELD_OUT * len(stretches))
    if held == 0:
        raise MisuseError(f"expected pages of the manual to learn from, got {len(stretches)} stretches of text")
    generator = np.random.default_rng(seed)
    mixed = _shuffled(stretches, generator)
    shards = (_flattened(mixed[held + client :: clients]) for client in range(clients))
    return Corpus(
        shards=tuple(tuple(_shuffled(shard, generator)) for shard in shards),
        held_out=_flattened(mixed[:held]),
    )


def _stretches(pages: Mapping[str, str]) -> Iterator[tuple[Excerpt, ...]]:
    """All stretches of all pages of the nine chapters, in the order of `CHAPTERS`, each paragraph once."""
    seen: set[tuple[str, ...]] = set()
    for chapter, names in enumerate(CHAPTERS.values()):
        for name in names.split():
            excerpts = [Excerpt(chapter, words) for words in _excerpts(pages.get(name, ""), seen)]
            for start in range(0, len(excerpts), STRETCH):
                yield tuple(excerpts[start : start + STRETCH])


def _excerpts(page: str, seen: set[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Join the page's paragraphs into excerpts; those in `seen` are skipped, new ones are added to it.

    What remains at the end of a page and is too short for an excerpt is dropped.
    """
    gathered: tuple[str, ...] = ()
    for words in _paragraphs(page):
        if words in seen:
            continue
        seen.add(words)
        gathered += words
        if len(gathered) >= SHORTEST_EXCERPT:
            yield gathered
            gathered = ()


def _paragraphs(page: str) -> Iterator[tuple[str, ...]]:
    """The words of each paragraph in lower case, none longer than `LONGEST_PARAGRAPH`."""
    for paragraph in page.split("\n\n"):
        words = _WORD.findall(paragraph.lower())
        for start in range(0, len(words), LONGEST_PARAGRAPH):
            yield tuple(words[start : start + LONGEST_PARAGRAPH])


def _shuffled(items: Sequence[Item], generator: np.random.Generator) -> list[Item]:
    return [items[place] for place in generator.permutation(len(items))]


def _flattened(stretches: Sequence[Sequence[Excerpt]]) -> tuple[Excerpt, ...]:
    return tuple(excerpt for stretch in stretches for excerpt in stretch)
