"""RocketMQ's log in Apache Spark: a data source and sink, and bulk jobs. Never writes a store.

`session` makes a Spark session that knows the format `rocketmq`. The other names are loaded on first use, so that a
program that only reads does not wait for all.

- `sessions`: sessions that know the format, and reads with push-down
- `commands`, `submit`: `firearrow spark NAME` becomes a spark-submit
- `pack`: the archive that carries FireArrow to executors
"""

from importlib import import_module
from typing import TYPE_CHECKING

from firearrow.spark_tools.sessions import read_where, register, scan, session

if TYPE_CHECKING:
    from firearrow.spark_tools.commands import run_job
    from firearrow.spark_tools.datasource.bodies import from_body
    from firearrow.spark_tools.datasource.progress import GroupFollows, lag
    from firearrow.spark_tools.live.cluster import Cluster
    from firearrow.spark_tools.plan.stream_offsets import StreamLag
else:
    _LOADED_ON_USE = {
        "Cluster": "live.cluster",
        "GroupFollows": "datasource.progress",
        "StreamLag": "plan.stream_offsets",
        "from_body": "datasource.bodies",
        "lag": "datasource.progress",
        "run_job": "commands",
    }

    _WITH_PYSPARK = ("GroupFollows", "from_body", "lag")

    def __getattr__(name: str) -> object:
        if name not in _LOADED_ON_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LOADED_ON_USE[name]}"), name)

    def __dir__() -> list[str]:
        """Without names whose package is not installed: `help` and the completion of shells load all of them."""
        has_spark = import_module("importlib.util").find_spec("pyspark") is not None
        return sorted(name for name in __all__ if has_spark or name not in _WITH_PYSPARK)


__all__ = [
    "Cluster",
    "GroupFollows",
    "StreamLag",
    "from_body",
    "lag",
    "read_where",
    "register",
    "run_job",
    "scan",
    "session",
]
