"""Transactions: half messages, their decisions and checks."""
