"""Asking brokers whether they can read a consumer's filters, before it waits for messages that would never come."""

from collections.abc import Mapping

import orjson

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import check
from firearrow.client.group.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance


async def check_filters(instance: ClientInstance, group: str, subscriptions: Mapping[str, Subscription]) -> None:
    """One broker of each topic; tags need no asking. BrokerError: it cannot read the expression. TransportError."""
    for topic, wanted in subscriptions.items():
        address = instance.routes.any_broker_of(topic)
        if wanted.kind == "TAG" or address is None:
            continue
        body = {
            "clientId": instance.client_id,
            "group": group,
            "subscriptionData": wanted.heartbeat_json(),
        }
        request = RemotingCommand.request(RequestCode.CHECK_CLIENT_CONFIG, body=orjson.dumps(body))
        check(await instance.call(address, request, instance.options.api_timeout_s), address)
