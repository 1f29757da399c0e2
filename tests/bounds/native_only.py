"""Plugin of pytest for sanitize.py: leaves out tests that start a JVM or Go, into which no sanitizer can be loaded."""

import pytest


def needs_another_runtime(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("interop") is not None or any(
        name == "spark" or "java" in name for name in fixtures
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if needs_another_runtime(item)]
    items[:] = [item for item in items if not needs_another_runtime(item)]
    config.hook.pytest_deselected(items=left_out)
