"""POST /orders/ARTICLE."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from firearrow.client import Message
from firearrow.client.integrations.outbox.django import send
from orders.models import Order


@csrf_exempt
@require_POST
def place(request: HttpRequest, article: str) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(article=article)
        send(Message("example-django-orders", str(order.pk).encode(), tags="new"))
        if article == "sold-out":
            transaction.set_rollback(True)
            return JsonResponse({"error": "sold out"}, status=409)
    return JsonResponse({"order": order.pk})
