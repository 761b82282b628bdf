"""What all tests share: interrupts that are heard, one terminal, reproducible examples, and a few rings."""

import gc
import importlib
import os
import signal
from collections.abc import Generator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fsl_async import Ring
from tests import ROOT
from tests.support.object_store import s3 as s3

for profile, examples in (("often", 25), ("thorough", 60)):  # the latter with `make test-all`
    settings.register_profile(
        profile,
        deadline=None,  # kernels compile at first use
        derandomize=True,
        max_examples=examples,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile("often")


for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
    os.environ.pop(name, None)  # what commands print depends on the terminal, and these describe the caller's
os.environ["COLUMNS"] = "80"


def pytest_configure() -> None:
    """Hear interrupts, and have children hear them: a shell's background, `nohup` and some CI start us deaf to them."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" in os.environ and find_spec("numba"):
        from tests.support.compiled_once import compile_each_kernel_once

        compile_each_kernel_once()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage among what is collected here and stays: looking for it takes half of the time."""
    gc.disable()
    try:
        begin_elsewhere(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with those of whole pages, programs and releases: each takes long, and none shall be the last."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


def begin_elsewhere(config: pytest.Config) -> None:
    """Of several workers, each imports another part of the tests first: what one has rewritten, the others load."""
    part: dict[str, Any] = getattr(config, "workerinput", {})
    if part and config.args == config.getini("testpaths"):
        for path in sorted(Path(__file__).parent.rglob("test_*.py"))[int(part["workerid"][2:]) :: part["workercount"]]:
            with suppress(pytest.skip.Exception, ImportError):
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.fixture(params=[32, 64, 128], ids="l={}".format)
def bits(request: pytest.FixtureRequest) -> int:
    """Every ring's bits."""
    return int(request.param)


@pytest.fixture
def ring(bits: int) -> Ring:
    """Every ring, without a fraction."""
    return Ring(bits)
