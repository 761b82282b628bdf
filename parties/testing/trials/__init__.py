"""Trials: scenarios drawn from a seed, run in a simulated world, judged and shrunk."""
