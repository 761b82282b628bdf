"""A server's side of the other server: the link, what is forwarded over it, and what is said when the two meet."""
