"""Requests of operators to consumers: running info, statistics, offset resets.

- `inspection`: handles the requests of operators to consumers: 220, 221 and 307
- `reset_offsets`: resets the offsets of a group while its consumers run (220)
- `running_info`: the running info of a consumer (307, `mqadmin consumerStatus`)
- `stats`: pull and handler statistics by topic, of the last minute and the last hour
"""
