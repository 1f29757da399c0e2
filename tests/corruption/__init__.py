"""Damaged files: what a store or a broker does that finds them. `python -m tests.corruption` runs the fuzzer for long."""
