"""Damaged files: what a store or a broker does with them. `python -m tests.corruption` runs the long fuzzer."""
