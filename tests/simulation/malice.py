"""Trials with malicious parties."""
from parties.testing.trials import draw, run
__all__ = ["draw", "run"]
