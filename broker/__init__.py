"""Policy of the broker and the name server: plain Python, no pointers."""
