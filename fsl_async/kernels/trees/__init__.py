"""Distributed point functions, compiled: clients generate trees, servers evaluate them."""
