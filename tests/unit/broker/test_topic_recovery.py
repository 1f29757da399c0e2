"""What a start reports about the topics of a store."""

from pathlib import Path

import pytest

from firearrow.broker.services.topic_recovery import report_static_topics


def test_static_topics_of_apache_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "topicQueueMapping.json"
    queue = b'{0:[{"bname":"a","endOffset":-1,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0}]}'
    report_static_topics(str(tmp_path))
    path.write_bytes(b'{"dataVersion":{},"topicQueueMappingInfoMap":{}}')
    report_static_topics(str(tmp_path))
    assert caplog.messages == []
    path.write_bytes(b'{"topicQueueMappingInfoMap":{"Fixed":{"topic":"Fixed","hostedQueues":%b}}}' % queue)
    report_static_topics(str(tmp_path))
    path.write_bytes(b"{")
    report_static_topics(str(tmp_path))
    assert "Fixed" in caplog.messages[0]
    assert "cannot be read" in caplog.messages[1]
