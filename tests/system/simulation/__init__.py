"""Trials of the whole system in simulated worlds: `make simulate SEEDS=2000`."""
