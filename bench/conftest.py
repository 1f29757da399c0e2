"""Enables benchmarks, which the tests disable, unless the command line contains `--benchmark-disable`.

A full run (`pytest bench --benchmark-only`) appends a line to bench/results.ndjson: the median nanoseconds
per operation of each benchmark; a partial run, or one with `--no-record`, does not. A benchmark with several
operations per call sets `extra_info["operations"]`.
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
