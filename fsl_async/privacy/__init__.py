"""Differential privacy of a round's sum: what a task says of it, the noise, what it costs, and which rows it leaves."""
