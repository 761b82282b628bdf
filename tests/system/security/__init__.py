"""The security claim, attacked: malformed trees, clients that equivocate, a malicious server, and what anybody sees."""
