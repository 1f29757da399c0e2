"""Transactions: half messages, how they end, and the producers that are asked when they do not. Loop thread."""
