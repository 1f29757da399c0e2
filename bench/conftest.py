"""Benchmarks are on here, though the tests have them off, unless the command line says `--benchmark-disable`.

A whole run (`pytest bench --benchmark-only`) appends a line to bench/results.ndjson: median nanoseconds of an operation
each; a part of it, or one with `--no-record`, does not. A benchmark that does more than one operation a call says so
in `extra_info["operations"]`.
"""

import pytest

from bench import results


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-record", action="store_true", help="do not append to bench/results.ndjson")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if "--benchmark-disable" not in config.invocation_params.args:
        config.option.benchmark_disable = False


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    of = getattr(config, "_benchmarksession", None)
    whole = "bench" in [argument.rstrip("/") for argument in config.args] and not config.option.keyword
    if of is None or of.disabled or not whole or config.getoption("--no-record"):
        return
    micro = {
        bench.fullname.removeprefix("bench/").replace(".py::", ": "): results.rounded(
            bench.stats.median * 1e9 / bench.extra_info.get("operations", 1)
        )
        for bench in of.benchmarks
        if bench.stats.rounds
    }
    if micro:
        results.append("micro", micro=micro)
