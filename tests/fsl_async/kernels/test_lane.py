"""Two lanes behind one seam: the same names, keys that carry their lane, and a client without a compiler."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.kernels import compiled, lane, plain
from tests.support.kernel_cases import SEGMENTS, Case

PLANTING = """
import sys
sys.modules |= {"numba": None, "llvmlite": None}
from fsl_async import kernels
from parties.commands.bench.workload import Case, client_of
case = Case(rows=4096, select=40, width=3, bits=64, security="verified")
print(kernels.active_isa(), client_of(case, 0).public_part().hex())
"""


def parameters(function: object) -> list[str]:
    return list(inspect.signature(getattr(function, "py_func", function)).parameters)


def test_lanes_have_the_same_passes() -> None:
    names = [name for name, value in vars(plain).items() if inspect.isfunction(value)]
    assert sorted(names) == compiled.__all__
    for name in names:
        assert parameters(getattr(compiled, name)) == parameters(getattr(plain, name)), name


def test_a_client_without_a_compiler_sends_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run([sys.executable, "-c", PLANTING], capture_output=True, text=True, check=True)
    from parties.commands.bench.workload import Case as Workload
    from parties.commands.bench.workload import client_of

    case = Workload(rows=4096, select=40, width=3, bits=64, security="verified")
    assert run.stdout.split() == ["plain", client_of(case, 0).public_part().hex()]


def test_a_process_may_change_lanes_between_any_two_keys() -> None:
    """Trees with keys of one lane and conversion with keys of the other: plain passes take both."""
    before, found = kernels.active_isa(), []
    for order in ((before, before), (before, "plain"), ("plain", before)):
        case = Case(bins=9, leaves=5, planes=2, bits=64)
        kernels.select_isa(order[0])
        case.keys = kernels.key_schedule(bytes([1]) * 16)
        kernels.select_isa(order[1])
        case.convert = kernels.key_schedule(bytes([2]) * 16)
        kernels.select_isa(before)
        sums = case.accumulator()
        for segment in range(SEGMENTS):
            kernels.adder(case.evaluation(1), sums)(segment, 0, case.bins)
        found.append(sums)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_what_needs_no_keys_follows_the_active_set() -> None:
    before = kernels.active_isa()
    assert lane.passes() is compiled
    assert kernels.compiles()
    kernels.select_isa("plain")
    assert lane.passes() is plain
    assert not kernels.compiles()
    kernels.select_isa(before)
