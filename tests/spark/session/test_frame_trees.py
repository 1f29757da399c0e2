"""Random trees of filters, unions, semi-joins and caches over narrowed frames: the same rows as over Parquet."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from firearrow.spark_tools import read_where, register
from tests.spark.stores import KnownStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = "Orders|Payments"
COLUMNS = "topic", "queueId", "queueOffset", "storeTimestamp", "tags", "uniqKey"
PLACE = ["topic", "queueId", "queueOffset"]
TREES, DEPTH_MAX = range(24), 3
RICH = (5, 6, 9, 12, 17)
"""Trees of which each has several operations; together all. Half of the others are leaves."""
Leaf = Callable[[str], "DataFrame"]


@pytest.fixture(scope="module")
def leaves(
    spark: "SparkSession", store: KnownStore, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Leaf, Leaf]:
    """The rows for a condition: narrowed, and of a Parquet copy."""
    register(spark)
    copy = str(tmp_path_factory.mktemp("copy") / "parquet")
    options = {"path": str(store.root), "topicPattern": TOPICS}
    spark.read.format("rocketmq").options(**options).load().select(*COLUMNS).write.parquet(copy)
    columns = ",".join(COLUMNS)
    return (
        lambda condition: read_where(spark, condition, **options, columns=columns),
        lambda condition: spark.read.parquet(copy).where(condition),
    )


class Tree:
    """Drawn from one seed, so that both sides get the same one. Frames are used again on purpose."""

    def __init__(self, seed: int, leaf: Leaf) -> None:
        self._draw = random.Random(seed)
        self._leaf = leaf
        self._made: list[DataFrame] = []

    def frame(self, depth: int = DEPTH_MAX) -> "DataFrame":
        kind = self._draw.choice(("leaf", "again", "where", "union", "join", "cache")) if depth else "leaf"
        found = self._of(kind, depth - 1)
        self._made.append(found)
        return found

    def _of(self, kind: str, depth: int) -> "DataFrame":
        match kind:
            case "again" if self._made:
                return self._draw.choice(self._made)
            case "where":
                return self.frame(depth).where(self.condition())
            case "union":
                return self.frame(depth).unionByName(self.frame(depth))
            case "join":
                return self.frame(depth).join(self.frame(depth), PLACE, "leftsemi")
            case "cache":
                return self.frame(depth).cache()
        return self._leaf(self.condition())

    def condition(self) -> str:
        parts = [self._comparison() for _ in range(self._draw.randint(1, 2))]
        return self._draw.choice((" AND ", " OR ")).join(parts)

    def _comparison(self) -> str:
        number, sign = self._draw.randrange(130), self._draw.choice(("=", "<", "<=", ">", ">=", "<>", "<=>"))
        return self._draw.choice(
            (
                f"topic {self._draw.choice(('=', '<>'))} 'Orders'",
                "topic LIKE 'Pay%'",
                f"queueId {sign} {number % 4}",
                f"queueOffset {sign} {number}",
                f"queueOffset IN ({number}, {number + 7}, null)",
                f"tags {self._draw.choice(('=', '<=>', '<>'))} 'paid'",
                "tags IS NULL",
                "NOT tags IN ('paid', 'created')",
                "uniqKey IS NOT NULL",
                "storeTimestamp >= '2020-01-01'",
                f"queueId + 1 {sign} '{number % 4}'",
            )
        )


@pytest.mark.parametrize(
    "seeds", [RICH, pytest.param(sorted({*TREES} - {*RICH}), marks=pytest.mark.long)], ids=["rich", "others"]
)
def test_trees_have_the_rows_of_parquet(
    seeds: Sequence[int], spark: "SparkSession", leaves: tuple[Leaf, Leaf]
) -> None:
    for seed in seeds:
        narrowed, copied = (
            Counter(map(tuple, Tree(seed, leaf).frame().select(*PLACE).collect())) for leaf in leaves
        )
        assert narrowed == copied, f"seed {seed}"
        spark.catalog.clearCache()
