"""OpenTelemetry for the client: `RocketMQInstrumentor().instrument()`, or `opentelemetry-instrument program`.

Every producer and consumer of the process is instrumented, also those that run already.

- `instrumentor`: RocketMQInstrumentor, the hook that makes spans and metrics, and `context_of` a received message
- `attributes`: attributes of messages and calls by the semantic conventions of messaging
"""

from firearrow.client.integrations.opentelemetry.instrumentor import RocketMQInstrumentor, context_of

__all__ = ["RocketMQInstrumentor", "context_of"]
__dir__ = __all__.copy
