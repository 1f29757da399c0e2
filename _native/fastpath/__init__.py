"""Plain sends and pulls without a Python object for each message; all other requests go to the handlers.

- `access_check`: signatures and rights of plain sends and pulls
- `ack_templates`: acknowledgements of popped messages that differ in one number
- `arrivals`: notifies of queues with messages that readers could not see before
- `batch_items`: the items of a batch body, read in place
- `fast_connection`: a connection that offers each request to the fast path first
- `fast_dispatch`: dispatches requests by their code to the fast path
- `header_template`: reads a header that differs from the connection's last one only in its values
- `long_polling`: requests that wait for an arrival or their deadline
- `pending_replies`: replies that wait for their write batch
- `pull_message`: plain pulls without a Python object for each record
- `pull_response`: the header of the response to a pull that found messages
- `quotas`: messages and bytes per second that users, topics and groups may send and get
- `request_fields`: ext fields of sends and pulls, decoded in place
- `request_times`: how long requests took, and what was sent to each topic
- `send_message`: plain sends without a Python object for each
- `send_properties`: a message's properties, completed in place
- `send_response`: the response to a stored message
- `topic_cache`: the topics of the fast path
- `write_batch`: messages staged in one pass of the loop become durable together
"""
