"""Brokers, transports and middlewares for frameworks, each of which needs the extra of its name.

- `django`: the settings FIREARROW, handlers, the producer of a process, and the command `consume`
- `dramatiq`: RocketMQBroker for dramatiq
- `kombu`: a transport for kombu and Celery
- `faststream`: RocketMQBroker for FastStream
- `fastapi`: producers and consumers that live as long as a FastAPI application, and its readiness
- `opentelemetry`: spans and metrics of the client's calls, by the semantic conventions
- `outbox`: messages that are delivered if, and only if, a SQL transaction commits: SQLAlchemy, Django
- `settlement`: Settlement, which acknowledges popped messages, returns them, or makes them dead letters
- `task_consumer`: TaskConsumer, which receives tasks, renews them while they run, and settles each
- `task_producer`: TaskProducer, which creates topics and sends tasks, also ones that are due in weeks
- `task_session`: TaskSession, which sends and receives for several queues, also without `await`
- `taskiq`: RocketMQBroker for taskiq
- `topic_names`: names of queues as names of topics
"""
