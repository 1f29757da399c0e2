"""Many records at once: from mapped files or pull responses to Arrow columns and message batches.

- `arrow_export`: exports columns through Arrow's C data interface
- `arrow_import`: views of Arrow's string and list columns
- `batch_encoder`: encodes stored records as bodies of batch requests
- `column_fill`: the loops that fill columns
- `columns`: converts records to columns, without a Python object for each record
- `counters`: counts messages and bytes by name
- `entry_lookup`: finds the records that queue entries point to
- `property_edits`: edits the properties of records that are sent again
- `property_pairs`: parses the properties of records into names and values
- `record_filter`: selects records by topic, tag, key, unique id and time
- `record_spans`: positions of whole records in a window of bytes
- `row_encoder`: encodes rows of columns as messages
- `string_set`: a set of strings that native code can query
- `unwritten`: finds the first written byte after reserved zeros
"""
