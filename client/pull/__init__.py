"""Pull requests and the loops that make them."""
