"""Settings of the shop. SQLite is for this example; the outbox is tested with PostgreSQL."""

import os
from pathlib import Path

from firearrow.client import ConsumeFromWhere

SECRET_KEY = "example"
DEBUG = os.environ.get("DEBUG") == "1"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "orders.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["orders", "firearrow.client.integrations.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", Path(__file__).with_name("shop.sqlite3")),
        "OPTIONS": {"timeout": 5},
    }
}
FIREARROW = {
    "PRODUCER_GROUP": "example-django-shop",
    "CHECKER": "firearrow.client.integrations.outbox.django.check",
    "CONSUMER": {"from_where": ConsumeFromWhere.FIRST_OFFSET, "batch_size": 16},
}
