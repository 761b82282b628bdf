"""A party's keys, the clients that a server knows, credentials, and enrolment tokens."""
