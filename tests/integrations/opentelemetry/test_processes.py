"""Instrumentation by the command `opentelemetry-instrument`, a trace through two processes, and life without it."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.instrumentation")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from tests.integrations.conftest import unique

ROOT = Path(__file__).parents[3]
GROUP = "opentelemetry_instrumentor"
SEND = """
import sys
from opentelemetry import trace
from firearrow.client import Message
from firearrow.client.blocking import Producer
with trace.get_tracer("web").start_as_current_span("order"), Producer("web") as producer:
    producer.send(Message(sys.argv[1], b"book"))
"""
RECEIVE = """
import sys
from firearrow.client import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.blocking import PushConsumer
consumer = PushConsumer(sys.argv[2], options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET))

@consumer.subscribe(sys.argv[1])
def handle(messages):
    consumer.stop()

consumer.run()
"""


def run(program: str, *arguments: str, name_server: str, folder: Path) -> list[dict[str, Any]]:
    """The spans that the program prints."""
    script = folder / "program.py"
    script.write_text(program)
    environment = os.environ | {
        "NAMESRV_ADDR": name_server,
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "PYTHONPATH": str(folder),
    }
    command = [
        str(Path(sys.executable).with_name("opentelemetry-instrument")),
        sys.executable,
        str(script),
        *arguments,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    spans, decoder, text = [], json.JSONDecoder(), done.stdout.strip()
    while text:
        span, end = decoder.raw_decode(text)
        spans.append(span)
        text = text[end:].lstrip()
    return spans


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the entry point that pyproject.toml declares, as an installed wheel has it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    folder = tmp_path / "firearrow_of_this_clone-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: firearrow-of-this-clone\nVersion: 0.1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in declared.items())
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
    return tmp_path


def test_a_trace_through_two_processes(name_server: str, topic: str, installed: Path) -> None:
    order, send = sorted(
        run(SEND, topic, name_server=name_server, folder=installed), key=lambda span: span["name"]
    )
    [process] = run(RECEIVE, topic, unique("group"), name_server=name_server, folder=installed)
    assert [order["name"], send["name"], process["name"]] == ["order", f"send {topic}", f"process {topic}"]
    assert send["parent_id"] == order["context"]["span_id"]
    assert process["parent_id"] == send["context"]["span_id"]
    assert len({span["context"]["trace_id"] for span in (order, send, process)}) == 1


def test_the_entry_point_is_an_instrumentor() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    [value] = declared.values()
    assert issubclass(EntryPoint("rocketmq", value, GROUP).load(), BaseInstrumentor)
