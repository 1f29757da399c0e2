"""Deletions of topics, from `config/deletedTopics.json`, which the broker's DeletedTopics writes. Any thread.

The log still has the records of a deleted topic; they have no queue entries, also when the topic was created again.
"""

import json
import os

Deletions = dict[bytes, tuple[int, int]]
"""Topic → end of the log and time (ms) when it was last deleted. A record is of the deleted topic if it begins below
that end and was stored up to that time: after a power cut the log may be shorter than it was."""


def deletions(root: str) -> Deletions:
    """Of the store in this folder; empty if neither the file nor its `.bak` can be read, as in stores of Apache's
    broker."""
    for name in ("deletedTopics.json", "deletedTopics.json.bak"):
        try:
            with open(os.path.join(root, "config", name), "rb") as file:
                topics = json.load(file)["topics"]
            return {
                of["topic"].encode("utf-8", "replace"): (int(of["logEnd"]), int(of["timestamp"]))
                for of in topics
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return {}
