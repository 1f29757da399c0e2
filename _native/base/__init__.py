"""Basics of all packages: byte order, memory, hashes, clocks, C vectors. Imports no other package of FireArrow's.

- `certificates`: certificates for development: an authority of one's own, and what it signs
- `clock`: wall and monotonic time in milliseconds
- `command_line`: the parser of every command
- `durable_files`: files that are replaced whole; directories made and synced
- `endian`: big-endian numbers at a pointer
- `hash`: CRC-32 as records have it, CRC-32C, Java's String.hashCode over UTF-8, the index's key hash
- `histogram`: counts of values by range
- `last_backup`: the trace that a backup leaves in its store
- `machine`: disks, fsync, open files and limits of memory of this machine
- `malloc`: settings of glibc's malloc: how much freed memory it keeps
- `memory`: prefetching, and fast copies and comparisons of memory
- `offset_text`: the text of very many offsets in Apache's config files
- `openssl_command`: such certificates by the command openssl
- `progress_bar`: what is done of a long command, on one line of a terminal
- `shared_arguments`: arguments of commands that have one name for one thing, also in the jobs of Spark
- `text`: UTF-8 validation, and numbers as decimal digits
- `vector`: a growing array in C memory
- `verbs`: commands with their verbs and arguments, declared once
"""
