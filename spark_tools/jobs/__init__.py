"""Programs for spark-submit: replay, redrive, export, import, copy, audit.

- `arguments`: the arguments that jobs share: source, target, behaviour
- `checkpoint`: a job's checkpoint folder: its plan, and the progress of each slice
- `copy_`: copy: copies topics of a cluster or of stores to another cluster, continuously
- `copy_task`: copies each micro-batch of ranges: workers fetch and send, then the messages are counted
- `dead_letters`: routes dead letters to the topics that they came from
- `dry_run`: counts what a job would read, by tag and hour, from headers only
- `export`: export: writes messages of stores or of live topics to Parquet
- `export_task`: exports a bundle of slices to Parquet files, in the worker
- `import_`: import: sends messages from Parquet files to topics of a cluster
- `import_task`: sends the files of one chain to a cluster, in the worker
- `losses`: losses of a plan or of a slice: an error, or counts and the first of them by name
- `parquet_input`: input of an import: an export with its manifest, or other Parquet files with a column
  `body`
- `planning`: plans a job: ranges of queues, with their bounds fixed, split into slices
- `program`: makes a job a program: its arguments, one-sentence errors, exit codes
- `progress`: shows a job's progress on stderr: share, messages, bytes, rate, time left
- `queue_mapping`: maps source queues to target queues; decided once, in the driver
- `rate_limit`: a token bucket that keeps a task below its share of a rate
- `redrive`: redrive: sends dead letters of consumer groups back to the topics they came from
- `replay`: replay: sends messages of stores or of a live cluster again
- `report`: what a job did, as JSON for programs and as a table for people
- `send_job`: the driver of replay and redrive: plan, routes, tasks, verification, report
- `send_task`: sends a task's slices from their source to a cluster, in the worker
- `stream_log`: the offsets and commits of a stream in Spark's checkpoint, in Spark's format
- `task_runner`: runs tasks of bulk jobs in Spark's Python workers, or here; only counts come back
- `verify_task`: verifies that every message of a slice is at the target, with the same body
"""
