"""Power cuts: what the store's system calls may leave on the disk, state by state (`python -m tests.crash`)."""
