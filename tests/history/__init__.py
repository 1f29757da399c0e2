"""Histories: what clients saw while the broker was killed again and again, and a checker that proves it consistent.

Each client writes one line of JSON for each event to a file of its own (`telling.py` and its kin in Java and Go);
`history` reads them, `checker` judges, `rounds` kills. `python -m tests.history --help` runs many rounds.
"""
