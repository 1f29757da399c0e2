"""A message on its way out: prepared, given a queue, sent, tried again, answered."""
