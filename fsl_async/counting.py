"""Numbers of things in sentences for people."""

from __future__ import annotations


def count_of(number: int, one: str, several: str) -> str:
    """So many of something: `count_of(1, "client is", "clients are")` is "1 client is", of 0 it is "no clients are"."""
    return f"1 {one}" if number == 1 else f"{number or 'no'} {several}" if number < 1_000 else f"{number:,} {several}"
