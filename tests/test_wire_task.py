"""A task's canonical bytes, made from the tables of docs/wire/task.md alone; and the tables against the code."""

import json
import re
from typing import Any, NamedTuple

import msgpack
import msgspec
import pytest

from fsl_async import Adam, Dense, MisuseError, Momentum, Privacy, Ring, Sgd, Sparse, Task
from tests import ROOT
from tests.support.cases import in_turn
from tests.support.wire_page import VECTORS, H, of

PAGE = (ROOT / "docs" / "wire" / "task.md").read_text(encoding="utf-8")
MADE = {"sparse": Sparse, "dense": Dense, "sgd": Sgd, "momentum": Momentum, "adam": Adam}
"""By the value of `type`, what the code calls it."""


class Row(NamedTuple):
    type: str
    range: str
    default: str


def read(head: str, after: str = "") -> dict[str, Row]:
    """The table that begins with that head, below that heading: its rows by field."""
    start = PAGE.index(f"\n| {head} |", PAGE.index(f"\n{after}\n"))
    lines = PAGE[start:].strip().split("\n\n")[0].splitlines()[2:]
    cells = (
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in (line.replace("| |", "| - |") for line in lines)
    )
    return {name.strip("`"): Row(*rest) for name, *rest in cells}


TASK, RING, PRIVACY = (read("field", heading) for heading in ("## The task", "## The ring", "## Privacy"))
BLOCKS = {kind: read(f"field of a {kind} block") for kind in ("sparse", "dense")}
OPTIMIZERS = {kind: read(f"field of `{kind}`") for kind in ("sgd", "momentum", "adam")}
TABLES = {Task: TASK, Ring: RING, Privacy: PRIVACY} | {
    MADE[kind]: table for kind, table in (BLOCKS | OPTIMIZERS).items()
}


def canonical(given: dict[str, Any]) -> bytes:
    return msgpack.packb(filled(TASK, given))


def filled(table: dict[str, Row], given: dict[str, Any]) -> dict[str, Any]:
    return {name: valued(name, row, given[name] if name in given else default(row)) for name, row in table.items()}


def default(row: Row) -> Any:
    return json.loads(re.match(r"`([^`]*)`", row.default)[1])


def valued(name: str, row: Row, value: Any) -> Any:
    match name:
        case "blocks":
            return [{"type": block["type"]} | filled(BLOCKS[block["type"]], block) for block in value]
        case "ring":
            return filled(RING, value)
        case "privacy" if value is not None:
            return filled(PRIVACY, value)
        case "optimizer" if value is not None:
            return {"type": value["type"]} | filled(OPTIMIZERS[value["type"]], value)
    return float(value) if "number" in row.type and "integer" not in row.type and value is not None else value


@pytest.mark.parametrize("case", VECTORS["tasks"], ids=lambda case: case["given"]["name"])
def test_the_page_is_enough_for_a_digest(case: dict[str, Any]) -> None:
    made = canonical(case["given"])
    assert made == of(case["canonical"])
    assert H("fsl.task", made) == of(case["digest"])


@in_turn("made", TABLES)
def test_the_tables_have_all_fields_with_their_defaults(made: Any) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(made)}
    assert list(TABLES[made]) == list(fields)
    for name, row in TABLES[made].items():
        given = "must be given" in row.default
        assert given == (fields[name].required or name == "ring"), name
        if not given and name != "min_clients":  # 16 comes with the task, which may have none
            assert default(row) == fields[name].default, name
    assert Task(name="t", blocks=[Sparse("a", rows=4, select=2)], ring=Ring(64)).min_clients == default(
        TASK["min_clients"]
    )


ALONE = {
    Task: {"name": "t", "blocks": [Sparse("a", rows=4, select=2)], "ring": Ring(128), "min_contributors": 10**6}
    | {"max_clients": 10**6, "lying_clients": 0, "min_clients": 2},
    Sparse: {"name": "a", "rows": 2**20, "select": 1},
    Dense: {"name": "a", "size": 1},
    Ring: {"bits": 128},
}


@in_turn("made", ALONE)
def test_the_ranges_of_whole_numbers_are_the_code_s(made: Any) -> None:
    tried = 0
    for name, row in TABLES[made].items():
        limits = re.fullmatch(r"([\d,]+) to ([\d,]+)", row.range)
        if limits is None:
            continue
        low, high = (int(limit.replace(",", "")) for limit in limits.groups())
        for value in (low, high):
            assert getattr(made(**ALONE[made] | {name: value}), name) == value
        for value in (low - 1, high + 1):
            with pytest.raises(MisuseError, match=name):
                made(**ALONE[made] | {name: value})
        tried += 1
    assert tried == {Task: 2, Sparse: 3, Dense: 1, Ring: 0}[made]


@in_turn("name", ["protocol", "selection", "updates", "alignment", "security", "participants", "bound_proof"])
def test_the_words_of_a_choice_are_the_code_s(name: str) -> None:
    words = re.findall(r"`([a-z-]+)`", TASK[name].range.split("(")[0])
    with pytest.raises(MisuseError) as refusal:
        Task(name="t", blocks=[Sparse("a", rows=4, select=2)], ring=Ring(64), **{name: "another"})
    assert all(repr(word) in str(refusal.value) or word in str(refusal.value) for word in words), refusal.value
    assert len(words) == len(msgspec.json.schema(msgspec.structs.fields(Task)[list(TASK).index(name)].type)["enum"])
