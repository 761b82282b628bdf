"""Sequence charts of what happened in a simulated world, as text, as a picture or as a page."""

from parties.testing.chart.sequence_chart import Chart, save

__all__ = ["Chart", "save"]
