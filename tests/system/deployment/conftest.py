"""Of the tests of whole deployments, those that take longer wait until `make hosts` asks for them."""

import os
from pathlib import Path

import pytest

LONGER = {"test_link.py", "test_operations.py", "test_service.py"}


def pytest_collection_modifyitems(items):
    if os.environ.get("TEST_ON_HOSTS"):
        return
    for item in items:
        if Path(item.path).parent == Path(__file__).parent and Path(item.path).name in LONGER:
            item.add_marker(pytest.mark.skip(reason="takes a minute: `make hosts` runs it"))
