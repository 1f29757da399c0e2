"""Recorded conversations of Apache's clients with its proxy, and what in them is the same in each run.

`tests/recorded/grpc/CLIENT-SCENARIO.jsonl.gz`: a line for each event (see the README there).
"""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import json_format

from firearrow.broker.grpc.messages import ProtoClass, ProtoMessage

FOLDER = Path(__file__).parents[1] / "recorded" / "grpc"
TEXT_MAX = 1400
"""Larger bodies are cut."""
CUT = re.compile(r"…\((\d+) bytes\)")
JAVA = re.compile(r"(org\.apache\.[\w.]+|\w+Exception): ")
TIMES = frozenset(
    (
        "born_timestamp",
        "store_timestamp",
        "store_host",
        "delivery_timestamp",
        "receipt_handle",
        "recall_handle",
    )
)
CHOSEN = frozenset(("queue_id", "queue_offset", "offset"))
"""They depend on the queue that took its turn, at which a proxy begins anywhere."""
PLACES = frozenset(("host", "port", "scheme"))


class Event(NamedTuple):
    """`rpc`: the method's name. `meta`: of the first event of a call, its headers."""

    call: int
    rpc: str
    is_request: bool
    meta: dict[str, str] | None
    deadline: float | None
    message: dict[str, Any] | None
    ends: bool
    cancelled: bool
    status: tuple[str, str] | None


def names() -> list[str]:
    return sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))


def events(name: str) -> Iterator[Event]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            yield Event(
                event["call"],
                event["rpc"].rpartition("/")[2],
                event["dir"] == "c>s",
                event.get("meta"),
                event.get("deadline"),
                event.get("msg"),
                bool(event.get("half_close")),
                bool(event.get("cancelled")),
                (event["end"], event["details"]) if "end" in event else None,
            )


def parsed(value: dict[str, Any], kind: ProtoClass) -> ProtoMessage:
    """A recorded message; a body that was cut is one of zeros."""
    return json_format.ParseDict(_whole(value), kind(), ignore_unknown_fields=True)


def _whole(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _body(each) if key == "body" else _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def _body(text: str) -> str:
    cut = CUT.search(text)
    return text if cut is None else base64.b64encode(bytes(int(cut[1]))).decode()


def to_dict(message: ProtoMessage) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def comparable(value: Any, left_out: frozenset[str] = TIMES | CHOSEN | PLACES) -> Any:  # noqa: ANN401
    """What has to be the same: without times, places and chosen queues, and without Java's names in texts."""
    if isinstance(value, dict):
        found = {key: comparable(each, left_out) for key, each in value.items() if key not in left_out}
        if "body" in found and (CUT.search(found["body"]) or len(found["body"]) > TEXT_MAX):
            del found["body"]
            found.get("system_properties", {}).pop("body_digest", None)
        return {key: each for key, each in found.items() if each not in ({}, [], "", False, 0)}
    if isinstance(value, list):
        return [comparable(each, left_out) for each in value]
    return JAVA.sub("", value) if isinstance(value, str) and len(value) < TEXT_MAX else value
