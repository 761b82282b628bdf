"""The files that people write for parties: the task file, a party's own file, the lists of clients and servers."""
