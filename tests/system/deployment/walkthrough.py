"""Does what a document of commands says, word for word, on the hosts it says.

A document's fenced blocks are its steps, in order:

    ```console      lines `PLACE$ command`, typed on that place's shell (`each$` is every place but the checkout), which
                    must succeed; one that ends in a backslash goes on in the next. Other lines are what the command is
                    shown to print, `…` being anything in a line; what else it prints does not matter
    ```toml         a file: its first line is the comment `# PLACE: FILE` or `# PLACE, PLACE: FILE`
    ```python       likewise
    ```transfer     lines `FILE: PLACE -> PLACE, PLACE`: what one person sends to others

In a file, `<channel of NAME.pub>` is to be replaced by what the reader finds there; so the walker does. What a document
quotes, in double quotes, somebody must have seen (`quoted`).
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from tests.system.deployment.hosts import Shell

FENCE = re.compile(r"^```(console|toml|python|transfer)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT = re.compile(r"^(?P<place>[\w]+)\$ (?P<command>.*)$")
HEADER = re.compile(r"# (?P<places>[\w, ]+): (?P<file>\S+)")
TRANSFER = re.compile(r"(?P<file>\S+): (?P<giver>\w+) -> (?P<takers>[\w, ]+)")
PLACEHOLDER = re.compile(r"<(channel|statement) of ([\w.]+)>")


@dataclass(frozen=True)
class Typed:
    """A command on a place, and the lines it is shown to print."""

    place: str
    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """A file that is written with an editor, on each of these places."""

    places: tuple[str, ...]
    file: str
    content: str


@dataclass(frozen=True)
class Sent:
    """A file that one person sends to others."""

    file: str
    giver: str
    takers: tuple[str, ...]


Step: TypeAlias = Typed | Written | Sent


class Places(Protocol):
    """Where a document is carried out: somebody's shell for each place, and a way for files to go between them."""

    shells: dict[str, Shell]

    def carry(self, path: str, giver: str, taker: str) -> None:
        """Bring a file from one home to another."""


def steps(text: str) -> list[Step]:
    """Read the steps of a document, or of a part of one."""
    read: dict[str, Callable[[str], Iterator[Step]]] = {"console": _typed, "transfer": _sent}
    return [step for language, content in FENCE.findall(text) for step in read.get(language, _written)(content)]


def sections(text: str) -> dict[str, str]:
    """The parts of a document that have steps, by their headings."""
    parts = re.split(r"^#{2,3} (.*)$", text, flags=re.MULTILINE)
    return {title: part for title, part in zip(parts[1::2], parts[2::2], strict=True) if steps(part)}


def quoted(text: str) -> list[str]:
    """What a part of a document has in double quotes, outside of its fences and of code."""
    prose = re.sub(r"`[^`]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    return [" ".join(words.split()) for words in re.findall(r'"([^"]+)"', prose)]


def has_seen(words: str, seen: str) -> bool:
    """Whether some line has such words; `…` is anything in between."""
    return re.search(".*".join(map(re.escape, words.split("…"))), seen) is not None


def walk(steps: Iterable[Step], hosts: Places, after: Callable[[Typed], None] = lambda typed: None) -> None:
    """Do all that is said; `after` hears of each command that has been typed.

    Raises:
        AssertionError: a command failed, or did not print what the document shows.
    """
    for step in steps:
        match step:
            case Typed(place="each"):
                everywhere = [replace(step, place=place) for place in hosts.shells if place != "checkout"]
                with ThreadPoolExecutor() as pool:
                    list(pool.map(lambda typed: _type(typed, hosts), everywhere))
                for typed in everywhere:
                    after(typed)
            case Typed():
                _type(step, hosts)
                after(step)
            case Written(places, file, content):
                for place in places:
                    home = hosts.shells[place].home
                    (home / file).write_text(PLACEHOLDER.sub(lambda found, home=home: _filled(found, home), content))
            case Sent(file, giver, takers):
                for taker in takers:
                    hosts.carry(file, giver, taker)


def _type(step: Typed, hosts: Places) -> None:
    said = hosts.shells[step.place].run(step.command)
    assert said.code == 0, f"{step.place}$ {step.command}\nended with {said.code} and said:\n{said.output}"
    printed = iter(said.output.splitlines())
    for line in step.shown:
        pattern = re.compile(".*".join(re.escape(part) for part in line.rstrip().split("…")))
        assert any(pattern.fullmatch(other.rstrip()) for other in printed), (
            f"{step.place}$ {step.command}\nis shown to print {line!r}, in this order; it said:\n{said.output}"
        )


def _typed(content: str) -> Iterator[Step]:
    lines = re.sub(r"\\\n\s*", "", content).splitlines()
    starts = [number for number, line in enumerate(lines) if PROMPT.match(line)]
    assert not lines or starts[:1] == [0], f"a console block begins with a prompt: {content}"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found = PROMPT.match(lines[start])
        assert found
        shown = tuple(line for line in lines[start + 1 : end] if line.strip("… "))
        yield Typed(found["place"], found["command"], shown)


def _written(content: str) -> Iterator[Step]:
    found = HEADER.match(content)
    if found:
        yield Written(tuple(found["places"].split(", ")), found["file"], content)


def _sent(content: str) -> Iterator[Step]:
    for line in content.splitlines():
        found = TRANSFER.fullmatch(line)
        assert found, f"FILE: PLACE -> PLACE expected, got {line!r}"
        yield Sent(found["file"], found["giver"], tuple(found["takers"].split(", ")))


def _filled(found: re.Match[str], home: Path) -> str:
    """What the reader finds in a public key's file that was sent here, or made here."""
    return str(tomllib.loads((home / found[2]).read_text())[found[1]])
