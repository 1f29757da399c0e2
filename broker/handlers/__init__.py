"""One module per family of request codes; each turns a request into an answer."""
