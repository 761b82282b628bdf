"""Distributed point functions, compiled: trees grown by clients, walked by servers."""
