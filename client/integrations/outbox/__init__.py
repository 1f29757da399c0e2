"""Messages that are delivered if, and only if, a SQL transaction commits.

RocketMQ's transaction is tied to the SQL transaction by a row that both share: see `decision`.

- `decision`: the rule by which a broker's check is answered from the table
- `sqlalchemy`: Outbox and AsyncOutbox for SQLAlchemy
- `django`: Outbox for Django
"""
