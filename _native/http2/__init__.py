"""HTTP/2 and the framing of gRPC, as bytes: requests and messages in, messages and statuses out.

- `grpc_stream`: one gRPC call on a stream
- `nghttp2`: the functions of libnghttp2, found at run time
- `proto_fields`: counts the fields of a message of protobuf before it is parsed
- `session`: what a connection speaks once it has sent HTTP/2's preface
"""
