"""A door of a server: a process that takes clients' connections and their bulk, and asks its core about everything."""
