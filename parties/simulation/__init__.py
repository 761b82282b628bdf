"""All parties in one process, over the in-memory transport, in an order that a seed decides."""
