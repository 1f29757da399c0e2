"""Stores that live long: what is deleted when, and what their readers learn of it."""
