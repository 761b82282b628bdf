"""All tests: each lies where its module lies; whole systems are under `system`, shared helpers under `support`."""

from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).resolve().parents[1]
"""The checkout's folder."""
