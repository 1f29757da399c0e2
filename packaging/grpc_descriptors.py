"""Makes broker/grpc/descriptors.py from the official Python client, whose package has the protocol's descriptors.

    pip download --no-deps rocketmq-python-client==5.1.2
    python packaging/grpc_descriptors.py rocketmq_python_client-5.1.2-py3-none-any.whl broker/grpc/descriptors.py

No package of Apache's has the text of the `.proto` files. The descriptors of the Python client are those of
`org.apache.rocketmq:rocketmq-proto:2.1.2`, message by message, without comments.
"""

import ast
import base64
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

FILES = ("definition", "service")
HEAD = '''"""The descriptors of Apache RocketMQ's gRPC protocol, `apache.rocketmq.v2`, release 2.1.2: definition.proto
and service.proto as serialized FileDescriptorProtos. Made by packaging/grpc_descriptors.py from the package
rocketmq-python-client; not written by hand.

Licensed to the Apache Software Foundation (ASF) under one or more contributor license agreements. See the NOTICE file
distributed with this work for additional information regarding copyright ownership. The ASF licenses this file to You
under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance with the License.
You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0. Unless required by applicable law or
agreed to in writing, software distributed under the License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR
CONDITIONS OF ANY KIND, either express or implied. See the License for the specific language governing permissions and
limitations under the License.
"""

import base64
import zlib


def serialized(text: str) -> bytes:
    return zlib.decompress(base64.b85decode("".join(text.split())))

'''


def descriptor(wheel: zipfile.ZipFile, name: str) -> bytes:
    """What the generated module adds to its pool."""
    tree = ast.parse(wheel.read(f"rocketmq/grpc_protocol/{name}_pb2.py"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            (argument,) = node.args
            value = ast.literal_eval(argument)
            assert isinstance(value, bytes)
            return value
    raise ValueError(f"{name}_pb2.py adds no descriptor")


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    parts = [HEAD]
    with zipfile.ZipFile(source) as wheel:
        for name in FILES:
            text = base64.b85encode(zlib.compress(descriptor(wheel, name), 9)).decode()
            lines = "\n".join(textwrap.wrap(text, 118, break_on_hyphens=False))
            parts.append(f'\n{name.upper()} = r"""\n{lines}\n"""\n')
    target.write_text("".join(parts), "utf-8")


if __name__ == "__main__":
    main()
