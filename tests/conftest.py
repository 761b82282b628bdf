"""What all tests share: interrupts that are heard, one terminal, reproducible examples, and a few rings."""

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from fsl_async import Ring
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among what is collected here and stays: looking for it takes half of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(params=[32, 64, 128], ids="l={}".format)
def bits(request: pytest.FixtureRequest) -> int:
    """Every ring's bits."""
    return int(request.param)


@pytest.fixture
def ring(bits: int) -> Ring:
    """Every ring, without a fraction."""
    return Ring(bits)
