"""The command line `firearrow`: what is done daily with topics, groups and messages, here and on Apache's clusters.

- `command`: the verbs of a command, and what they have in common
- `contexts`: name servers and keys by name
- `main`: finds the command and runs it
- `output`: tables on a terminal, JSON Lines when piped
- `times`: times and durations as they are typed and shown
- `topic`: topics
- `user`: users and rules
"""
