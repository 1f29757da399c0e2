"""Histories: what clients observed while the broker was killed repeatedly, and a checker that proves it consistent.

Each client writes one line of JSON for each event to a separate file (`emit.py` and its equivalents in Java and Go);
`history` reads them, `checker` checks them, `rounds` kills. `python -m tests.history --help` runs many rounds.
"""
