"""Rounds of docs/wire-vectors.json beyond the simplest: positions of trees, answers, sessions, bounds and unions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack
import pytest
from nacl.signing import VerifyKey

from tests.support import reference, reference_tagging
from tests.support.reference_bounds import Reference
from tests.support.wire_page import VECTORS, H, K, le, of

ROUNDS = ("verified", "counted", "semi-honest", "two blocks")


class Forest(NamedTuple):
    """One forest of a round: which of its sparse block, of how many bins and leaves; `words` are its trees'."""

    block: int
    number: int
    trees: int
    leaves: int
    words: list[list[int]]


def sparse_blocks(config: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in config["task"]["blocks"] if block["type"] == "sparse"]


def forests_of(config: dict[str, Any], part: bytes, positions: int = 1) -> Iterator[Forest]:
    """The forests whose trees are in a retrieval's public part."""
    counts = 1 if config["task"]["min_contributors"] else 0
    for number, (block, bins) in enumerate(zip(sparse_blocks(config), config["bins"], strict=True)):
        shapes = [(3 * bins, -(-block["rows"] // (bins * positions)) + counts)]
        for forest, (trees, leaves) in enumerate(shapes + [(1, block["rows"] + counts)] * block["stash"]):
            depth = (leaves - 1).bit_length()
            words = [int.from_bytes(part[at : at + 16], "little") for at in range(0, 16 * depth * trees, 16)]
            yield Forest(number, forest, trees, leaves, [words[tree::trees] for tree in range(trees)])
            part = part[16 * depth * trees + (-(-trees * positions // 8) if positions > 1 else 0) :]
    assert not part


def check_positions(config: dict[str, Any], part: bytes, case: dict[str, Any], positions: int = 1) -> None:
    """Both servers' leaves at the position of every tree are those of the example, and differ in the control bit."""
    expand = K("fsl.expand", H("fsl.task", msgpack.packb(config["task"])), config["hash_seed"])
    forests = list(forests_of(config, part, positions))
    assert len(forests) == len(case["positions"])
    for forest, trees in zip(forests, case["positions"], strict=True):
        assert len(trees) == forest.trees
        for tree, position in enumerate(trees):
            assert 0 <= position["leaf"] < forest.leaves
            leaves = []
            for server, seed in enumerate(map(of, case["master seeds"])):
                place = (forest.block << 96) + (forest.number << 64) + tree
                root = reference.aes(seed, place) & ~1 | server
                leaves.append(le(reference.leaf(expand, forest.words[tree], root, position["leaf"]), 16))
            assert [leaf.hex() for leaf in leaves] == position["leaves of S0 and S1"]
            assert (leaves[0][0] ^ leaves[1][0]) & 1


@pytest.mark.parametrize("name", ROUNDS)
def test_a_tree_has_its_control_bits_differ_at_its_position(name):
    case = VECTORS[name]
    part = of(case["retrieval"]["part"])
    positions = 4 if name == "semi-honest" else 1
    check_positions(msgpack.unpackb(of(case["configuration"])), part, case, positions)


def read_rows(config: dict[str, Any], case: dict[str, Any], answers: list[bytes], tagged: bool) -> dict[Any, bytes]:
    """By block and row, what both answers say, of which all tags fit."""
    blocks, found, at, keyed = sparse_blocks(config), {}, 0, [[] for _ in sparse_blocks(config)]
    both = bytes(one ^ other for one, other in zip(*answers, strict=True))
    numbers = [number for number, block in enumerate(blocks) for _ in range(1 + block["stash"])]
    for number, trees in zip(numbers, case["positions"], strict=True):
        for position in trees:
            row, at = both[at : at + 4 * blocks[number]["width"]], at + 4 * blocks[number]["width"]
            first, second = (int.from_bytes(of(leaf), "little") for leaf in position["leaves of S0 and S1"])
            keyed[number].append((first ^ second, row))
            if position["row"] is not None:
                found[number, position["row"]] = row
    for block, of_block in zip(blocks, keyed, strict=True) if tagged else ():
        words = -(-4 * block["width"] // 8)
        tags = [int.from_bytes(both[i : i + 8], "little") for i in range(at, at + 8 * words, 8)]
        assert reference_tagging.tag(of_block, words) == tags
        at += 8 * words
    assert at == len(both)
    return found


def wanted_of(case: dict[str, Any]) -> list[list[int]]:
    return case["rows"] if isinstance(case["rows"][0], list) else [case["rows"]]


@pytest.mark.parametrize("name", ROUNDS)
def test_both_answers_give_the_rows_of_the_model_and_fit_their_tags(name):
    case = VECTORS[name]
    config = msgpack.unpackb(of(case["configuration"]))
    found = read_rows(config, case, [*map(of, case["retrieval"]["answers"])], tagged=name != "semi-honest")
    for number, (block, rows) in enumerate(zip(sparse_blocks(config), wanted_of(case), strict=True)):
        model, size = of(case["model"][block["name"]]), 4 * block["width"]
        assert H("fsl.model", block["name"].encode(), b"i4", model) == config["model"][number]["digest"]
        assert {row for of_block, row in found if of_block == number} == set(rows)
        assert all(found[number, row] == model[size * row : size * (row + 1)] for row in rows)


def test_numbers_become_elements_and_numbers_again():
    for case in VECTORS["fixed point"]:
        size, elements = case["bits"] // 8, of(case["elements"])
        read = [int.from_bytes(elements[i : i + size], "little", signed=True) for i in range(0, len(elements), size)]
        scale = 2 ** case["fraction_bits"]
        assert read == [round(number * scale) for number in case["numbers"]], "to the nearest, ties to even"
        assert case["numbers again"] == [element / scale for element in read]


# ---- submissions


def payloads(config: dict[str, Any], case: dict[str, Any], part: bytes, kinds: tuple[str, ...]) -> dict[Any, list[int]]:
    """By block and row, or None for trees without one, what the hints of a submission's public part add."""
    bits, salt = config["task"]["ring"]["bits"], part[:16]
    part, found, forests = part[16:-32], {}, iter(case["positions"])
    digest = H("fsl.task", msgpack.packb(config["task"]))
    for number, (block, bins) in enumerate(zip(sparse_blocks(config), config["bins"], strict=True)):
        parts = (digest, config["hash_seed"], le(number, 4), le(config["number"], 8), salt)
        key, size = K("fsl.convert", *parts), block["width"] * bits // 8
        leaves = [-(-block["rows"] // bins), *[block["rows"]] * block["stash"]]
        for depth, trees in ((len(f"{each - 1:b}"), next(forests)) for each in leaves):
            sizes = {"tree": 16 * depth * len(trees), "hint": size * len(trees), "proof": 16 * len(trees)}
            pieces = {}
            for kind in kinds:
                pieces[kind], part = part[: sizes[kind]], part[sizes[kind] :]
            for tree, position in enumerate(trees):
                first, second = (int.from_bytes(of(leaf), "little") for leaf in position["leaves of S0 and S1"])
                hint, payload = pieces["hint"][size * tree : size * (tree + 1)], []
                for plane in range(-(-size // 16)):
                    block_ = int.from_bytes(hint[16 * plane : 16 * plane + 16], "little")
                    ours, theirs = (
                        reference.elements(reference.share(key, node, plane, block_, bits), bits)
                        for node in (first, second)
                    )
                    payload += [(one - other) % 2**bits for one, other in zip(ours, theirs, strict=True)]
                found[number, position["row"]] = payload[: block["width"]]
    assert not part
    return found


def test_a_hint_of_a_session_adds_to_the_trees_of_an_earlier_round():
    case, submission = VECTORS["session"], VECTORS["session"]["submission"]
    first, second = (msgpack.unpackb(of(case[f"{which} configuration"])) for which in ("first", "second"))
    assert (second["number"], second["session"], second["hash_seed"]) == (6, first["session"], first["hash_seed"])
    ids = [H("fsl.round", of(case[f"{which} configuration"])) for which in ("first", "second")]
    assert [each.hex() for each in ids] == case["round ids"]
    check_positions(first, of(case["trees"]), case)
    name, commitments = case["client"].encode(), [*map(of, case["commitments"])]
    for server, seed in enumerate(map(of, case["master seeds"])):
        assert H("fsl.seed-commit", seed, ids[0], name, bytes([server])) == commitments[server], "of the first round"
        recall, hint = (msgpack.unpackb(of(case["requests to S0 and S1"][server][each])) for each in ("recall", "hint"))
        assert recall["round_id"] == hint["round_id"] == ids[1]
        assert recall["session"] == hint["session"] == commitments[server]
        assert (hint["public_digest"].hex(), hint["bound_digest"]) == (submission["digest"], b"")
    rows = read_rows(second, case, [*map(of, case["answers to recall"])], tagged=True)
    assert {row for _, row in rows} == set(case["rows"])
    part, share = of(submission["part"]), of(submission["dense share"])
    added = payloads(second, case, part, ("hint",))
    scale = 2 ** second["task"]["ring"]["fraction_bits"]
    for row, values in zip(case["rows"], submission["values"], strict=True):
        assert added[0, row] == [value * scale for value in values]
    assert not any(added[0, None])
    assert of(submission["digest"]) == H(
        "fsl.public", b"", part[:16], *hints_and_proofs(second, part[16:-32]), part[-32:]
    )
    check_digests(case, submission, ids[1])
    assert part[-32:] == H("fsl.dense-share", share, key=of(case["master seeds"][case["carrier in the second round"]]))


def hints_and_proofs(config: dict[str, Any], part: bytes) -> Iterator[bytes]:
    """The pieces of a session's public part: of each forest its hints, and no proof."""
    (block,), bits = sparse_blocks(config), config["task"]["ring"]["bits"]
    for trees in (3 * config["bins"][0], *[1] * block["stash"]):
        size = trees * block["width"] * bits // 8
        yield part[:size]
        yield b""
        part = part[size:]
    assert not part


def check_digests(case: dict[str, Any], submission: dict[str, Any], round_id: bytes) -> None:
    identity = of(VECTORS["statements"]["identity digest"])
    named = [of(submission["digest"]), of(case["tree digest"]), *map(of, case["commitments"])]
    bind = H("fsl.binding", round_id, identity, *named)
    assert bind.hex() == submission["bind"]
    bound = of(submission.get("bound digest", ""))
    assert H("fsl.submission", bind, bound).hex() == submission["submission digest"]


@pytest.mark.parametrize("method", VECTORS["bounds"])
def test_a_submission_with_a_bound_names_its_private_part(method):
    case, submission = VECTORS["bounds"][method], VECTORS["bounds"][method]["submission"]
    config, private = msgpack.unpackb(of(case["configuration"])), of(submission["private part"])
    carrier, seeds = case["carrier"], [*map(of, case["master seeds"])]
    bound = H("fsl.bound-part", private, key=seeds[carrier])
    assert bound.hex() == submission["bound digest"]
    for server, head in enumerate(map(of, case["heads to S0 and S1"])):
        said = msgpack.unpackb(head)
        assert (said["type"], said["query"], said["seed"]) == ("submit", 0, seeds[server])
        assert (said["bound_digest"], said["public_digest"].hex()) == (bound, submission["digest"])
    check_digests(case, submission, of(case["round id"]))
    task, bins = config["task"], config["bins"][0]
    ring, weights = task["ring"], (3 * bins + 1) * task["blocks"][0]["width"] + task["blocks"][1]["size"]
    norm = int(task["bound"] * 2 ** ring["fraction_bits"])
    masked = Reference(ring["bits"], norm, weights, 512 if method == "projected" else 0, 0, 0)
    size, bind = masked.mask_bytes, of(submission["bind"])
    integers = [
        int.from_bytes(private[size * i : size * (i + 1)], "little") - mask - masked.offset
        for i, mask in enumerate(masked.integer_masks(seeds[1 - carrier], bind))
    ]
    scale = 2 ** ring["fraction_bits"]
    squares = sum((value * scale) ** 2 for row in [*submission["values"], [1, 2, 3]] for value in row)
    assert sum(value**2 for value in integers) == masked.limit - (squares if method == "exact" else 0)
    assert len(private) == size * len(integers) + masked.element[0] * len(masked.proof_mask(seeds[0], bind))


# ---- a union


def read(message: str) -> tuple[dict[str, Any], bytes]:
    unpacker = msgpack.Unpacker()
    unpacker.feed(of(message))
    return unpacker.unpack(), of(message)[unpacker.tell() :]


UNION = {way: [*map(read, said)] for way, said in VECTORS["union rounds"]["messages"].items()}


def said(way: str, kind: str, number: int = 0) -> tuple[dict[str, Any], bytes]:
    return [each for each in UNION[way] if each[0]["type"] == kind][number]


def sum_of(number: int, size: int) -> list[int]:
    """What both servers' shares of the sum in one round add up to, as they open the commitments."""
    shares = []
    for server, way in enumerate(("S0 to S1", "S1 to S0")):
        (share, listed), (_, piece) = said(way, "share", number), said(way, "share-piece", number)
        assert listed == H("fsl.share-piece", piece)
        roster = said(way, "roster", number)[1]
        named = H("fsl.share", listed)
        parts = (share["round_id"], bytes([server]), H("fsl.roster", roster), b"", b"", named, share["nonce"])
        assert said(way, "commitment", number)[0]["commitment"] == H("fsl.share-commit", *parts)
        shares.append([int.from_bytes(piece[at : at + size], "little") for at in range(0, len(piece), size)])
    return [(one + other) % 256**size for one, other in zip(*shares, strict=True)]


def test_a_union_is_found_downloaded_and_updated():
    configs = [
        [said(f"{server} to {name}", "opened", i)[0]["config"] for i in (0, 1)]
        for server in ("S0", "S1")
        for name in ("alice", "bob")
    ]
    assert configs[1:] == configs[:-1], "both servers announce the same, to everybody"
    ids, (finding, aligned) = [H("fsl.round", each) for each in configs[0]], map(msgpack.unpackb, configs[0])
    assert (finding["protocol"], aligned["protocol"], aligned["bins"]) == ("psu", "ssa", [0])
    rows = [row for row, element in enumerate(sum_of(0, 8)) if element]
    values = VECTORS["union rounds"]["values"]
    assert rows == sorted({row for theirs, _ in values.values() for row in theirs})
    (entry,) = aligned["union"]
    gaps = [row - before - 1 for row, before in zip(rows, [-1, *rows], strict=False)]
    packed = min(b"\0" + le(sum(1 << row for row in rows), 5), b"\1" + bytes(gaps), key=len)
    assert (entry["size"], entry["digest"]) == (len(rows), H("fsl.union", b"items", packed))
    blocks = [each for way in UNION.values() for each in way if each[0]["type"] == "block"]
    moved = [bulk for _, bulk in blocks if bulk != packed]
    assert len(blocks) == 4 == 2 * len(moved)
    assert all(H("fsl.model", b"items", b"f4", bulk) == aligned["plain"][0]["digest"] for bulk in moved)
    scale, total = 2 ** aligned["task"]["ring"]["fraction_bits"], sum_of(1, 8)
    for place, row in enumerate(rows):
        added = [
            sum(
                of_row[at]
                for theirs, rest in values.values()
                for each, of_row in zip(theirs, rest, strict=True)
                if each == row
            )
            for at in (0, 1)
        ]
        assert total[2 * place : 2 * place + 2] == [round(value * scale) % 2**64 for value in added]
    assert len(total) == 2 * len(rows)
    check_receipts_and_statements(ids, aligned)


def check_receipts_and_statements(ids: list[bytes], aligned: dict[str, Any]) -> None:
    for server, keys in zip(("S0", "S1"), aligned["servers"], strict=True):
        key = VerifyKey(keys["statement"])
        for name in ("alice", "bob"):
            for number, round_id in enumerate(ids):
                receipt = said(f"{server} to {name}", "receipt", number)[0]
                key.verify(H("fsl.receipt", receipt["digest"]), receipt["signature"])
                listed = dict(msgpack.unpackb(said("S0 to S1", "roster", number)[1]))
                assert (receipt["round_id"], listed[name]) == (round_id, receipt["digest"])
            finished, statement = said(f"{server} to {name}", "finished")
            key.verify(H("fsl.statement", statement), finished["signature"])
            told = msgpack.unpackb(statement)
            assert (told["client"], told["number"], told["participants"], told["seat"]["digest"]) == (
                name,
                2,
                2,
                listed[name],
            )
