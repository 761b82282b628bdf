"""A server's computations: submissions into accumulators, queries into answers, accumulators into shares."""
