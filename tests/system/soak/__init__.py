"""What a deployment bears: servers and clients as processes over TCP, killed, crowded and loaded, and measured.

Each command has its own table and exit code; `make soak` runs them one after the other (see docs/soak.md):

    python -m tests.system.soak.kills         SIGKILLs at random moments, then an independent check of what was lost
    python -m tests.system.soak.hostile       idle and trickling connections, and what honest clients feel of them
    python -m tests.system.soak.memory        thousands of tiny rounds, and what they leave in memory
"""
