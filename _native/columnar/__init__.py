"""Many records at once: from mapped files or answers to Arrow columns and message batches.

- `arrow_export`: Arrow's C data interface, the side that hands over
- `arrow_import`: Columns of texts and lists
- `batch_encoder`: Bodies of batch requests from records as they lie in a window
- `column_fill`: The loops that fill columns
- `columns`: Columns of records: sizes first, then one loop of fills a column, without an object for a
  record
- `counters`: messages and bytes of each name
- `entry_lookup`: Records looked up by the entries of a queue
- `property_edits`: What is done to the properties of records on their way to a batch: Edits
- `property_pairs`: Properties of records, found once
- `record_filter`: which records are wanted
- `record_spans`: Spans, and how they are found: by walking a log, in an answer
- `row_encoder`: Columns as messages to be sent
- `string_set`: which of very many texts are asked for
- `unwritten`: Where nothing was written: files are reserved in zeros
"""
