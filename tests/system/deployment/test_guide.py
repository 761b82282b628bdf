"""The guide to two organisations, docs/deploy.md, done word for word on three hosts with a firewall between them."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from parties.files.models import load_model
from tests import ROOT
from tests.system.deployment.hosts import Hosts, dependencies, hosts, missing, warm
from tests.system.deployment.walkthrough import Typed, steps, walk

if missing():
    pytest.skip(missing(), allow_module_level=True)

GUIDE = ROOT / "docs" / "deploy.md"
SOURCES = ("pyproject.toml", "constraints-hashes.txt", "README.md", "LICENSE", "fsl_async", "transport", "parties")
PEOPLE = {"s0": "s0", "s1": "s1", "alice": "clients", "bob": "clients"}
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
OFFLINE |= {"PIP_NO_BUILD_ISOLATION": "0"}  # pip's way to say that it is not isolated


@pytest.fixture
def made(tmp_path) -> Iterator[Hosts]:
    """The three hosts, the people at them, and a checkout to install from; pip finds no index, and needs none."""
    variables = OFFLINE | {"PYTHONPATH": str(dependencies(tmp_path / "dependencies"))}
    variables |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with hosts(tmp_path) as made:
        checkout = made.log_in("checkout", "clients", **variables)
        for name in SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, checkout.home / name)
        for name, host in PEOPLE.items():
            made.log_in(name, host, **variables)
        yield made


@pytest.mark.slow
def test_the_guide_works_as_it_is_written(made):
    digests: dict[str, str] = {}

    def watch(typed: Typed) -> None:
        """What people read to each other on the phone must be the same; what was installed need not be compiled."""
        if "pip install --no-deps" in typed.command:
            (installed,) = made.shells[typed.place].home.glob("fsl/lib/*/site-packages/fsl_async")
            warm(installed, ROOT / "fsl_async")
        if typed.command.startswith("sha256sum"):
            printed = made.shells[typed.place].run(typed.command).output
            assert digests.setdefault(typed.command, printed) == printed, typed

    walk(steps(GUIDE.read_text()), made, after=watch)
    assert len(digests) == 2

    expected = {"items": np.zeros((1000, 4), np.float32), "head": np.float32([2, 4, 6])}
    expected["items"][[3, 14, 159]] = 2 * 0.25
    for server in ("s0", "s1"):
        home = made.shells[server].home
        assert (home / f"{server}.key").stat().st_mode & 0o777 == 0o600
        (model,) = (home / "models").iterdir()
        for name, array in load_model(model).items():
            np.testing.assert_array_equal(array, expected.pop(name) if server == "s1" else expected[name])
    assert not expected
    for shell in made.shells.values():
        program = shell.run("type -P fsl-async").output
        assert shell.name == "checkout" or program == f"{shell.home}/fsl/bin/fsl-async"
        others = {f"{name}.key" for name in PEOPLE if name != shell.name}
        assert not others & {path.name for path in shell.home.rglob("*")}, "secret keys stay where they were made"
    assert all(secret not in log for secret in secrets(made) for log in logs(made))


def secrets(made: Hosts) -> list[str]:
    """The secret keys of all parties."""
    texts = [(made.shells[name].home / f"{name}.key").read_text() for name in PEOPLE]
    return [line.split('"')[1] for text in texts for line in text.splitlines() if "_secret" in line]


def logs(made: Hosts) -> list[str]:
    return [(made.shells[server].home / f"{server}.log").read_text() for server in ("s0", "s1")]
