"""The server: one actor that owns the rounds, and what it keeps between them."""
