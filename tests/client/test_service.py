"""The life that producers and consumers share: closed while it is being started, started again, unknown arguments."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow.client import blocking
from firearrow.client.base.errors import ConfigError, NotRunning
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.base.service_state import ServiceState
from firearrow.client.consumers.pop_consumer import PopConsumer
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique

Member = Producer | PushConsumer | PullConsumer | PopConsumer
KINDS = [Producer, PushConsumer, PullConsumer, PopConsumer]


def member(kind: type[Member], client: ClientOptions, topic: str, group: str) -> Member:
    """A service whose start requests the route of the topic."""
    if kind is Producer:
        return Producer(group, client=client, options=ProducerOptions(topics=(topic,)))
    made = kind(group, client=client)
    if isinstance(made, PushConsumer):
        made.subscribe(topic, lambda messages: None)
    elif not isinstance(made, Producer):
        made.subscribe(topic)
    return made


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_is_closed_while_starting_does_not_run(
    kind: type[Member], name_server: str, topics: Callable[..., str]
) -> None:
    """Another member keeps the instance, so that nothing but the close ends the start."""
    client, topic = ClientOptions(name_server=name_server), topics()
    async with member(kind, client, topic, unique("group")) as stays:
        leaves = member(kind, client, topic, unique("group"))
        starting = asyncio.create_task(leaves.start())
        await asyncio.sleep(0)
        assert leaves.state is ServiceState.START_FAILED
        await leaves.close()
        with pytest.raises(NotRunning, match="closed"):
            await starting
        assert leaves.state is ServiceState.SHUTDOWN_ALREADY
        with pytest.raises(NotRunning):
            await leaves.start()
        here = {*stays.instance.producers, *stays.instance.consumers}
        assert here == {stays.group}
    with pytest.raises(NotRunning, match="SHUTDOWN_ALREADY"):
        _ = stays.instance


async def test_a_pop_consumer_whose_start_failed_can_be_started(
    name_server: str, topics: Callable[..., str]
) -> None:
    client, topic, group = ClientOptions(name_server=name_server), topics(), unique("group")
    second = member(PopConsumer, client, topic, group)
    async with member(PopConsumer, client, topic, group) as first:
        with pytest.raises(ConfigError, match=group):
            await second.start()
        assert second.state is ServiceState.START_FAILED
        assert first.instance.consumers == {group: first}
    async with second:
        assert second.state is ServiceState.RUNNING


@pytest.mark.parametrize(
    "make",
    [Producer, PushConsumer, PullConsumer, blocking.Producer, blocking.PushConsumer, blocking.PullConsumer],
)
def test_an_unknown_keyword_argument_is_refused(make: Callable[..., object], name_server: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sent_hooks'"):
        make("group", name_server=name_server, sent_hooks=[])
