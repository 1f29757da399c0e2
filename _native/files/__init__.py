"""A store's files read where they lie, without a broker: nothing is written, no lock is taken."""
