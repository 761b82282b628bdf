"""Kernels behind the proofs that updates are bounded."""
