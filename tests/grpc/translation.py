"""Translation: what our broker has given, for what Apache's gave in a recording, and today's times for those of that
day.

Requests are translated before they are sent, and Apache's answers before they are compared with ours.
"""

import copy
import hashlib
import time
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from firearrow.broker.grpc.messages import ProtoClass, ProtoMessage
from tests.grpc import recordings
from tests.grpc.recordings import Event

HANDLE_WORDS = 8
HOUR_MS = 3_600_000
ORPHAN = "recover_orphaned_transaction_command"


class Translation:
    def __init__(self) -> None:
        self._handles: dict[str, str] = {}
        """Receipt and recall handles: the recorded one → ours."""
        self._newest: dict[str, tuple[str, str]] = {}
        """By message id: the last receipt handle that was recorded, and ours."""
        self._transactions: dict[str, str] = {}
        self._shifts: dict[str, int] = {}
        """By message id: seconds from its recorded times to ours."""

    # ---- requests ----

    def request(self, event: Event, kind: ProtoClass) -> ProtoMessage:
        assert event.message is not None
        request = recordings.parsed(event.message, kind)
        if event.rpc == "SendMessage":
            for message, recorded in zip(request.messages, event.message.get("messages", ()), strict=True):
                self._shift(message.system_properties)
                if recordings.CUT.search(recorded.get("body", "")):
                    message.system_properties.ClearField("body_digest")
        elif event.rpc == "EndTransaction":
            request.transaction_id = self._transactions.get(request.transaction_id, request.transaction_id)
        elif event.rpc == "RecallMessage":
            request.recall_handle = self._handles.get(request.recall_handle, request.recall_handle)
        elif event.rpc == "AckMessage":
            for entry in request.entries:
                entry.receipt_handle = self._handle(entry.message_id, entry.receipt_handle)
        elif event.rpc in ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
            request.receipt_handle = self._handle(request.message_id, request.receipt_handle)
        return request

    def _shift(self, own: ProtoMessage) -> None:
        """As if the message was born now."""
        shift = self.shift_of(own.message_id, own.born_timestamp.seconds)
        for name in ("born_timestamp", "delivery_timestamp"):
            if own.HasField(name):
                getattr(own, name).seconds += shift

    def shift_of(self, message_id: str, born_s: int) -> int:
        """Of a message that is sent now."""
        self._shifts[message_id] = int(time.time()) - born_s
        return self._shifts[message_id]

    def _handle(self, message_id: str, recorded: str) -> str:
        """Ours. A recorded one that Apache never gave was made of the message's: too short, or too old."""
        if recorded in self._handles or message_id not in self._newest:
            return self._handles.get(recorded, recorded)
        words = recorded.split(" ")
        theirs, ours = (each.split(" ") for each in self._newest[message_id])
        if len(words) < HANDLE_WORDS:
            return recorded
        older_ms = int(words[1]) - int(theirs[1])
        if older_ms < -HOUR_MS // 2:
            ours[1] = str(int(ours[1]) + older_ms)
        made = " ".join(ours[: len(words)])
        self._handles[recorded] = made
        return made

    # ---- answers ----

    def answer(self, theirs: dict[str, Any]) -> dict[str, Any]:
        """Apache's answer with our handles and today's times."""
        found: dict[str, Any] = copy.deepcopy(theirs)
        for entry in (found, *found.get("entries", ())):
            for name in ("receipt_handle", "recall_handle"):
                if name in entry:
                    entry[name] = self._handles.get(entry[name], entry[name])
        for message in (found.get("message"), found.get(ORPHAN, {}).get("message")):
            if message is not None:
                self._today(message)
        return found

    def _today(self, message: dict[str, Any]) -> None:
        own = message["system_properties"]
        shift = self._shifts.get(own["message_id"], 0)
        for name in ("born_timestamp", "delivery_timestamp"):
            if name in own:
                moment = Timestamp()
                moment.FromJsonString(own[name])
                moment.seconds += shift
                own[name] = moment.ToJsonString()
        if recordings.CUT.search(message.get("body", "")):
            digest = hashlib.md5(recordings.body_of(message), usedforsecurity=False)
            message["body"] = recordings.whole_body(message["body"])
            own["body_digest"]["checksum"] = digest.hexdigest().upper()

    def learn(self, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
        """From an answer of both, before it is compared."""
        for there, here in zip(
            (theirs, *theirs.get("entries", ())), (ours, *ours.get("entries", ())), strict=False
        ):
            for name in ("receipt_handle", "recall_handle"):
                if name in there and name in here:
                    self._handles.setdefault(there[name], here[name])
            if "transaction_id" in there and "transaction_id" in here:
                self._transactions[there["transaction_id"]] = here["transaction_id"]
        if ORPHAN in theirs and ORPHAN in ours:
            self._transactions[theirs[ORPHAN]["transaction_id"]] = ours[ORPHAN]["transaction_id"]
        if "message" in theirs and "message" in ours:
            there, here = (each["message"]["system_properties"] for each in (theirs, ours))
            self._handles[there["receipt_handle"]] = here["receipt_handle"]
            self._newest[there["message_id"]] = there["receipt_handle"], here["receipt_handle"]
