"""The command line `firearrow`: what is done daily with topics, groups and messages, here and on Apache's clusters.

What all commands share:

- `candidates`: what a shell may complete a word to
- `command`: the verbs of a command, and what they have in common
- `contexts`: the file of name servers and keys by name
- `main`: finds the command and runs it
- `output`: tables on a terminal, JSON Lines when piped
- `times`: times and durations as they are typed and shown
- `values`: permissions, KEY=VALUE and other values as they are typed and shown

One module for each command:

- `bench`: a quick load on the brokers
- `clients`: connected clients
- `completion`: scripts for shells
- `config`: broker options
- `context`: name servers and keys by name
- `group`: consumer groups
- `status`: how the brokers are
- `top`: rates and lags, refreshed
- `topic`: topics
"""
