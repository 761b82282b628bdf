"""No secret shows when something that holds it is printed: every dataclass and struct of the program is looked at."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from importlib.util import find_spec

import msgspec
import pytest

import fsl_async
import parties
import transport
from fsl_async.protocols import ssa
from fsl_async.secrecy import Discreet
from fsl_async.wire.messages import Share

SECRETS = {
    "channel_secret",
    "dense",
    "msk",
    "noise_secret",
    "nonce",
    "peer_payload",
    "private",
    "private_key",
    "proof_key",
    "randomness",
    "secret",
    "seed",
    "shares",
    "statement_secret",
    "voucher",
}
"""What secrets are called, in every class that has them."""

PUBLIC = {
    ("fsl_async.costs.scaling", "Load", "shares"),
    ("parties.server.clients.deposits", "Deposit", "dense"),
    ("parties.server.round.services", "RoundServices", "randomness"),
    ("parties.testing.trials.scenario", "Trial", "seed"),
    ("parties.testing.world", "World", "seed"),
}
"""What is called so and is none: names of blocks, a digest, a function, and the seeds of simulations."""


EXTRAS = {
    "parties.flower": "flwr",
    "fsl_async.learning.pytorch": "torch",
    "parties.storage.blobs.objects": "obstore",
    "parties.cluster.dask": "distributed",
}
"""Packages that are imported where what they need is there; `make learn` makes sure of it."""


def lacks_its_extra(module: str) -> bool:
    return any(module.startswith(package) and find_spec(need) is None for package, need in EXTRAS.items())


def classes() -> Iterator[type]:
    """Every class that is defined in the program."""
    for package in (fsl_async, parties, transport):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__") or lacks_its_extra(found.name):
                continue
            module = importlib.import_module(found.name)
            for kind in vars(module).values():
                if inspect.isclass(kind) and kind.__module__ == module.__name__:
                    yield kind


def shown(kind: type) -> set[str]:
    """The fields that a class's own kind of `repr` prints."""
    if "__repr__" in vars(kind) and not dataclasses.is_dataclass(kind):
        return set()  # written by hand, and looked at below
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind) if field.repr}
    if issubclass(kind, msgspec.Struct):
        hidden = kind.hidden if issubclass(kind, Discreet) else frozenset()
        return {field.name for field in msgspec.structs.fields(kind)} - hidden
    return set()


def test_no_class_shows_what_is_called_as_secrets_are():
    found = {(kind.__module__, kind.__qualname__, name) for kind in classes() for name in shown(kind) & SECRETS}
    assert found - PUBLIC == set()


def test_the_classes_that_hold_secrets_are_found():
    """So that a class that is renamed, or made otherwise, does not slip through."""
    holders = {kind.__qualname__ for kind in classes() if issubclass(kind, Discreet) and kind.hidden & SECRETS}
    assert {"Retrieve", "Submit", "TossReveal", "Share", "Half", "Tossed", "Committed", "StoredSubmission"} <= holders


@pytest.mark.parametrize(
    "holder",
    [
        ssa.Committed({}, {}, {}, {}, b"name", b"secret" * 6, {}),
        ssa.Summed(b"name", b"secret" * 6),
        ssa.PeerShare(b"name", b"secret" * 6),
        Share(b"round", b"secret" * 6),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_a_nonce_that_opens_a_commitment_is_hidden(holder):
    assert "secret" not in repr(holder)
