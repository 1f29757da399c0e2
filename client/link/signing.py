"""Signatures of requests (ACL): added last, over all other fields and the body."""

import base64
import hashlib
import hmac

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import java_order
from firearrow.client.base.options import Credentials


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Base64 of HMAC-SHA1 over the values of all fields in the order of their names, then the body."""
    ext = command.ext
    ext.pop("Signature", None)
    ext["AccessKey"] = credentials.access_key
    if credentials.security_token is not None:
        ext["SecurityToken"] = credentials.security_token
    content = "".join(ext[name] for name in sorted(ext, key=java_order)).encode() + command.body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    ext["Signature"] = base64.b64encode(digest).decode()
