"""A server's side of its doors: it takes their calls, and orders what they forward."""
