"""POP consumption: taking messages, acknowledging them, reviving those that were not."""
