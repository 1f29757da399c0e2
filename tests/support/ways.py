"""Tests that cannot hold in a way of FIREARROW_TEST_WAY, by name, with the reason for which they are skipped there."""

import os

import pytest

CHOSEN = os.environ.get("FIREARROW_TEST_WAY", "engine")

PYTHON_CLIENT = "its Python clients have no user"
READ_BEFORE = "rules read the body before its handler does"
CANNOT_HOLD: dict[str, dict[str, str]] = {
    "users": {
        "tests/integration/test_advertise.py::test_clients_reach_a_broker_whose_ports_are_mapped": PYTHON_CLIENT,
        "tests/integration/test_advertise.py::test_other_name_servers_get_the_advertised_address": PYTHON_CLIENT,
        "tests/integration/test_client_examples.py::test_the_programs_print_the_documented_output": PYTHON_CLIENT,
        "tests/integration/test_readme.py::test_the_python_clients_run": PYTHON_CLIENT,
        "tests/integration/test_readme.py::test_the_store_is_read_while_the_broker_runs": PYTHON_CLIENT,
        'tests/integration/test_pop.py::test_refused_batches[{"acks":[1]}-29]': READ_BEFORE,
        "tests/integration/test_tls.py::test_an_open_port_is_a_warning_until_it_has_tls_and_users": (
            "there is no broker without users"
        ),
    },
}


def skip_what_cannot_hold(way: str, items: list[pytest.Item]) -> None:
    reasons = CANNOT_HOLD.get(way, {})
    for item in items:
        if reason := reasons.get(item.nodeid):
            item.add_marker(pytest.mark.skip(reason=f"in the way {way}: {reason}"))
