"""A Flower app whose nodes learn from private words."""
