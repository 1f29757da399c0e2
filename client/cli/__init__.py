"""The command line `firearrow`: what is done daily with topics, groups and messages, here and on Apache's clusters.

What all commands share:

- `candidates`: what a shell may complete a word to
- `command`: commands that work on a cluster, and what their verbs have in common
- `contexts`: the file of name servers and keys by name
- `file_lock`: files that one command at a time may have open
- `formats`: permissions, KEY=VALUE and other values as they are typed and shown
- `main`: finds the command and runs it
- `output`: tables on a terminal, JSON Lines when piped

The commands, by subject:

- `topics`: topics, and the locks of ordered queues
- `transfer`: topics exported to files, imported and copied
- `groups`: consumer groups, their clients and dead letters
- `messages`: messages: sent, read, found, due later, half
- `cluster`: brokers: status, options, replicas, users, quotas
- `local`: contexts, completion and certificates on this machine
- `doctor`: looks for trouble
"""
