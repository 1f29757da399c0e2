"""What every package of the Spark tools may import.

- `body_check`: Bodies that are not what was stored once: their records are told as lost, never handed on
- `disk_errors`: what a job says when a disk takes no more of its files
- `errors`: What the Spark tools refuse, each in one sentence that says what to do
- `filter`: which messages of a range are wanted
- `filter_eval`: a Choice at work on records
- `provenance`: Where a message that was sent again came from, told by its own properties: what makes a
  repeat recognisable
- `source`: Where messages are read from: what the files of stores and live brokers have in common
- `worker_setup`: The Python worker that Spark forked for us: what its process needs once, before the first
  record is read
"""
