"""The security claim, attacked: malformed trees, clients that equivocate, one malicious server, and what anybody sees."""
