"""What a task can say, by topic: who takes part, what is summed, what protects, what runs.

Each topic has the names of its `FIELDS`, the `ONLY` values that some have where a protocol runs alone, and a `check`,
which raises `MisuseError` if a field is out of its range or contradicts another.
"""
