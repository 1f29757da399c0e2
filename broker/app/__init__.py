"""Composition: builds, starts and stops the broker and the name server."""
