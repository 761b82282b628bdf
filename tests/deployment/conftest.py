"""Tests that boot hosts of their own take minutes and want the machine to themselves: `make hosts` runs them."""

import os
from pathlib import Path

import pytest

ON_HOSTS = {"test_guide.py", "test_hosts.py", "test_link.py", "test_service.py"}


def pytest_collection_modifyitems(items):
    if os.environ.get("TEST_ON_HOSTS"):
        return
    for item in items:
        if Path(item.path).parent == Path(__file__).parent and Path(item.path).name in ON_HOSTS:
            item.add_marker(pytest.mark.skip(reason="on hosts of its own: `make hosts` runs it"))
