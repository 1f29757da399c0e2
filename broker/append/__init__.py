"""The way of a message into the store: checks, delay levels, retry topics, LMQ, the progress journal."""
