"""The table of the outbox."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("pk", models.CompositePrimaryKey("producer_group", "transaction_id", blank=True, editable=False,
                                                  primary_key=True, serialize=False)),
                ("producer_group", models.CharField(max_length=255)),
                ("transaction_id", models.CharField(max_length=64)),
                ("state", models.CharField(max_length=1)),
                ("created_s", models.BigIntegerField(db_index=True)),
            ],
            options={"db_table": "firearrow_outbox"},
        ),
    ]  # fmt: skip
