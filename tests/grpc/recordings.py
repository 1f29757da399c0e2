"""Recorded conversations of Apache's clients with its proxy.

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
CUT = re.compile(r"…\((\d+) bytes\)")
"""Bodies of more than 1 KiB are cut."""


class Event(NamedTuple):
    """`rpc`: the method's name. `meta`: of the first event of a call, its headers."""

    call: int
    rpc: str
    is_request: bool
    meta: dict[str, str] | None
    deadline: float | None
    message: dict[str, Any] | None
    half_closes: bool
    cancelled: bool
    status: tuple[str, str] | None

    @property
    def is_answer(self) -> bool:
        """A message or the end of a call, from the server."""
        return not self.is_request


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
        return {key: whole_body(each) if key == "body" else _whole(each) for key, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value


def whole_body(text: str) -> str:
    cut = CUT.search(text)
    return text if cut is None else base64.b64encode(bytes(int(cut[1]))).decode()


def to_dict(message: ProtoMessage) -> dict[str, Any]:
    found = json_format.MessageToDict(message, preserving_proto_field_name=True)
    assert isinstance(found, dict)
    return found


def body_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(whole_body(message.get("body", "")))
