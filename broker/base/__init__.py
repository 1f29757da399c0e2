"""What every package of the broker may import: options, clock, errors, peers, small formats.

- `clock`: Time is passed in: logic never reads the wall clock itself
- `config`: the current options, their file, and changes to them while the broker runs
- `disk_space`: How full the disks of a store are, and what follows from it (Apache's isSpaceToDelete)
- `errors`: Errors that become an answer, and errors that stop the start
- `fastjson`: fastjson: the JSON dialect of fastjson 1.x, which Apache's files and bodies are written in
- `message`: what is put into the store, as a value, with its properties as a dict
- `message_ids`: Message ids: the offset id that names a record's place, and the unique id that a client
  (else the broker) gives
- `options`: Options of the broker: each declared once with Apache's key, default, range and meaning
- `peer`: The other end of a connection, as handlers and tables see it
- `process`: What a process of ours does as a process: stop on signals, know its age, give memory back, have
  its threads, let the loop go first
- `properties`: Java's properties text (`key=value` lines), as `broker.conf` and the config requests carry
  it
- `stats`: what was put and got, per topic, group and broker, over a minute, an hour and a day
"""
