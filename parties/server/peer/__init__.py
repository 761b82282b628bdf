"""A server's side of the other server: the link, what is forwarded over it, and the messages with which both begin."""
