"""A Django application: `"firearrow.client.integrations.django"` in INSTALLED_APPS, settings in FIREARROW.

- `consumers`: `handler`, the decorator of functions that the command `consume` calls, and the consumers they make
- `settings`: the settings FIREARROW, and `producer()`, that of the process
- `apps`, `models`, `migrations`: the application with the table of the outbox
- `management/commands/consume`: `manage.py consume`
"""

from firearrow.client.integrations.django.consumers import handler
from firearrow.client.integrations.django.settings import producer

__all__ = ["handler", "producer"]
__dir__ = __all__.copy
