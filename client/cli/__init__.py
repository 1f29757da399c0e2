"""The command line `firearrow`: what is done daily with topics, groups and messages, here and on Apache's clusters.

What all commands share:

- `candidates`: what a shell may complete a word to
- `command`: the verbs of a command, and what they have in common
- `contexts`: the file of name servers and keys by name
- `half_messages`: half messages: which are open; found by id, ended by an operator
- `main`: finds the command and runs it
- `message_path`: what brokers know of one message: stored, due, delivered, retried, dead
- `message_view`: messages as rows, lines and by a template; which ones are meant
- `output`: tables on a terminal, JSON Lines when piped
- `queue_reader`: reads queues by pulls, without a group: what is stored, then what comes
- `resending`: stored messages sent again: what is kept, where a dead letter came from
- `send_delay`: delays by timer messages or delay levels, whichever the brokers have
- `times`: times and durations as they are typed and shown
- `values`: permissions, KEY=VALUE and other values as they are typed and shown

One module for each command:

- `bench`: a quick load on the brokers
- `clients`: connected clients
- `completion`: scripts for shells
- `config`: broker options
- `context`: name servers and keys by name
- `dlq`: dead letters
- `doctor`: looks for trouble (a package)
- `group`: consumer groups
- `message`: messages: get, find, their path, send again
- `promotion`: makes a slave the master
- `queue`: ordered queues: who holds their locks
- `quota`: quotas, and what was used of them
- `replica`: masters and slaves: how far each slave is
- `send`: send messages: one, many, or one for each line
- `shrink_topic`: taking queues away from a topic without losing sight of their messages
- `status`: how the brokers are
- `tail`: messages as they come
- `timer`: messages that are not due yet
- `tls`: an authority and certificates for development
- `top`: rates and lags, refreshed
- `topic`: topics
- `tx`: transactions: list, ask, commit, rollback
- `user`: users and rules
"""
