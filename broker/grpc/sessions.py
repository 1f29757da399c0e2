"""Telemetry, Heartbeat and NotifyClientTermination: clients register, stay and leave. Loop thread.

A client's settings are the heartbeat of a client of remoting, and are registered as one.
"""

from collections.abc import Iterable

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.grpc import messages, settings
from firearrow.broker.grpc.call import Call, Then
from firearrow.broker.grpc.client import GrpcClient
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.messages import ProtoMessage
from firearrow.broker.grpc.statuses import GrpcRefusal, expect, group_name

INVALID_ARGUMENT, INTERNAL = 3, 13
FAILED = "process client telemetryCommand failed."


class SessionMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        self._groups = context.tables.groups

    # ---- Telemetry ----

    def telemetry(self, call: Call, command: ProtoMessage) -> None:
        kind = command.WhichOneof("command")
        if kind in ("thread_stack_trace", "verify_message_result"):
            if call.client.telemetry is call.stream:  # another one may name the client
                call.client.answered(command)
            return None
        if kind != "settings":
            return None
        try:
            return self._settings(call, command.settings)
        except settings.WrongClientType as error:
            return call.stream.finish(INTERNAL, f"{FAILED} {error}")
        except GrpcRefusal as refusal:
            if refusal.code == "UNAUTHORIZED":
                raise
            return call.stream.finish(INVALID_ARGUMENT, f"{FAILED} {refusal.text}")

    def telemetry_ended(self, call: Call) -> None:
        """The stream ended; the client may open another one."""
        if call.client.telemetry is call.stream:
            call.client.telemetry = None

    def _settings(self, call: Call, given: ProtoMessage) -> None:
        if not given.HasField("publishing") and not given.HasField("subscription"):
            text = "there is no publishing or subscription data in settings"
            return call.stream.finish(INVALID_ARGUMENT, text)
        settings.check(given)
        for topic in given.publishing.topics:
            call.check(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, {"b": topic.name}))
        call.check(_of_group(given.subscription.group.name))
        settings.check_consumer(given, self._groups)
        client = call.client
        body = settings.heartbeat(given, client.client_id, self._context.clock.now_ms())

        def registered(answer: RemotingCommand) -> None:
            expect(answer)
            kept = settings.ClientSettings.of(given)
            if client.settings is not None:
                self._leave(client, client.settings.groups - kept.groups)
            client.settings, client.heartbeat, client.telemetry = kept, body, call.stream
            group = self._groups.get(given.subscription.group.name)
            reply = messages.TelemetryCommand(status=messages.status("OK"))
            reply.settings.CopyFrom(settings.completed(given, group, self._context.config.options))
            call.send(reply)

        return self._register(call, body, registered)

    def _leave(self, client: GrpcClient, groups: Iterable[tuple[str, str]]) -> None:
        """The client has left these: its heartbeats do not name them any more, for whose end it would be taken."""
        for kind, name in groups:
            request = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, {kind: name})
            client.make(self._context.dispatch, request, lambda answer: None)

    def _register(self, call: Call, body: bytes, then: Then) -> None:
        request = RemotingCommand.request(RequestCode.HEART_BEAT, {}, body)
        call.check(request)
        if not call.client.is_online:
            raise GrpcRefusal("TOO_MANY_REQUESTS", "the connection has too many clients: use another one")
        call.client.make(self._context.dispatch, request, lambda answer: call.run(lambda: then(answer)))

    # ---- Heartbeat ----

    def heartbeat(self, call: Call, request: ProtoMessage) -> None:
        call.check(_of_group(request.group.name))
        if call.client.check_settings().is_consumer:
            group_name(request.group.name)

        def registered(answer: RemotingCommand) -> None:
            expect(answer)
            call.finish(call.method.response(status=messages.status("OK")))

        self._register(call, call.client.heartbeat, registered)

    # ---- NotifyClientTermination ----

    def terminate(self, call: Call, request: ProtoMessage) -> None:
        call.check(_of_group(request.group.name))
        client = call.client
        client.check_settings()
        self._context.renewals.give_back(client)
        call.finish(call.method.response(status=messages.status("OK")))
        client.close()


def _of_group(name: str) -> RemotingCommand:
    """A request that needs what a member of the group may do; without a group, a login alone."""
    return RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, {"consumerGroup": name})
