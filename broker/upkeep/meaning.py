"""What each kind of finding means for messages, and what `repair` would do about it. Text only."""

from typing import NamedTuple

from firearrow._native.audit.findings import Kind


class Explanation(NamedTuple):
    """`derived`: nothing is lost, it can be made again from the log."""

    text: str
    repair: str
    derived: bool


BUILD = "repair builds it anew from the log"
DROP = "repair leaves it unless --drop-damaged is given; then a filler stands in its place"
EXPLANATIONS = {
    Kind.MISSING_SEGMENT: Explanation("a file of the log is gone with its messages", DROP, False),
    Kind.CUT_FILE: Explanation("a file of the log is shorter than the others", DROP, False),
    Kind.TORN: Explanation("messages there cannot be read", DROP, False),
    Kind.TORN_TAIL: Explanation("the last write did not reach the disk whole", "repair cuts it off", False),
    Kind.HOLE: Explanation("messages there were never written, or are gone", DROP, False),
    Kind.BAD_CRC: Explanation("a message's body is not what was sent", DROP, False),
    Kind.NO_ENTRY: Explanation("consumers do not get the message", BUILD, True),
    Kind.WRONG_ENTRY: Explanation("consumers get another message, or none", BUILD, True),
    Kind.WRONG_TAGS: Explanation("filters by tag miss the message, or take it wrongly", BUILD, True),
    Kind.LOST_RECORD: Explanation("the queue shows a message that is not in the log", BUILD, True),
    Kind.QUEUE_GAP: Explanation("the queue shows nothing at an offset", BUILD, True),
    Kind.QUEUE_ORDER: Explanation("the queue's order is not the log's", BUILD, True),
    Kind.NO_KEY: Explanation("a query by key does not find the message", BUILD, True),
    Kind.WRONG_KEY: Explanation("a query by key looks at a wrong message", BUILD, True),
    Kind.INDEX_CHAIN: Explanation("queries by key may end too early", BUILD, True),
    Kind.INDEX_SLOT: Explanation("queries by key may end too early", BUILD, True),
    Kind.INDEX_ORDER: Explanation("queries by time and key may end too early", BUILD, True),
    Kind.INDEX_FILE: Explanation("queries by key cannot use the file", BUILD, True),
    Kind.OFFSET_BEYOND: Explanation(
        "the group waits for messages that do not exist",
        "repair moves it to the end with --reset-offsets",
        False,
    ),
    Kind.CHECKPOINT: Explanation(
        "a start after a kill may look at too little of the log", "repair writes it anew", True
    ),
    Kind.CONFIG: Explanation(
        "topics, groups or offsets may be lost", "repair puts a good .bak in its place", False
    ),
    Kind.TIMER: Explanation(
        "timer messages may be late until the next start",
        "the broker's start, or repair and a start, lays anew what waits",
        False,
    ),
    Kind.JOURNAL: Explanation(
        "the last progress before a kill may be repeated", "the broker passes it over", False
    ),
    Kind.UNREADABLE: Explanation(
        "nothing is known of it", "repair moves a derived file away, and leaves others", False
    ),
}
