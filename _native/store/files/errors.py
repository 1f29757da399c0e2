"""Errors of a store: why it cannot be opened or has stopped. Each message states what to do."""


class StoreError(Exception):
    """The store cannot be opened, or has stopped."""


class StoreLocked(StoreError):
    """Another broker uses the store."""


class StoreForeign(StoreError):
    """The folder is not a store of FireArrow's or Apache's, or was created with other file sizes."""


class StoreDamaged(StoreError):
    """Damage that recovery must not remove."""


class StoreUnreadable(StoreError):
    """A folder is not a store, or one of its files cannot be read."""
