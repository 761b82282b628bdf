"""`fsl-async demo`: clients learn to tell the chapters of the Python manual apart by their words."""
