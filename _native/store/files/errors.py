"""Why a store cannot be opened or goes on no more. Each text is one sentence that says what to do."""


class StoreError(Exception):
    """The store cannot be opened, or has stopped."""


class StoreLocked(StoreError):
    """Another broker has it."""


class StoreForeign(StoreError):
    """The folder is no store of ours or Apache's, or was made with other file sizes."""


class StoreDamaged(StoreError):
    """Damage that recovery may not cut."""


class StoreUnreadable(StoreError):
    """A folder is no store, or a file of it cannot be read."""
