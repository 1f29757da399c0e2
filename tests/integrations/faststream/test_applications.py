"""Whole applications: the example, FastStream's command, FastAPI, AsyncAPI, telemetry, metrics, security."""

import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from faststream import TestApp
from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256
from faststream.specification import AsyncAPI
from httpx import ASGITransport, AsyncClient
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from firearrow.client import BrokerError, ClientOptions, Credentials, TlsOptions
from firearrow.client.integrations.faststream import Consumption, RocketMQBroker, TestRocketMQBroker
from firearrow.client.integrations.faststream.configs import MessageOptions
from firearrow.client.integrations.faststream.fastapi import RocketMQMessage
from firearrow.client.integrations.faststream.fastapi import RocketMQRouter as FastAPIRouter
from firearrow.client.integrations.faststream.opentelemetry import RocketMQTelemetryMiddleware
from firearrow.client.integrations.faststream.prometheus import RocketMQPrometheusMiddleware
from tests.auth.secured import ROOT as ROOT_USER
from tests.auth.secured import ROOT_PASSWORD, options
from tests.client.conftest import unique
from tests.integrations.faststream.conftest import started
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles, settings
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "faststream"
PAGE = ROOT / "docs/integrations/FASTSTREAM.md"


class Order(BaseModel):
    name: str
    count: int = 1


# ---- FastStream's command ----


def command(name_server: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "faststream", *words],
        cwd=folder,
        env=os.environ | {"NAMESRV_ADDR": name_server, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_example(name_server: str) -> None:
    with command(name_server, EXAMPLE, "run", "shop:app") as program:
        output, _ = program.communicate(timeout=120)
    assert program.returncode == 0, output
    assert "['ann pays 20', 'ann pays 60', 'bob pays 70']" in output
    assert "is a dead letter" not in output


APPLICATION = """
import os
from faststream import FastStream
from firearrow.client.integrations.faststream import RocketMQBroker
broker = RocketMQBroker(logger=None)
app = FastStream(broker, logger=None)
@broker.subscriber({topic!r})
async def handle(body: str) -> None:
    with open({out!r}, "a") as out:
        print(os.getpid(), body, file=out)
@app.after_startup
async def tell() -> None:
    with open({out!r}, "a") as out:
        print(os.getpid(), "{version}", file=out)
"""


def lines(out: Path) -> list[list[str]]:
    return [line.split() for line in out.read_text().splitlines()] if out.exists() else []


@pytest.mark.parametrize("words", [("--workers", "2"), ("--reload",)], ids=["workers", "reload"])
async def test_the_command(
    broker: RocketMQBroker, name_server: str, topics: Topics, tmp_path: Path, words: tuple[str, ...]
) -> None:
    topic, out, source = topics(), tmp_path / "out.txt", tmp_path / "service.py"
    values = {"topic": topic, "out": str(out)}
    source.write_text(APPLICATION.format(**values, version="first"))
    with command(name_server, tmp_path, "run", "service:app", *words) as program:
        try:
            processes = 2 if "--workers" in words else 1
            await eventually_async(lambda: len(lines(out)) == processes, 60)
            if "--reload" in words:
                source.write_text(APPLICATION.format(**values, version="second"))
                await eventually_async(lambda: lines(out)[-1][1] == "second", 60)
            await broker.connect()
            for number in range(10):
                await broker.publish(f"message-{number}", topic)
            await eventually_async(lambda: len(lines(out)) == 12, 60)
            assert len({body for _, body in lines(out)} & {f"message-{n}" for n in range(10)}) == 10
        finally:
            program.send_signal(signal.SIGTERM)
            output, _ = program.communicate(timeout=60)
            await broker.stop()
    assert "Traceback" not in output, output


# ---- FastAPI ----


async def test_fastapi_serves_routes_and_messages(name_server: str, topics: Topics) -> None:
    topic, done, found = topics(), topics(), []
    router = FastAPIRouter(name_server, group=unique("api"), logger=None, prefix="/shop")

    def tenant() -> str:
        return "blue"

    @router.subscriber(topic)
    @router.publisher(done, tags="done")
    async def handle(order: Order, message: RocketMQMessage, of: Annotated[str, Depends(tenant)]) -> str:
        return f"{order.name} of {of} {message.headers['by']}"

    @router.subscriber(done)
    async def end(body: str) -> None:
        found.append(body)

    @router.post("/orders")
    async def create(order: Order) -> dict[str, str]:
        result = await router.broker.publish(order, topic, headers={"by": "http"})
        return {"id": result.message_id}

    app = FastAPI()
    app.include_router(router)
    async with app.router.lifespan_context(app):
        async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
            answer = await client.post("/shop/orders", json={"name": "book"})
            document = await client.get("/shop/asyncapi.json")
            page = await client.get("/shop/asyncapi")
        assert answer.status_code == 200
        assert answer.json()["id"]
        await eventually_async(lambda: found)
    assert found == ["book of blue http"]
    assert topic in document.text
    assert page.status_code == 200


async def test_fastapi_in_memory() -> None:
    router = FastAPIRouter("nowhere:1", logger=None)

    @router.subscriber("sums")
    async def add(first: int, second: int) -> int:
        return first + second

    async with TestRocketMQBroker(router.broker) as broker:
        reply = await broker.request({"first": 1, "second": 2}, "sums")
        assert await reply.decode() == 3


# ---- documents ----


@pytest.mark.parametrize("version", ["3.0.0", "2.6.0"])
def test_the_asyncapi_document(version: str) -> None:
    security = SASLPlaintext("key", "secret", use_ssl=True)
    broker = RocketMQBroker(
        ["one:9876", "two:9876"], security=security, description="the shop's", logger=None
    )

    @broker.subscriber("orders", group="shop", tags="new", title="NewOrders")
    @broker.publisher("invoices", description="what is to be paid")
    async def handle(order: Order) -> int:
        """Handles new orders."""
        return order.count

    document = AsyncAPI(broker, schema_version=version).to_specification().to_jsonable()
    servers, channels = document["servers"], document["channels"]
    assert {server["protocol"] for server in servers.values()} == {"rocketmq-secure"}
    assert len(servers) == 2
    assert "user-password" in document["components"]["securitySchemes"]
    assert "secret" not in str(document)
    assert channels["NewOrders"]["description"] == "Handles new orders."
    assert any("invoices" in name for name in channels)
    assert {"name", "count"} == set(document["components"]["schemas"]["Order"]["properties"])
    if version == "3.0.0":
        assert {channel["address"] for channel in channels.values()} == {"orders", "invoices"}


def test_the_command_writes_the_document(tmp_path: Path) -> None:
    out = tmp_path / "asyncapi.json"
    with command("nowhere:1", EXAMPLE, "docs", "gen", "shop:app", "--out", str(out)) as program:
        output, _ = program.communicate(timeout=60)
    assert program.returncode == 0, output
    channels = json.loads(out.read_text())["channels"].values()
    assert {channel["address"] for channel in channels} == {"shop-prices", "shop-orders", "shop-invoices"}


async def test_the_program_of_the_page() -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    module: dict[str, Any] = {}
    exec(program, module)
    async with TestRocketMQBroker(module["broker"]), TestApp(module["app"]):
        await module["handle"].assert_called_once_with(module["Order"](name="book"))


def test_the_page_names_every_option() -> None:
    text = PAGE.read_text("utf-8")
    names = {field.name for field in fields(Consumption)} | MessageOptions.__annotations__.keys()
    assert not [name for name in names if f"`{name}`" not in text]


# ---- middlewares ----


async def test_spans_follow_a_message_through_its_handlers(name_server: str, topics: Topics) -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    middleware = RocketMQTelemetryMiddleware(
        tracer_provider=provider, meter_provider=MeterProvider(metric_readers=[reader])
    )
    broker = RocketMQBroker(name_server, group=unique("app"), middlewares=[middleware], logger=None)
    first, second, found = topics(), topics(), []

    @broker.subscriber(first)
    @broker.publisher(second)
    async def handle(body: str) -> str:
        return body

    @broker.subscriber(second, batch=True)
    async def end(bodies: list[str]) -> None:
        found.extend(bodies)

    async with started(broker):
        await broker.publish("x", first, tags="new", keys=["k"], sharding_key="s")
        await eventually_async(lambda: found)
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) <= 2  # a batch has a trace of its own, with a link
    names = {span.name for span in spans}
    assert {f"{first} create", f"{first} publish", f"{first} process", f"{second} publish"} <= names
    process = next(span for span in spans if span.name == f"{first} process")
    attributes = dict(process.attributes or {})
    assert attributes["messaging.system"] == "rocketmq"
    assert attributes["messaging.rocketmq.message.tag"] == "new"
    assert attributes["messaging.rocketmq.message.keys"] == ("k",)
    assert attributes["messaging.rocketmq.message.group"] == "s"
    assert reader.get_metrics_data() is not None


async def test_metrics_count_messages_and_failures(name_server: str, topics: Topics) -> None:
    registry = CollectorRegistry()
    middleware = RocketMQPrometheusMiddleware(registry=registry, app_name="shop")
    broker = RocketMQBroker(name_server, group=unique("app"), middlewares=[middleware], logger=None)
    topic, came = topics(), 0

    @broker.subscriber(topic, retry_delay_s=0.2)
    async def handle(body: str) -> None:
        nonlocal came
        came += 1
        if came == 1:
            raise ValueError("fails once")

    async with started(broker):
        await broker.publish("hello", topic)
        await eventually_async(lambda: came == 2)
    labels = {"app_name": "shop", "broker": "rocketmq"}
    of_handler, of_target = labels | {"handler": topic}, labels | {"destination": topic}
    value = registry.get_sample_value
    assert value("faststream_received_messages_total", of_handler) == 2
    assert value("faststream_received_messages_size_bytes_sum", of_handler) == 10
    assert value("faststream_published_messages_total", of_target | {"status": "success"}) == 1
    failed = of_handler | {"exception_type": "ValueError"}
    assert value("faststream_received_processed_messages_exceptions_total", failed) == 1


# ---- security ----


def test_security_becomes_a_login_and_tls() -> None:
    def client(security: BaseSecurity | None, **options: Any) -> ClientOptions:
        broker = RocketMQBroker("one:9876", security=security, logger=None, **options)
        return broker.config.broker_config.client  # type: ignore[no-any-return, attr-defined]

    assert client(None).credentials is None
    secured = client(SASLPlaintext("key", "secret", use_ssl=True))
    assert (secured.credentials, secured.tls) == (Credentials("key", "secret"), True)
    own = TlsOptions(authority="authority.pem")
    assert client(BaseSecurity(use_ssl=True), client=ClientOptions(tls=own)).tls is own
    with pytest.raises(SetupError, match="SASLScram256 is not supported"):
        client(SASLScram256("key", "secret"))


def test_the_name_server_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def url(*arguments: Any, **options: Any) -> list[str]:
        return RocketMQBroker(*arguments, logger=None, **options).specification.url

    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert url() == ["localhost:9876"]
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert url() == ["a:1", "b:2"]
    assert url("c:3; d:4") == ["c:3", "d:4"]
    assert url(["c:3"], client=ClientOptions(name_server="e:5")) == ["c:3"]
    assert url(client=ClientOptions(name_server="e:5")) == ["e:5"]


async def test_a_login_over_tls(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    arguments = (*options(), *files.arguments, *settings(server_mode="enforcing", server_authClient="false"))
    with BrokerProcess(tmp_path / "store", *arguments) as process:
        assert process.name_server is not None
        name_server = "{}:{}".format(*process.name_server)
        context = ssl.create_default_context(cafile=files.path("authority.pem"))

        def application(password: str) -> RocketMQBroker:
            security = SASLPlaintext(ROOT_USER, password, ssl_context=context)
            return RocketMQBroker(name_server, security=security, logger=None)

        broker, found = application(ROOT_PASSWORD), list[str]()

        @broker.subscriber("secrets")
        async def handle(body: str) -> None:
            found.append(body)

        async with started(broker):
            assert await broker.ping(timeout=20)
            await broker.publish("hello", "secrets")
            await eventually_async(lambda: found)
        wrong = application("wrong")
        async with wrong:
            with pytest.raises(BrokerError, match="check signature failed"):
                await wrong.publish("hello", "secrets")


# ---- what others pay ----


def test_the_client_does_not_import_faststream() -> None:
    program = (
        "import sys, firearrow.client.public, firearrow.client.blocking; print('faststream' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_faststream_the_error_names_the_extra() -> None:
    program = "import sys; sys.modules['faststream'] = None\nimport firearrow.client.integrations.faststream"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(
        "ImportError: firearrow.client.integrations.faststream needs FastStream: pip install 'firearrow[faststream]'"
    )
