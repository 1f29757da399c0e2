"""Programs for spark-submit: replay, redrive, export, import, copy, audit.

- `arguments`: The arguments that jobs share, spelled alike everywhere: what is read, where it goes, how a
  job behaves
- `checkpoint`: a folder that holds a job's plan and what of it is finished, so that a killed job goes on
  where it was
- `copy_`: copy: topics of a cluster or of stores, copied to another cluster for as long as it runs
- `copy_task`: what is done with each micro-batch of ranges: they are fetched and sent by the lane's
  workers, then counted
- `dead_letters`: Dead letters: the topic that each was meant for, and the queue of it that it goes to now
- `dry_run`: what a job would touch, by tag and hour, from headers only
- `export`: export: messages of stores or of live topics to Parquet, written in the workers
- `export_task`: a bundle of slices from their source to Parquet files, in the worker: records → Arrow →
  file
- `import_`: import: Parquet files to topics of a cluster, sent by the workers
- `import_task`: the pieces of one chain from their files to a cluster, in the worker: Arrow → batches →
  socket
- `losses`: Losses of a plan or of a slice: an error, or all of them counted and so many named for the
  report
- `parquet_input`: What an import reads: the Parquet files of an export, by its manifest, or any others that
  have a column `body`
- `planning`: What a job's arguments mean at its source: ranges of queues, pinned, cut into slices
- `program`: How a job is a program: its Typer application, groups of arguments as parameters, errors as one
  sentence, exit codes
- `progress`: how far a job's marks have come, painted on stderr: share, messages, bytes, rate, time left
- `queue_mapping`: Which queue of the target gets what: decided once by the driver, the same in every task
- `rate_limit`: a token bucket that keeps a task below its share of a rate
- `redrive`: redrive: dead letters of consumer groups back to the topics they were meant for
- `replay`: replay: messages of stores or of a live cluster, sent again to a cluster
- `report`: what a job did, as JSON for programs and as a table for people
- `send_job`: the whole of a job that forwards, in the driver: plan, routes, tasks, verification, report
- `send_task`: a task's slices from their source to a cluster, in the worker: records → batches → socket
- `task_runner`: The lane of bulk jobs: slices of queues are worked on in Spark's Python workers, only
  counts come back
- `verify_task`: every message that a slice forwarded is at the target, with the same body
"""
