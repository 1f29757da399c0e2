"""Creates, changes, deletes and lists subscription groups, and forbids them topics. Loop thread.

Request codes 200, 225, 207, 201, 352, 353.
"""

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps, loads_body
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.attributes import InvalidAttribute
from firearrow.broker.tables.groups import GroupConfig, GroupTable, InvalidGroup
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.paging import page, too_large
from firearrow.broker.tables.topics import InvalidTopic, TopicTable

LIST_MAX = 5_000
"""Groups of one UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""


class GroupsHandler:
    def __init__(
        self, topics: TopicTable, groups: GroupTable, offsets: ConsumerOffsets, config: Config, stats: Stats
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._config = config
        self._stats = stats

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_config,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            configs = [GroupConfig.from_object(loads_body(request.body))]
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return self._apply(request, configs)

    def update_list(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Create or change all groups, or none."""
        try:
            body = json_fields.members(loads_body(request.body), "body")
            raw = json_fields.items(body.get("groupConfigList"), "groupConfigList")
            if len(raw) > LIST_MAX:
                raise ValueError(f"groupConfigList of {len(raw)} groups, at most {LIST_MAX}")
            configs = [GroupConfig.from_object(value) for value in raw]
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return self._apply(request, configs)

    def delete(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """No error if the group does not exist. 4.9 sends `removeOffset` for `cleanOffset`."""
        group = request.text("groupName")
        self._groups.delete(group)
        self._stats.forget_group(group)
        if request.boolean_or("cleanOffset", False) or request.boolean_or("removeOffset", False):
            self._offsets.remove_group(group)
        return request.answer()

    def get_all(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """All groups, or a page if the request has paging fields."""
        groups, options = self._groups, self._config.options
        names: list[str] | None = None
        if options.split_metadata and request.ext.keys() & {"dataVersion", "groupSeq", "maxGroupNum"}:
            seen, begin = request.text_or("dataVersion", ""), request.integer_or("groupSeq", 0, 32)
            size = options.split_metadata_size
            count_max = min(size, request.integer_or("maxGroupNum", size, 32))
            names = page(groups, groups.version, seen, begin, count_max)
        body = dumps(groups.to_object(names))
        fault = too_large(body)
        if fault is not None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, fault)
        return request.answer(ext={"totalGroupNum": str(len(groups))}, body=body)

    def get_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Creates the group if automatic creation is on."""
        config = self._groups.find(request.text("group"))
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.answer(body=dumps(config.to_object()))

    def forbid(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Set, and return, whether a group may read a topic; without `readable` only return it."""
        group, topic = request.text("group"), request.text("topic")
        fault = name_rules.group_fault(group) or name_rules.topic_fault(topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if "readable" in request.ext:
            try:
                self._groups.forbid_reading(group, topic, not request.boolean_or("readable", True))
            except InvalidGroup as error:
                raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        readable = self._groups.readable(group, topic)
        return request.answer(remark="", body=dumps({"group": group, "readable": readable, "topic": topic}))

    def _apply(self, request: RemotingCommand, configs: list[GroupConfig]) -> RemotingCommand:
        try:
            self._groups.update_all(configs)
            for (
                config
            ) in configs:  # Apache's retry topic keeps its queues, and retries go to queues that none reads
                self._topics.expand(name_rules.retry_topic(config.name), config.retry_queues)
        except (InvalidGroup, InvalidTopic) as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        except InvalidAttribute as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return request.answer()
