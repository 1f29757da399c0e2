"""Tests of this folder against Apache's broker, in one JVM; `--against apache` runs all of them."""

import functools
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.integrations.faststream import test_acknowledgement, test_publish
from tests.integrations.faststream.test_acknowledgement import (
    test_a_message_that_fails_too_often_is_a_dead_letter,
)
from tests.integrations.faststream.test_consume import (
    test_a_batch_subscriber_gets_lists,
    test_a_broadcast_reaches_each_process,
    test_a_handler_gets_the_decoded_body_its_headers_and_the_message,
    test_filters_by_tag_and_by_sql_leave_the_rest,
    test_messages_with_one_sharding_key_are_handled_in_order,
)
from tests.integrations.faststream.test_publish import (
    test_request_and_reply,
    test_what_cannot_be_sent_is_refused,
)
from tests.interop.peers import BROKER, LIFE, Apache, Peer
from tests.interop.toolchain import java_class_path, need

__all__ = [
    "test_a_batch_subscriber_gets_lists",
    "test_a_broadcast_reaches_each_process",
    "test_a_handler_gets_the_decoded_body_its_headers_and_the_message",
    "test_a_message_that_fails_too_often_is_a_dead_letter",
    "test_filters_by_tag_and_by_sql_leave_the_rest",
    "test_messages_with_one_sharding_key_are_handled_in_order",
    "test_request_and_reply",
    "test_what_cannot_be_sent_is_refused",
]
pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need(lambda: java_class_path("client5"))
    settings = {"autoCreateTopicEnable": "true", "brokerName": BROKER} | LIFE
    with Apache(tmp_path_factory.mktemp("apache") / "store", settings) as apache:
        yield apache


@pytest.fixture(scope="module")
def name_server(peer: Peer) -> str:
    return peer.name_server


def long(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The same test, marked `long` here only."""

    @pytest.mark.long
    @functools.wraps(test)
    async def again(**fixtures: object) -> None:
        await test(**fixtures)

    return again


test_by_hand = long(test_acknowledgement.test_by_hand)
test_every_policy = long(test_acknowledgement.test_every_policy)
test_a_delayed_message = long(test_publish.test_a_delayed_message)
