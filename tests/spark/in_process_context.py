"""InProcessSparkContext: runs the tasks of a job one after the other in this process, pickled as Spark does.

It tests whole jobs without a session; other tests run them in Spark itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.serializers import CPickleSerializer

pickled = CPickleSerializer()


@dataclass
class InProcessSparkContext:
    defaultParallelism: int = 2
    tasks: list[Any] = field(default_factory=list)
    """Of the last job."""

    def parallelize(self, items: Iterable[Any], count: int) -> "Parts":
        self.tasks = list(items)
        assert count == len(self.tasks)
        return Parts(self.tasks)


@dataclass
class Parts:
    items: list[Any]
    function: Callable[[Iterable[Any]], Iterable[Any]] | None = None

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> "Parts":
        return Parts(self.items, function)

    def collect(self) -> list[Any]:
        found: list[Any] = []
        for item in self.items:
            function, task = pickled.loads(pickled.dumps((self.function, item)))
            found += function(iter([task]))
        return found
