"""Sends tasks to the workers of shop.py."""

import asyncio

from shop import bill, broker, charge


async def main() -> None:
    await broker.startup()
    for number, euros in enumerate((9.9, 25, 3.5), start=1):
        await bill.kiq(f"order {number}", euros)
    await charge.kiq("order 1")
    await broker.shutdown()
    print("4 tasks sent")


asyncio.run(main())
