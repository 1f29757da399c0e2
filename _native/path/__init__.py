"""Where wire and store meet: plain sends and pulls without a Python object for each; all else is NOT_MINE."""
