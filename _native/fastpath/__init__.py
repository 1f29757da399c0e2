"""Plain sends and pulls without a Python object for each message; all other requests go to the handlers.

- `arrivals`: notifies of queues with messages that readers could not see before
- `batch_items`: Items of a batch body in place
- `fast_connection`: Lane and Front: the fast path for requests, and the connection that offers them
- `fast_dispatch`: dispatches requests by their code to the fast path
- `header_template`: a header that matches the last one of its connection
- `long_polling`: requests that wait for an arrival or their deadline
- `pending_replies`: answers of the fast path that wait for their turn's write
- `pull_message`: plain pulls without a Python object for each record
- `pull_response`: The header of the answer to a pull that found messages
- `request_fields`: Ext fields of sends and pulls, decoded in place
- `send_message`: plain sends without a Python object for each
- `send_properties`: A message's properties, completed in place
- `send_response`: the answer to a stored message
- `topic_cache`: the topics of the fast path
- `write_batch`: messages staged in one pass of the loop become durable together
"""
