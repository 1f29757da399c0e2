"""Every limit at it and one past it, fuzzers, and peers that mean harm."""
