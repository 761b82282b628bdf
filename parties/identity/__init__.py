"""Who a party is: keys, the registry of those a server knows, and enrolment tokens."""
