"""OutboxRow: the table of the outbox, the same that SQLAlchemy's outbox uses."""

from django.db import models

from firearrow.client.integrations.outbox.decision import GROUP_CHARS, ID_CHARS, TABLE


class OutboxRow(models.Model):
    pk = models.CompositePrimaryKey("producer_group", "transaction_id")
    producer_group = models.CharField(max_length=GROUP_CHARS)
    transaction_id = models.CharField(max_length=ID_CHARS)
    state = models.CharField(max_length=1)
    created_s = models.BigIntegerField(db_index=True)

    class Meta:
        app_label = "firearrow"
        db_table = TABLE
