"""Damaged files: what a store or a broker does that finds them. `python -m tests.damage` runs the fuzzer for long."""
