"""What each kind of finding means for messages, and what `repair` would do about it. Text only."""

from typing import NamedTuple

from firearrow._native.audit.findings import Kind


class Meaning(NamedTuple):
    """`derived`: nothing is lost, it can be made again from the log."""

    text: str
    repair: str
    derived: bool


BUILD = "repair builds it anew from the log"
DROP = "repair leaves it unless --drop-damaged is given; then a filler stands in its place"
MEANINGS = {
    Kind.MISSING_SEGMENT: Meaning("a file of the log is gone with its messages", DROP, False),
    Kind.CUT_FILE: Meaning("a file of the log is shorter than the others", DROP, False),
    Kind.TORN: Meaning("messages there cannot be read", DROP, False),
    Kind.TORN_TAIL: Meaning("the last write did not reach the disk whole", "repair cuts it off", False),
    Kind.HOLE: Meaning("messages there were never written, or are gone", DROP, False),
    Kind.BAD_CRC: Meaning("a message's body is not what was sent", DROP, False),
    Kind.NO_ENTRY: Meaning("consumers do not get the message", BUILD, True),
    Kind.WRONG_ENTRY: Meaning("consumers get another message, or none", BUILD, True),
    Kind.WRONG_TAGS: Meaning("filters by tag miss the message, or take it wrongly", BUILD, True),
    Kind.LOST_RECORD: Meaning("the queue shows a message that is not in the log", BUILD, True),
    Kind.QUEUE_GAP: Meaning("the queue shows nothing at an offset", BUILD, True),
    Kind.QUEUE_ORDER: Meaning("the queue's order is not the log's", BUILD, True),
    Kind.NO_KEY: Meaning("a query by key does not find the message", BUILD, True),
    Kind.WRONG_KEY: Meaning("a query by key looks at a wrong message", BUILD, True),
    Kind.INDEX_CHAIN: Meaning("queries by key may end too early", BUILD, True),
    Kind.INDEX_SLOT: Meaning("queries by key may end too early", BUILD, True),
    Kind.INDEX_ORDER: Meaning("queries by time and key may end too early", BUILD, True),
    Kind.INDEX_FILE: Meaning("queries by key cannot use the file", BUILD, True),
    Kind.OFFSET_BEYOND: Meaning(
        "the group waits for messages that do not exist",
        "repair moves it to the end with --reset-offsets",
        False,
    ),
    Kind.CHECKPOINT: Meaning(
        "a start after a kill may look at too little of the log", "repair writes it anew", True
    ),
    Kind.CONFIG: Meaning(
        "topics, groups or offsets may be lost", "repair puts a good .bak in its place", False
    ),
    Kind.TIMER: Meaning(
        "timer messages may be late until the next start",
        "the broker's start, or repair and a start, lays anew what waits",
        False,
    ),
    Kind.JOURNAL: Meaning(
        "the last progress before a kill may be repeated", "the broker passes it over", False
    ),
    Kind.UNREADABLE: Meaning(
        "nothing is known of it", "repair moves a derived file away, and leaves others", False
    ),
}
