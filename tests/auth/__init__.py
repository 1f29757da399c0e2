"""Users, rules, signatures, and the check before each request."""
