"""Learning on the rows of a task: what stands between a program that trains and a client that retrieves and submits."""
