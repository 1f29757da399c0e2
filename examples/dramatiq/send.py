"""Sends messages to the actors of shop.py."""

from shop import bill, broker, charge, poison

for number, euros in enumerate((9.9, 25, 3.5), start=1):
    bill.send(f"order {number}", euros)
charge.send("order 1")
poison.send()
broker.close()
print("5 messages sent")
