"""Makes broker/grpc/descriptors.py from the official Python client, whose package has the protocol's descriptors, and
from gRPC's packages for health and reflection.

    pip download --no-deps rocketmq-python-client==5.1.2 grpcio-health-checking grpcio-reflection
    python packaging/grpc_descriptors.py broker/grpc/descriptors.py *.whl

No package of Apache's has the text of the `.proto` files. The descriptors of the Python client are those of
`org.apache.rocketmq:rocketmq-proto:2.1.2`, message by message, without comments. Version v1 of gRPC's reflection is
v1alpha under another name.
"""

import ast
import base64
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from google.protobuf import descriptor_pb2, text_format

MODULES = {
    "DEFINITION": "rocketmq/grpc_protocol/definition_pb2.py",
    "SERVICE": "rocketmq/grpc_protocol/service_pb2.py",
    "HEALTH": "grpc_health/v1/health_pb2.py",
    "REFLECTION_ALPHA": "grpc_reflection/v1alpha/reflection_pb2.py",
}
HEAD = '''"""The descriptors of Apache RocketMQ's gRPC protocol, `apache.rocketmq.v2`, release 2.1.2: definition.proto
and service.proto as serialized FileDescriptorProtos; and of gRPC's own services, `grpc.health.v1`, `grpc.reflection.v1`
and v1alpha. Made by packaging/grpc_descriptors.py from the packages rocketmq-python-client, grpcio-health-checking and
grpcio-reflection; not written by hand.

Of `apache.rocketmq.v2`: Licensed to the Apache Software Foundation (ASF) under one or more contributor license
agreements. See the NOTICE file distributed with this work for additional information regarding copyright ownership. The
ASF licenses this file to You under the Apache License, Version 2.0 (the "License"); you may not use this file except in
compliance with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0. Unless
required by applicable law or agreed to in writing, software distributed under the License is distributed on an "AS IS"
BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific
language governing permissions and limitations under the License.

Of `grpc.health.v1` and `grpc.reflection`: Copyright 2015 and 2016 The gRPC Authors, under the same License.
"""

import base64
import zlib


def serialized(text: str) -> bytes:
    return zlib.decompress(base64.b85decode("".join(text.split())))

'''


def descriptor(wheels: Iterable[zipfile.ZipFile], name: str) -> bytes:
    """What the generated module adds to its pool."""
    wheel = next(wheel for wheel in wheels if name in wheel.namelist())
    for node in ast.walk(ast.parse(wheel.read(name))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            (argument,) = node.args
            value = ast.literal_eval(argument)
            assert isinstance(value, bytes)
            return value
    raise ValueError(f"{name} adds no descriptor")


def renamed(serialized: bytes, old: str, new: str) -> bytes:
    """The same file with this part of its names replaced."""
    text = text_format.MessageToString(descriptor_pb2.FileDescriptorProto.FromString(serialized))
    return text_format.Parse(text.replace(old, new), descriptor_pb2.FileDescriptorProto()).SerializeToString()


def main() -> None:
    target, *sources = map(Path, sys.argv[1:])
    wheels = [zipfile.ZipFile(source) for source in sources]
    found = {constant: descriptor(wheels, name) for constant, name in MODULES.items()}
    found["REFLECTION"] = renamed(found["REFLECTION_ALPHA"], "v1alpha", "v1")
    parts = [HEAD]
    for constant, value in found.items():
        text = base64.b85encode(zlib.compress(value, 9)).decode()
        lines = "\n".join(textwrap.wrap(text, 118, break_on_hyphens=False))
        parts.append(f'\n{constant} = r"""\n{lines}\n"""\n')
    target.write_text("".join(parts), "utf-8")


if __name__ == "__main__":
    main()
