"""Power cuts: what the store's system calls may leave behind, state by state (`python -m tests.crash`)."""
