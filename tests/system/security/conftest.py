"""What the security tests share: a seed of their own, printed when a test fails."""

import pytest

SEED = 20_240_611


@pytest.fixture
def seed() -> int:
    """The seed of all random choices in these tests."""
    print(f"seed {SEED}")
    return SEED
