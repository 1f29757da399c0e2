"""Push, pull and POP consumers, put together."""
