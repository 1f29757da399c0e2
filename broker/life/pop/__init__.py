"""POP: messages taken without owning a queue, hidden for a time, acknowledged one by one. Loop thread."""
