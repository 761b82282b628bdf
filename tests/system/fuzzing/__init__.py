"""Everything that reads bytes which a peer, a file or a user supplies, fed with bytes that nobody honest would send.

`catalogue` lists the parsers; `test_parsers` runs over them in the ordinary suite; `python -m tests.system.fuzzing`
hands them to a coverage-guided fuzzer (docs/fuzzing.md).
"""
