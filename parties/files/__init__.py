"""Files as every party reads and writes them: whole or not at all, TOML with named mistakes, models."""
