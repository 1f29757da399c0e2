"""A store's files read where they are: nothing is written, no lock is taken."""
