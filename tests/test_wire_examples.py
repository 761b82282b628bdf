"""Rounds of docs/wire-vectors.json beyond the simplest: positions of trees, answers, sessions, bounds and unions."""

from typing import Any

import msgpack
import pytest
from nacl.signing import VerifyKey

from tests.support import reference, reference_tagging
from tests.support.reference_bounds import Reference
from tests.support.wire_page import VECTORS, Forest, H, Round, check_seat, le, of, read_message, unpack_union

ROUNDS = ("verified", "counted", "semi-honest", "two blocks")


def forests_of(round_: Round) -> list[tuple[int, Forest]]:
    return [(block.index, forest) for block in round_.blocks for forest in block.forests]


def check_positions(round_: Round, part: bytes, case: dict[str, Any]) -> None:
    """Each tree's row is at its position; there both servers' leaves are as told, and differ in the control bit."""
    pieces = [piece for block in round_.split(part, "tree", "select") for piece in block]
    for (index, forest), piece, trees in zip(forests_of(round_), pieces, case["positions"], strict=True):
        block, count = round_.blocks[index], forest.trees
        words = [int.from_bytes(piece["tree"][at : at + 16], "little") for at in range(0, len(piece["tree"]), 16)]
        assert len(trees) == count
        for tree, position in enumerate(trees):
            leaf, row = position["leaf"], position["row"]
            assert row in (None, block.row_at(forest, tree, leaf, position["slot"]))
            leaves = []
            for server, seed in enumerate(map(of, case["master seeds"])):
                root = block.root(seed, server, forest, tree)
                leaves.append(le(reference.leaf(round_.expand, words[tree::count], root, leaf), 16))
            assert [each.hex() for each in leaves] == position["leaves of S0 and S1"]
            assert (leaves[0][0] ^ leaves[1][0]) & 1


@pytest.mark.parametrize("name", ROUNDS)
def test_a_tree_has_its_control_bits_differ_at_its_position(name):
    case = VECTORS[name]
    check_positions(Round(of(case["configuration"])), of(case["retrieval"]["part"]), case)


def read_rows(round_: Round, case: dict[str, Any], answers: list[bytes]) -> dict[Any, bytes]:
    """By block and row, what both answers say, of which all tags fit."""
    found: dict[Any, bytes] = {}
    at, keyed = 0, [[] for _ in round_.blocks]
    both = bytes(one ^ other for one, other in zip(*answers, strict=True))
    for (index, forest), trees in zip(forests_of(round_), case["positions"], strict=True):
        for position in trees:
            row, at = both[at : at + 4 * forest.width], at + 4 * forest.width
            first, second = (int.from_bytes(of(leaf), "little") for leaf in position["leaves of S0 and S1"])
            keyed[index].append((first ^ second, row))
            if position["row"] is not None:
                found[index, position["row"]] = row
    for block in (block for block in round_.blocks if block.authenticated):
        words = -(-4 * block.width // 8)
        tags = [int.from_bytes(both[i : i + 8], "little") for i in range(at, at + 8 * words, 8)]
        assert reference_tagging.tag(keyed[block.index], words) == tags
        at += 8 * words
    assert at == len(both)
    return found


@pytest.mark.parametrize("name", ROUNDS)
def test_both_answers_give_the_rows_of_the_model_and_fit_their_tags(name):
    case = VECTORS[name]
    round_ = Round(of(case["configuration"]))
    found = read_rows(round_, case, [*map(of, case["retrieval"]["answers"])])
    wanted = case["rows"] if isinstance(case["rows"][0], list) else [case["rows"]]
    for block, rows in zip(round_.blocks, wanted, strict=True):
        model, size = of(case["model"][block.name]), 4 * block.width
        assert H("fsl.model", block.name.encode(), b"i4", model) == round_.config["model"][block.index]["digest"]
        assert {row for index, row in found if index == block.index} == set(rows)
        assert all(found[block.index, row] == model[size * row : size * (row + 1)] for row in rows)


def test_numbers_become_elements_and_numbers_again():
    for case in VECTORS["fixed point"]:
        size, elements = case["bits"] // 8, of(case["elements"])
        read = [int.from_bytes(elements[i : i + size], "little", signed=True) for i in range(0, len(elements), size)]
        scale = 2 ** case["fraction_bits"]
        assert read == [round(number * scale) for number in case["numbers"]], "to the nearest, ties to even"
        assert case["numbers again"] == [element / scale for element in read]


# ---- submissions


def payloads(round_: Round, case: dict[str, Any], part: bytes, *kinds: str) -> dict[Any, list[int]]:
    """By block and row, or None for trees without one, what the hints of a submission's public part add."""
    found, bits = {}, round_.bits
    pieces = [piece for block in round_.split(part[16:-32], *kinds) for piece in block]
    for (index, forest), piece, trees in zip(forests_of(round_), pieces, case["positions"], strict=True):
        key, size = round_.blocks[index].convert(part[:16]), forest.payload * forest.element
        for tree, position in enumerate(trees):
            nodes = [int.from_bytes(of(leaf), "little") for leaf in position["leaves of S0 and S1"]]
            hint, payload = piece["hint"][size * tree : size * (tree + 1)], []
            for plane in range(-(-size // 16)):
                masked = int.from_bytes(hint[16 * plane : 16 * plane + 16], "little")
                shares = [reference.elements(reference.share(key, node, plane, masked, bits), bits) for node in nodes]
                payload += [(one - other) % 2**bits for one, other in zip(*shares, strict=True)]
            found[index, position["row"]] = payload[: forest.width]
    return found


def test_a_hint_of_a_session_adds_to_the_trees_of_an_earlier_round():
    case, submission = VECTORS["session"], VECTORS["session"]["submission"]
    first, second = (Round(of(case[f"{which} configuration"])) for which in ("first", "second"))
    assert (second.number, second.config["session"], second.hash_seed) == (6, first.number, first.hash_seed)
    assert [each.round_id.hex() for each in (first, second)] == case["round ids"]
    check_positions(first, of(case["trees"]), case)
    seeds, commitments = [*map(of, case["master seeds"])], [*map(of, case["commitments"])]
    assert commitments == first.commitments(seeds, case["client"]), "of the first round"
    for server, requests in enumerate(case["requests to S0 and S1"]):
        recall, hint = (msgpack.unpackb(of(requests[each])) for each in ("recall", "hint"))
        assert recall["round_id"] == hint["round_id"] == second.round_id
        assert recall["session"] == hint["session"] == commitments[server]
        assert (hint["public_digest"].hex(), hint["bound_digest"]) == (submission["digest"], b"")
    rows = read_rows(second, case, [*map(of, case["answers to recall"])])
    assert {row for _, row in rows} == set(case["rows"])
    part, share = of(submission["part"]), of(submission["dense share"])
    added = payloads(second, case, part, "hint")
    for row, values in zip(case["rows"], submission["values"], strict=True):
        assert added[0, row] == [value * 2**second.fraction_bits for value in values]
    assert not any(added[0, None])
    others = [piece for forest in second.split(part[16:-32], "hint")[0] for piece in (forest["hint"], b"")]
    assert of(submission["digest"]) == H("fsl.public", b"", part[:16], *others, part[-32:]), "a proof of no bytes"
    check_digests(second, case, submission)
    carrier = second.carrier(case["client"])
    assert carrier == case["carrier in the second round"]
    assert part[-32:] == H("fsl.dense-share", share, key=seeds[carrier])


def check_digests(round_: Round, case: dict[str, Any], submission: dict[str, Any]) -> None:
    identity = of(VECTORS["statements"]["identity digest"])
    bind = round_.bind(identity, of(submission["digest"]), of(case["tree digest"]), [*map(of, case["commitments"])])
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
    check_digests(Round(of(case["configuration"])), case, submission)
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


UNION = {
    way: [read_message(of(message)) for message in sent] for way, sent in VECTORS["union rounds"]["messages"].items()
}


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
    blocks = [bulk for way in UNION.values() for head, bulk in way if head["type"] == "block"]
    packed = [bulk for bulk in blocks if H("fsl.union", b"items", bulk) == entry["digest"]]
    assert [unpack_union(bulk) for bulk in packed] == [rows] * 2
    assert entry["size"] == len(rows)
    moved = [bulk for bulk in blocks if bulk not in packed]
    assert len(moved) == 2, "each client's carrier sends both"
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
            assert (told["client"], told["number"], told["participants"]) == (name, 2, 2)
            assert told["seat"]["digest"] == listed[name]
            check_seat(name, told["seat"], 2, told["root"])
