"""Parties as processes on hosts: made from their files, served, watched, backed up and restored."""
