"""`bench cluster`: what workers of a cluster take for what a server's own process would do."""
