"""What `manage.py consume` calls. A message may come twice: the mail's key is the order."""

from collections.abc import Sequence

from firearrow.client import ReceivedMessage
from firearrow.client.integrations.django import handler
from orders.models import Mail, Order


@handler("example-django-orders", group="example-django-mail", tags="new")
def send_mail(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        order = Order.objects.get(pk=int(message.body))
        _, is_new = Mail.objects.get_or_create(order=order)
        if is_new:
            print(f"mail: your {order.article} is on its way", flush=True)
