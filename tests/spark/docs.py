"""The parts of docs/SPARK_REFERENCE.md that are generated. `python -m tests.spark.docs` brings them up to date."""

from pathlib import Path

from firearrow.spark_tools.arrow.message_columns import columns_table
from firearrow.spark_tools.datasource.sink_options import SinkOptions
from firearrow.spark_tools.plan.option_parsing import table
from firearrow.spark_tools.plan.options import SourceOptions
from tests.meta.readme import with_section

SPARK = Path(__file__).resolve().parents[2] / "docs/SPARK_REFERENCE.md"
TABLES = {"source options": SourceOptions, "sink options": SinkOptions}

if __name__ == "__main__":
    text = SPARK.read_text("utf-8")
    for name, kind in TABLES.items():
        text = with_section(text, name, table(kind))
    text = with_section(text, "sink columns", columns_table())
    SPARK.write_text(text, "utf-8")
