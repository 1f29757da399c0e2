"""kombu's and Celery's own integration tests on this transport: `python -m tests.integrations.kombu.upstream`.

- `kombu_cases`: kombu's tests with connections of this transport
- `left_out`: the tests that do not fit, each with the reason; a plugin of pytest
"""
