"""The guide to two organisations' hosts, docs/deploy.md, done word for word on three hosts with a firewall between them."""

import os
import shutil
import sys
from pathlib import Path

import guide
import numpy as np
import pytest
from hosts import Hosts, dependencies, hosts, missing
from walkthrough import Sent, Typed, steps, walk

from parties.model_files import load_model

if missing():
    pytest.skip(missing(), allow_module_level=True)

GUIDE = guide.ROOT / "docs" / "deploy.md"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "fsl_async", "transport", "parties")
PEOPLE = {"s0": "s0", "s1": "s1", "alice": "clients", "bob": "clients"}


@pytest.fixture
def made(tmp_path):
    """The three hosts and the people at them, and a checkout to install from; pip finds no index, and needs none."""
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_CACHE_DIR": "1"}
    offline |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": str(dependencies(tmp_path / "dependencies"))}
    offline |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with hosts(tmp_path) as made:
        checkout = made.log_in("checkout", "clients", **offline)
        for name in SOURCES:
            copy = shutil.copytree if (guide.ROOT / name).is_dir() else shutil.copy
            copy(guide.ROOT / name, checkout.home / name)
        for name, host in PEOPLE.items():
            made.log_in(name, host, **offline)
        yield made


def test_the_guide_works_as_it_is_written(made):
    walk(GUIDE, made)
