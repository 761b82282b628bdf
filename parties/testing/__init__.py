"""A laboratory for protocols: deterministic worlds of parties in which things go wrong."""
