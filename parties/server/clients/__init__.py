"""A server's side of its clients: their connections, their requests, and the memory lent to both."""
