"""Which stores an audit looks at, by the paths that are given."""

from firearrow._native.audit.store_files import AuditedStore
from firearrow.spark_tools.offline.store_source import StoreSource


def stores_of(paths: tuple[str, ...]) -> list[AuditedStore]:
    """Of folders, or NAME=FOLDER. OptionWrong: none, or two of one name."""
    named = (path.partition("=") for path in StoreSource(paths).paths)
    return [AuditedStore(name, root) for name, _, root in named]
