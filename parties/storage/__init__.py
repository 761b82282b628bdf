"""What a party must not forget: the interface of a store, the store in a SQLite file, and reading it back."""
