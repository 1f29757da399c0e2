"""Transactions: half messages, decisions, checks."""
