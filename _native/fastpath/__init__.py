"""Plain sends and pulls without a Python object for each message; all other requests go to the handlers."""
