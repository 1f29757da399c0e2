"""A store checked from its files alone: the native checks of `bulk` put together. Knows no Spark and no broker."""
