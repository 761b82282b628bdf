"""A task says what servers do with a sum; contradictions are refused where they are written."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fsl_async import Adam, Dense, MisuseError, Momentum, PeerViolationError, Ring, Sgd, Sparse, Task
from fsl_async.union import union_task
from parties import Identity
from parties.commands.demo.processes import write_parties
from parties.settings.task_file import Deployment
from parties.settings.writing import to_toml
from tests.support.cases import in_turn

FIELDS: dict[str, Any] = {
    "name": "t",
    "blocks": (Sparse("items", rows=20, select=3), Dense("head", size=5), Dense("examples", size=1)),
    "ring": Ring(64, fraction_bits=24),
}
WEIGHTED: dict[str, Any] = {"apply": "weighted-mean", "weights": "examples"}


def own_rule(model: Any, update: Any, facts: Any) -> Any:
    return model


class Holder:
    @staticmethod
    def rule(model: Any, update: Any, facts: Any) -> Any:
        return model


RULES: dict[str, dict[str, Any]] = {
    "sum": {},
    "mean": {"apply": "mean"},
    "weighted": WEIGHTED,
    "row mean": {"apply": "row-mean"},
    "row mean of two": {"apply": "row-mean", "min_contributors": 2, "lying_clients": 0},
    "rate": {"optimizer": Sgd(0.5)},
    "FedAvgM": WEIGHTED | {"optimizer": Momentum(1, momentum=0)},
    "FedAdam": {"apply": "mean", "optimizer": Adam(0.01)},
    "own": {"apply": own_rule},
    "own, weighted": {"apply": own_rule, "weights": "examples"},
    "own, within a class": {"apply": Holder.rule},
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_task_with_a_rule_is_read_back(rule: dict[str, Any], tmp_path: Path) -> None:
    task = Task(**FIELDS, **rule)
    assert Task.parse(task.canonical(), "S0") == task
    write_parties(tmp_path, task, ["h:1", "h:2"], ["alice"])
    assert Deployment.load(tmp_path / "task.toml").task == task


def test_every_rule_has_a_digest_of_its_own() -> None:
    digests = {Task(**FIELDS, **rule).digest() for rule in RULES.values()}
    assert len(digests) == len(RULES)
    assert Task(**FIELDS, optimizer=Adam(1)).digest() == Task(**FIELDS, optimizer=Adam(1.0)).digest()


def test_a_function_is_kept_by_its_name() -> None:
    assert Task(**FIELDS, apply=own_rule).apply == f"{__name__}:own_rule"
    assert Task(**FIELDS, apply=Holder.rule).apply == f"{__name__}:Holder.rule"
    assert Task(**FIELDS, apply="my.rules:trimmed").rule == "own"


def test_a_union_round_applies_nothing() -> None:
    task = Task(**FIELDS, **WEIGHTED, optimizer=Adam(1), alignment="union")
    assert union_task(task).adds


def local() -> Any:
    return lambda *_: None


NAN = float("nan")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown word": (
        {"apply": "average"},
        'apply must be "sum", "mean", "weighted-mean", "row-mean", or a function',
    ),
    "no word": ({"apply": None}, "apply must be"),
    "a module without a function": ({"apply": "rules:"}, "apply must be"),
    "a path": ({"apply": "../rules:f"}, "apply must be"),
    "a long name": ({"apply": "m:" + "f" * 200}, "apply must be"),
    "a lambda": ({"apply": lambda *_: None}, "no name by which a server could import it"),
    "a function in a function": ({"apply": local()}, "no name by which a server could import it"),
    "a callable value": ({"apply": partial(own_rule, None)}, "no name by which a server could import it"),
    "weights without their mean": ({"weights": "examples"}, 'weights belong to apply = "weighted-mean"'),
    "weights of a mean": ({"apply": "mean", "weights": "examples"}, 'and apply is "mean"'),
    "a weighted mean without weights": ({"apply": "weighted-mean"}, 'needs weights = "BLOCK"'),
    "weights of no block": (WEIGHTED | {"weights": "other"}, "has no block 'other'"),
    "weights in a sparse block": (WEIGHTED | {"weights": "items"}, "must name a Dense block of size 1"),
    "many weights": (WEIGHTED | {"weights": "head"}, "must name a Dense block of size 1"),
    "nothing but weights": (WEIGHTED | {"blocks": [Dense("examples", size=1)]}, "add a block with a model"),
    "a mean of whole numbers": ({"apply": "mean", "ring": Ring(64)}, r"use Ring\(64, fraction_bits=24\)"),
    "an optimizer of whole numbers": ({"optimizer": Sgd(1), "ring": Ring(32)}, r"use Ring\(32, fraction_bits=12\)"),
    "nothing to apply": (
        {"protocol": "psu", "blocks": FIELDS["blocks"][:1], "ring": None, "apply": "mean"},
        "apply='mean' contradicts protocol='psu': rounds of this protocol have no updates",
    ),
    "a row mean with weights": ({"apply": "row-mean", "weights": "examples"}, 'and apply is "row-mean"'),
    "a row mean of what nobody proves": ({"apply": "row-mean", "security": "semi-honest"}, "which need proofs"),
    "a row mean over a union": ({"apply": "row-mean", "alignment": "union"}, "use alignment='all', or apply='mean'"),
    "a row mean without rows": ({"apply": "row-mean", "blocks": FIELDS["blocks"][1:]}, 'or use apply="mean"'),
    "a row mean of whole numbers": ({"apply": "row-mean", "ring": Ring(64)}, "needs a ring with fraction bits"),
    "one contributor to a mean": ({"apply": "mean", "min_contributors": 1}, "min_contributors must be"),
    "no optimizer": ({"optimizer": "adam"}, "optimizer must be an Sgd, a Momentum or an Adam"),
    "an own rule with an optimizer": ({"apply": own_rule, "optimizer": Sgd(1)}, "leave the optimizer out"),
}


@in_turn("fields, words", REFUSED.values())
def test_contradictions_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        Task(**(FIELDS | fields))


@in_turn("rate", [0, -1, NAN, float("inf"), 1e10, "1", True])
@in_turn("kind", [Sgd, Momentum, Adam])
def test_a_rate_is_above_0(kind: Any, rate: Any) -> None:
    with pytest.raises(MisuseError, match=f"optimizer {kind.__name__}: rate must be a number above 0 to 1e"):
        kind(rate)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, NAN, None])
def test_decays_are_below_1(value: Any) -> None:
    for make in (lambda: Momentum(1, momentum=value), lambda: Adam(1, beta1=value), lambda: Adam(1, beta2=value)):
        with pytest.raises(MisuseError, match=r"(momentum|beta.) must be a number from 0 to below 1"):
            make()


@pytest.mark.parametrize("epsilon", [0, -1e-3, NAN, 1e-40, 1e40])
def test_epsilon_is_above_0(epsilon: float) -> None:
    with pytest.raises(MisuseError, match="epsilon must be a number from 1e-30 to 1e"):
        Adam(1, epsilon=epsilon)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"optimizer": {"type": "adagrad", "rate": 1.0}}, "adagrad"),
        ({"optimizer": {"type": "adam"}}, "rate"),
        ({"optimizer": {"type": "adam", "rate": 1.0, "beta3": 1.0}}, "unknown key 'beta3'; did you mean 'beta"),
        ({"optimizer": {"type": "momentum", "rate": -1.0}}, "rate must be a number above 0"),
        ({"apply": "average"}, "apply must be"),
    ],
)
def test_a_task_file_is_refused_with_its_name(table: dict[str, Any], words: str, tmp_path: Path) -> None:
    keys = [Identity.generate(name).public for name in ("S0", "S1")]
    plain = {
        "task": {
            "name": "t",
            "min_clients": 2,
            "ring": {"bits": 64, "fraction_bits": 24},
            "blocks": [{"type": "dense", "name": "a", "size": 3}],
        }
        | table,
        "servers": [{"address": "h:1", "channel": k.channel.hex(), "statement": k.statement.hex()} for k in keys],
    }
    path = tmp_path / "task.toml"
    path.write_text(to_toml(plain), encoding="utf-8")
    with pytest.raises(MisuseError, match=f"task.toml.*{words}"):
        Deployment.load(path)


def test_a_peer_s_task_with_a_rule_out_of_range_is_its_violation() -> None:
    import msgpack

    plain = msgpack.unpackb(Task(**FIELDS, optimizer=Adam(1)).canonical())
    plain["optimizer"]["beta1"] = 1.0
    with pytest.raises(PeerViolationError, match="beta1 must be a number from 0 to below 1"):
        Task.parse(msgpack.packb(plain), "S1")
