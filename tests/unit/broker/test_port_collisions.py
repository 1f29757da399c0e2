"""Two options of ours that need the same port: the start ends with a sentence that names both."""

from typing import Any

import pytest

from firearrow.broker.app.ports import check_collisions
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options

HOST = "127.0.0.1"
VIP = "the VIP port, two below --listen"
REPLICATION = "the replication port, one above --listen (haListenPort sets another)"
PROM = {"metrics_exporter": "PROM", "metrics_host": HOST}


@pytest.mark.parametrize(
    ("options", "naming", "port", "names"),
    [
        ({"listen_port": 9876}, (HOST, 9876), 9876, ("--listen", "--namesrv-listen")),
        ({"listen_port": 9878}, (HOST, 9876), 9876, (VIP, "--namesrv-listen")),
        ({"listen_port": 9878}, ("0.0.0.0", 9876), 9876, (VIP, "--namesrv-listen")),
        ({"listen_port": 10911, "metrics_port": 10911, **PROM}, None, 10911, ("--listen", "--http")),
        ({"listen_port": 10911, "metrics_port": 10909, **PROM}, None, 10909, (VIP, "--http")),
        ({"metrics_port": 9876, **PROM}, (HOST, 9876), 9876, ("--namesrv-listen", "--http")),
        ({"listen_port": 10911, "ha_port": 9876}, (HOST, 9876), 9876, ("--namesrv-listen", "haListenPort")),
        (
            {"listen_port": 9875, "broker_role": "SYNC_MASTER"},
            (HOST, 9876),
            9876,
            ("--namesrv-listen", REPLICATION),
        ),
    ],
)
def test_a_port_that_is_needed_twice(
    options: dict[str, Any], naming: tuple[str, int] | None, port: int, names: tuple[str, str]
) -> None:
    with pytest.raises(StartError) as raised:
        check_collisions(Options(broker_name="b", **options), naming)
    one, other = names
    assert str(raised.value) == (
        f"port {port} is needed twice, by {one} and by {other}: give one of them another port"
    )


@pytest.mark.parametrize(
    ("options", "naming"),
    [
        ({}, (HOST, 9876)),
        ({"listen_port": 0, "metrics_port": 0, **PROM}, (HOST, 0)),
        ({"listen_port": 0, "broker_role": "SYNC_MASTER"}, (HOST, 0)),
        ({"listen_port": 9876}, ("127.0.0.2", 9876)),
        ({"listen_port": 9875}, (HOST, 9876)),
        ({"metrics_port": 10911}, (HOST, 9876)),
        ({"listen_port": 9875, "broker_role": "SLAVE", "broker_id": 1}, (HOST, 9876)),
    ],
)
def test_ports_that_do_not_collide(options: dict[str, Any], naming: tuple[str, int]) -> None:
    check_collisions(Options(broker_name="b", **options), naming)
