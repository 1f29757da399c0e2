"""The application for INSTALLED_APPS."""

from django.apps import AppConfig


class FireArrowConfig(AppConfig):
    name = "firearrow.client.integrations.django"
    label = "firearrow"
    verbose_name = "FireArrow"
    default_auto_field = "django.db.models.BigAutoField"
