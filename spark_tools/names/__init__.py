"""Installed as `firearrow`: its packages, and the names by which programs read the log as tables, loaded on first use.

import firearrow
firearrow.read("store", "Orders", columns=("tags", "body")).read_all()
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firearrow.spark_tools.lake.export import to_delta, to_iceberg, to_paimon
    from firearrow.spark_tools.tables.dataset import dataset, read, to_pandas
    from firearrow.spark_tools.tables.polars_scan import scan_polars
    from firearrow.spark_tools.tables.sql import query, to_duckdb
    from firearrow.spark_tools.tables.tail import tail
else:
    _PACKAGES = ("client", "spark_tools")
    _LOADED_ON_USE = {
        "dataset": "tables.dataset",
        "query": "tables.sql",
        "read": "tables.dataset",
        "scan_polars": "tables.polars_scan",
        "tail": "tables.tail",
        "to_delta": "lake.export",
        "to_duckdb": "tables.sql",
        "to_iceberg": "lake.export",
        "to_paimon": "lake.export",
        "to_pandas": "tables.dataset",
    }

    def __getattr__(name: str) -> object:
        if name in _PACKAGES:
            return import_module(f"firearrow.{name}")
        if name == "__version__":
            return import_module("importlib.metadata").version("firearrow")
        if name not in _LOADED_ON_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(f"firearrow.spark_tools.{_LOADED_ON_USE[name]}")
        except ModuleNotFoundError as error:
            raise ImportError(
                f"firearrow.{name} needs the Python package {error.name}: pip install 'firearrow[arrow]'"
            ) from None
        return getattr(module, name)

    def __dir__() -> list[str]:
        """Without names whose package is not installed: `help` and the completion of shells load all of them."""
        has_arrow = import_module("importlib.util").find_spec("pyarrow") is not None
        return sorted([*_PACKAGES, "__version__", *(__all__ if has_arrow else ())])


__all__ = [
    "dataset",
    "query",
    "read",
    "scan_polars",
    "tail",
    "to_delta",
    "to_duckdb",
    "to_iceberg",
    "to_paimon",
    "to_pandas",
]
