"""Running consumers, put together from the other rooms."""
