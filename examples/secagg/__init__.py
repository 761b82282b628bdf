"""Flower's SecAgg+ and this project on the same data: `python -m examples.secagg`.

`cases` says what is compared and makes the data; `ours` and `secaggplus` measure one round of each, in a process and an
environment of their own (`side`); `run` asks both in turns; `report` writes what was measured.
"""
