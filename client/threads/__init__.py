"""The loop thread, and objects of the loop as threads see them."""
