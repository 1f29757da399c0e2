"""gRPC's own services, health and reflection, as grpcio calls them: without a client id and without a login."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from firearrow.broker.grpc import messages
from firearrow.broker.grpc.service_call import BYTES_MAX
from tests.support.broker_process import BrokerProcess

SERVING, NOT_SERVING = 1, 2


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks for users."""
    folder: Path = tmp_path_factory.mktemp("services")
    users = ("--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true")
    first = ("--set", 'initAuthenticationUser={"username":"admin","password":"admin-word"}')
    with BrokerProcess(folder / "store", *users, *first) as running:
        yield running


@pytest.fixture
def channel(secured: BrokerProcess) -> Iterator[grpc.Channel]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel("{}:{}".format(*secured.address), options) as opened:
        yield opened


def method(channel: grpc.Channel, service: str, name: str, kind: str = "unary_unary") -> Any:  # noqa: ANN401
    request, response = messages.method_classes(name, service)
    stub = getattr(channel, kind)(
        f"/{service}/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    return stub, request


def test_health_is_that_of_the_broker(channel: grpc.Channel) -> None:
    check, request = method(channel, messages.HEALTH, "Check")
    for service in ("", *messages.SERVICES):
        assert check(request(service=service), timeout=10).status == SERVING
    with pytest.raises(grpc.RpcError) as refused:
        check(request(service="another"), timeout=10)
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
    listed, request = method(channel, messages.HEALTH, "List")
    statuses = listed(request(), timeout=10).statuses
    assert {name: each.status for name, each in statuses.items()} == dict.fromkeys(
        ("", *messages.SERVICES), SERVING
    )


def test_a_watcher_learns_that_the_broker_stops(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with grpc.insecure_channel("{}:{}".format(*broker.address)) as channel:
            watch, request = method(channel, messages.HEALTH, "Watch", "unary_stream")
            stream = watch(request(service=messages.SERVICE), timeout=60)
            assert next(stream).status == SERVING
            broker.process.terminate()
            assert next(stream).status == NOT_SERVING
        assert broker.stop() == 0


def built(serialized: Iterable[bytes]) -> descriptor_pool.DescriptorPool:
    """Of files that are all that they need."""
    files = {file.name: file for file in map(descriptor_pb2.FileDescriptorProto.FromString, serialized)}
    pool = descriptor_pool.DescriptorPool()

    def add(name: str) -> None:
        file = files.pop(name, None)
        if file is not None:
            for other in file.dependency:
                add(other)
            pool.AddSerializedFile(file.SerializeToString())

    for name in list(files):
        add(name)
    return pool


@pytest.mark.parametrize("version", messages.REFLECTIONS)
def test_reflection_discloses_the_protocol(channel: grpc.Channel, version: str) -> None:
    """As grpcurl does: the services, the files of one, and a class made of them."""
    info, request = method(channel, version, "ServerReflectionInfo", "stream_stream")
    asked = [
        request(list_services=""),
        request(file_containing_symbol=messages.SERVICE),
        request(file_by_filename="definition.proto"),
        request(file_containing_symbol=f"{messages.SERVICE}.SendMessage"),
        request(all_extension_numbers_of_type="apache.rocketmq.v2.Message"),
        request(file_containing_symbol="no.such.Symbol"),
        request(file_by_filename="no/such.proto"),
        request(file_containing_extension={"containing_type": "apache.rocketmq.v2.Message"}),
        request(all_extension_numbers_of_type="no.such.Type"),
        request(),
    ]
    answers = list(info(iter(asked), timeout=20))
    assert [answer.original_request for answer in answers] == asked
    assert {each.name for each in answers[0].list_services_response.service} == set(messages.SERVICES)
    for answer in answers[1:4]:
        pool = built(answer.file_descriptor_response.file_descriptor_proto)
        assert pool.FindMessageTypeByName("apache.rocketmq.v2.Message").fields_by_name["body"].number == 4
    assert list(answers[4].all_extension_numbers_response.extension_number) == []
    assert [answer.error_response.error_code for answer in answers[5:]] == [5, 5, 5, 5, 12]


def test_requests_are_bounded(channel: grpc.Channel) -> None:
    check, request = method(channel, messages.HEALTH, "Check")
    most = BYTES_MAX - len(request(service="x" * 200).SerializeToString()) + 200
    for size, code in ((most, grpc.StatusCode.NOT_FOUND), (most + 1, grpc.StatusCode.RESOURCE_EXHAUSTED)):
        with pytest.raises(grpc.RpcError) as refused:
            check(request(service="x" * size), timeout=10)
        assert refused.value.code() == code


def test_answers_that_are_not_read_end_the_call(channel: grpc.Channel) -> None:
    info, request = method(channel, messages.REFLECTIONS[0], "ServerReflectionInfo", "stream_stream")
    asked = request(file_containing_symbol=messages.SERVICE)
    taken, before = [], -1
    call = info((taken.append(n) or asked for n in range(2000)), timeout=60)
    while before < len(
        taken
    ):  # requests are taken until the answers to them, which are not read, are too many
        before = len(taken)
        time.sleep(0.5)
    with pytest.raises(grpc.RpcError) as refused:
        for _ in call:
            pass
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
