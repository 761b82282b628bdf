"""Rows and segments, compiled: permuted, placed in bins, selected, and sums folded back."""
