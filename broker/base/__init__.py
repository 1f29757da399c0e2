"""What every package of the broker may import: options, clock, errors, peers, small formats.

- `arguments`: the arguments of `firearrow broker` and `firearrow namesrv`, each declared once
- `auth_options`: what the options of users and rules mean, and what is wrong with them
- `clock`: the clock that is passed to all logic, which never reads the time itself
- `config`: the current options, their file, and changes to them while the broker runs
- `config_keys`: the keys of Apache's configuration: which exist, their defaults, which ask for security
- `disk_space`: how full the disks of a store are, and what to do about it (Apache's isSpaceToDelete)
- `errors`: errors that become an answer, and errors that stop the start
- `event_counts`: counters and histograms of what happens beside plain sends and pulls, as the metrics name them
- `file_reads`: reads of files that may hang, or that are not files, never on the loop
- `log_output`: standard output and error of a server and its log file, written by threads, and the handler of its log
- `message`: a message to put into the store, with its properties as a dict
- `memory_limits`: what clients can make the broker hold, by the memory that its cgroup or machine grants
- `message_ids`: offset ids, which contain a record's physical offset, and unique ids
- `options`: options of the broker, each declared once with Apache's key, default, range and meaning
- `peer`: the other end of a connection, as handlers and tables see it, and whether it may still be answered
- `process`: signals, thread priority, executors, memory settings and age of this process
- `property_rules`: which properties of messages the broker acts on, and who may set them
- `properties`: the format of Java's properties files (`key=value` lines)
- `security_words`: words by which a key that no server has sounds like security
- `stats`: statistics of puts and gets by topic, group and broker, over a minute, an hour and a day
- `systemd`: readiness and stop reported to systemd, and listening sockets taken from it
- `tls`: what the options of TLS mean, and the contexts that they ask for
"""
