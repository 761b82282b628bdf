"""The client: a place in the rounds, private retrievals and submissions, and what its user is told."""
