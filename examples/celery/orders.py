"""Sends tasks to the workers of shop.py: at once, later, and one that is revoked before it is due."""

from celery import group
from celery.exceptions import TaskRevokedError
from shop import price, remind, total

TIMEOUT_S = 60

prices = group(price.s("book", 2), price.s("pen", 10), price.s("lamp", 1))().get(timeout=TIMEOUT_S)
print("prices", prices, "total", total.delay(prices).get(timeout=TIMEOUT_S))

# the broker keeps it until it is due: no worker holds it meanwhile
print(remind.apply_async(("Ann",), countdown=2).get(timeout=TIMEOUT_S))

# the broker gives it back, if it has recallMessageEnable=true
tomorrow = remind.apply_async(("Bob",), countdown=86_400)
tomorrow.revoke()
try:
    print(tomorrow.get(timeout=10))
except TaskRevokedError:
    print("Bob's reminder is revoked")
