"""Sequence charts of what happened in a world, as text and as a picture."""
