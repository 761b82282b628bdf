"""One round on one server, from its toss to the sum that is applied or refused."""
