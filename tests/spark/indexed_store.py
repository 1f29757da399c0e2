"""A store whose index is known, and what is found in it with and without the index."""

from pathlib import Path

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.offline.reader import OfflineReader
from tests.spark.damaged_store import opened
from tests.support.stores import open_store, properties_of, put

COUNT = 600
QUEUES = 2
SLOTS, ENTRIES = 50, 402
"""Of an index file: five files, in each of which some keys share every slot. A message has three entries, so that one
message at the end of each file has some of them in the next."""
QUEUE_FILE_BYTES = 1000
"""Six files for a queue: each look-up reads all of them."""
NAMED = [*range(0, COUNT, 29), COUNT - 1]
Found = list[tuple[MessageQueue, int]]


def pair(number: int) -> str:
    """Two numbers each have keys of one hash: Java's of `Aa` and `BB` is the same."""
    return f"k{number // 2}" + ("Aa", "BB")[number % 2]


def fill_indexed(root: Path) -> None:
    """Message n is in queue n % 2; it has its own key, one of every hundredth message, and a unique id."""
    with open_store(
        root, index_slots=SLOTS, index_entries=ENTRIES, queue_file_bytes=QUEUE_FILE_BYTES
    ) as store:
        for number in range(COUNT):
            text = properties_of(KEYS=f"{pair(number)} hundred{number % 100}", UNIQ_KEY=f"U{number}")
            put(store, b"%d" % number, queue_id=number % QUEUES, properties=text, now_ms=1000 + number)
            store.write()


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def everything(reader: OfflineReader, *topics: str) -> list[QueueRange]:
    queues = [queue for topic in topics or reader.topics() for queue in reader.queues(topic)]
    return [QueueRange(queue, *pair) for queue, pair in reader.bounds(queues).items() if pair[0] < pair[1]]


def read(
    reader: OfflineReader, parts: list[QueueRange], message_filter: MessageFilter
) -> tuple[Found, list[str]]:
    """The messages, and what was reported as lost."""
    lost: list[str] = []
    found = [
        (part.queue, spans.queue_offset(n))
        for part in parts
        for spans in reader.read(
            part, message_filter, lambda each, why: lost.append(f"{each}: {why}"), bytes_max=1 << 20
        )
        for n in range(len(spans))
    ]
    return found, lost


def wanted(*numbers: int) -> MessageFilter:
    return MessageFilter(keys=frozenset(map(pair, numbers)))


def check(root: Path, *choices: MessageFilter) -> int:
    """Each finds the same by index; how many offsets are read for all."""
    planned = 0
    with opened(root) as reader:
        parts = everything(reader)
        for message_filter in choices or map(wanted, NAMED):
            narrowed = reader.by_index(parts, message_filter)
            assert read(reader, narrowed, message_filter)[0] == read(reader, parts, message_filter)[0]
            planned += sum(map(len, narrowed))
    return planned
