"""docs/SPARK_REFERENCE.md: its tables are those of the declarations, its columns those of the table."""

import re

import pytest

from firearrow.spark_tools.arrow import columns
from firearrow.spark_tools.plan.option_parsing import table
from tests.meta.readme import section
from tests.spark.docs import SPARK, TABLES


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_those_of_the_options(name: str) -> None:
    assert section(SPARK.read_text("utf-8"), name) == table(TABLES[name]), "run python -m tests.spark.docs"


def test_every_column_is_documented_and_no_other() -> None:
    rows = re.findall(
        r"^\| ([`\w, ]+) \| [\w, <>]+ \|.*\|$", SPARK.read_text("utf-8").split("### What is read")[0], re.M
    )
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(columns.ALL)
