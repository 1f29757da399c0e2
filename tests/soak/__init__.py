"""Long-lived stores: what is deleted when, and how their readers learn of it."""
