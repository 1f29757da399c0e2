"""Every limit at its value and one past it, fuzzers, and hostile clients."""
