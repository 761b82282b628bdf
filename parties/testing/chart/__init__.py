"""Sequence charts of what happened in a simulated world, as text or as a picture."""

from parties.testing.chart.sequence_chart import Chart

__all__ = ["Chart"]
