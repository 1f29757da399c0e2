"""Reflection: `grpc.reflection.v1.ServerReflection` and v1alpha, by which grpcurl and the like learn the protocol. They
disclose the services and their descriptors, which are Apache's and gRPC's, and nothing of the broker. Loop thread.
"""

from typing import Any

from firearrow.broker.grpc import messages
from firearrow.broker.grpc.messages import ProtoMessage
from firearrow.broker.grpc.service_call import NOT_FOUND, ServiceCall, ServiceMethod

UNIMPLEMENTED = 12


def methods() -> dict[str, ServiceMethod]:
    """By their paths."""
    name = "ServerReflectionInfo"
    return {
        f"/{service}/{name}": ServiceMethod(answer, *messages.method_classes(name, service), streams=True)
        for service in messages.REFLECTIONS
    }


def answer(call: ServiceCall, request: ProtoMessage) -> None:
    response = call.response(valid_host=request.host)
    response.original_request.CopyFrom(request)
    asked = request.WhichOneof("message_request")
    if asked == "list_services":
        for name in messages.SERVICES:
            response.list_services_response.service.add(name=name)
        return call.send(response)
    if asked == "all_extension_numbers_of_type" and _has_message(request.all_extension_numbers_of_type):
        response.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
        return call.send(response)
    files: list[bytes] = []
    if asked == "file_by_filename":
        files = _files_named(request.file_by_filename)
    elif asked == "file_containing_symbol":
        files = _files_with(request.file_containing_symbol)
    if files:
        response.file_descriptor_response.file_descriptor_proto.extend(files)
    elif asked is None:
        response.error_response.error_code = UNIMPLEMENTED
        response.error_response.error_message = "this kind of request is not known"
    else:  # there are no extensions either
        response.error_response.error_code = NOT_FOUND
        response.error_response.error_message = "there is no such file, symbol or extension"
    return call.send(response)


def _has_message(name: str) -> bool:
    """Whether there is a message of this full name."""
    try:
        messages.pool.FindMessageTypeByName(name)
    except KeyError:
        return False
    return True


def _files_with(symbol: str) -> list[bytes]:
    """The file that has this service, method, message, field or enum, and those that it imports, serialized; none:
    there is none."""
    service, _, method = symbol.rpartition(".")
    try:
        if (
            service in messages.SERVICES
            and method in messages.pool.FindServiceByName(service).methods_by_name
        ):
            symbol = service
        return _with_imports(messages.pool.FindFileContainingSymbol(symbol))
    except KeyError:
        return []


def _files_named(name: str) -> list[bytes]:
    """The same of a file by its name."""
    try:
        return _with_imports(messages.pool.FindFileByName(name))
    except KeyError:
        return []


def _with_imports(file: Any) -> list[bytes]:  # noqa: ANN401
    found, asked = dict[str, bytes](), [file]
    while asked:
        each = asked.pop(0)
        if each.name not in found:
            found[each.name] = each.serialized_pb
            asked += each.dependencies
    return list(found.values())
