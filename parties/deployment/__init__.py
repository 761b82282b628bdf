"""Parties as processes on hosts: made from their files, run, backed up and restored."""
