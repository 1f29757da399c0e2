"""`firearrow topic export`, `import` and `copy`, messages between topics, files and clusters without Spark; `jobs`.

- `checkpoint`: how far a command came, kept between its runs
- `copy_topic`: a topic copied to another one, at the same cluster or elsewhere
- `export_topic`: a topic written to a file
- `forwarding`: what import and copy share: queues, sending, the check at the end
- `import_topic`: messages of a file sent to a topic
- `jobs`: the progress of such commands and of Spark's jobs, from their checkpoints
- `message_file`: messages as lines of JSON, or rows of Parquet
- `ordered_sender`: batches to each queue, one after the other
- `reading`: a topic read from where an earlier run ended, with what is missing and damaged
"""
