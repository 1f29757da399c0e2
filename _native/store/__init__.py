"""Bytes on the disk: Apache RocketMQ's store folder. Knows no socket and no asyncio."""
