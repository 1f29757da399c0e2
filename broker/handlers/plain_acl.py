"""Administration of `plain_acl.yml` (ACL 1.0): UPDATE_AND_CREATE_ACL_CONFIG 50 to GET_BROKER_CLUSTER_ACL_CONFIG 54.

Loop thread. Answers are those of Apache's brokers 4.9 and 5.2. Unlike there, only an admin account may use them, an
account keeps its place in the file, and only files that count can get white addresses.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.audit_log import AuditLog, audit_change
from firearrow.broker.auth.bodies import PASSWORD_CHARS_MAX, TEXT_CHARS_MAX
from firearrow.broker.auth.plain_accounts import NAME_CHARS_MIN, PERMISSIONS_MAX, Permission, permission
from firearrow.broker.auth.plain_files import Document, PlainFiles
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Peer, Routes

UPDATE_FAILED, DELETE_FAILED, WHITE_ADDRESSES_FAILED = 209, 210, 211
"""Response codes of these requests; elsewhere they mean POLLING_FULL and others."""
ACCOUNTS, WHITE, VERSION = "accounts", "globalWhiteRemoteAddresses", "dataVersion"
TEXTS = ("whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
LISTS = ("topicPerms", "groupPerms")


class PlainAclHandler:
    """`changed()`: accounts or white addresses did."""

    def __init__(
        self,
        files: PlainFiles,
        options: Options,
        clock: Clock,
        audit: AuditLog | None,
        changed: Callable[[], None],
    ) -> None:
        self._files = files
        self._options = options
        self._clock = clock
        self._audit = audit
        self._changed = changed
        self._started_ms = clock.now_ms()

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.set_white_addresses,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.everything,
        }

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Create an account in the default file, or change what the request names of one where it is."""
        key, given = _given_account(request)
        if not given["admin"]:
            self._keep_admin(key, UPDATE_FAILED)

        def change(document: Document) -> None:
            accounts = _accounts(document)
            at = next((n for n, each in enumerate(accounts) if each.get("accessKey") == key), len(accounts))
            accounts[at : at + 1] = [(accounts[at] if at < len(accounts) else {}) | given]
            document[ACCOUNTS] = accounts

        self._rewrite(self._files.path_of(key) or self._files.default, change, UPDATE_FAILED)
        audit_change(self._audit, request, peer, "updateAclConfig", accessKey=key)
        return request.answer()

    def delete(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        key = request.text("accessKey")
        path = self._files.path_of(key)
        if path is None:
            shown = key[:TEXT_CHARS_MAX]
            raise Refusal(
                DELETE_FAILED,
                f"The accesskey[{shown}] corresponding to accessConfig has been deleted failed.",
            )
        self._keep_admin(key, DELETE_FAILED)

        def change(document: Document) -> None:
            document[ACCOUNTS] = [each for each in _accounts(document) if each.get("accessKey") != key]

        self._rewrite(path, change, DELETE_FAILED)
        audit_change(self._audit, request, peer, "deleteAclConfig", accessKey=key)
        return request.answer()

    def set_white_addresses(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        addresses = _split(request.text("globalWhiteAddrs"))
        name = request.text_or("aclFileFullPath", "")
        path = Path(os.path.abspath(name)) if name else self._files.default
        if path not in {self._files.default, *(known for known, _ in self._files)}:
            shown = request.text("globalWhiteAddrs")[:TEXT_CHARS_MAX]
            raise Refusal(
                WHITE_ADDRESSES_FAILED,
                f"The globalWhiteAddresses[{shown}] has been updated failed: the path is of no file with accounts.",
            )

        def change(document: Document) -> None:
            document[WHITE] = list(addresses)

        self._rewrite(path, change, WHITE_ADDRESSES_FAILED)
        audit_change(self._audit, request, peer, "updateGlobalWhiteAddr", file=str(path))
        return request.answer()

    def versions(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        versions = {str(path): self._version(file.document) for path, file in self._files}
        default = versions.get(str(self._files.default)) or self._version({})
        host = self._options.broker_ip or peer.local[0]
        ext = {
            "version": json.dumps(default),
            "allAclFileVersion": json.dumps(versions),
            "brokerName": self._options.broker_name,
            "brokerAddr": f"{host}:{peer.local[1]}",
            "clusterName": self._options.cluster_name,
        }
        return request.answer(ext=ext)

    def everything(self, request: RemotingCommand, _: Peer) -> RemotingCommand:
        white: list[str] = []
        accounts: dict[str, Document] = {}
        for _path, file in self._files:
            listed = file.document.get(WHITE)
            white += [str(each) for each in listed] if isinstance(listed, list) else []
            for account in _accounts(file.document):
                accounts.setdefault(str(account.get("accessKey")), account)
        body = {
            "globalWhiteAddrs": white,
            "plainAccessConfigs": [_described(each) for each in accounts.values()],
        }
        return request.answer(body=json.dumps(body).encode())

    def _keep_admin(self, key: str, code: int) -> None:
        """Refusal with this code: it is the last account with `admin`, without which no request changes accounts."""
        accounts = self._files.acl.accounts
        admins = [account.access_key for account in accounts.values() if account.admin]
        if admins == [key]:
            raise Refusal(
                code, f"{key[:TEXT_CHARS_MAX]} is the last account with admin: create another one first"
            )

    def _rewrite(self, path: Path, change: Callable[[Document], None], code: int) -> None:
        """Refusal with this code."""

        def change_and_count(document: Document) -> None:
            change(document)
            document[ACCOUNTS] = [_typed(each) for each in _accounts(document)]
            counter = self._version(document)["counter"] + 1
            document[VERSION] = [{"counter": counter, "timestamp": self._clock.now_ms()}]

        try:
            self._files.rewrite(path, change_and_count)
        except ValueError as error:
            raise Refusal(code, str(error)) from None
        except OSError as error:
            raise Refusal(code, f"{path.name} cannot be written: {error.strerror}") from None
        self._changed()

    def _version(self, document: Document) -> dict[str, int]:
        listed = document.get(VERSION)
        first = listed[0] if isinstance(listed, list) and listed else {}
        found = {}
        for name, default in (("counter", 0), ("timestamp", self._started_ms)):
            text = str(first.get(name, "")) if isinstance(first, dict) else ""
            found[name] = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default
        return found


def _accounts(document: Document) -> list[Document]:
    listed = document.get(ACCOUNTS)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _typed(account: Document) -> Document:
    """With `admin` as a bool, as Apache writes it."""
    if "admin" not in account:
        return account
    return account | {"admin": str(account["admin"]).lower() == "true"}


def _given_account(request: RemotingCommand) -> tuple[str, Document]:
    """The access key, and the fields that the request gives. Refusal with Apache's remarks."""
    key, secret = request.text("accessKey"), request.text_or("secretKey", "")
    if len(key) < NAME_CHARS_MIN or len(secret) < NAME_CHARS_MIN:
        remark = f"The accessKey={key[:TEXT_CHARS_MAX]} and secretKey cannot be null and length should longer than 6"
        raise Refusal(UPDATE_FAILED, remark)
    given: Document = {"accessKey": key, "secretKey": secret}
    for name in TEXTS:
        text = request.ext.get(name)
        if text is not None and (text or name == TEXTS[0]):
            given[name] = text
    given["admin"] = request.boolean_or("admin", False)
    for name in LISTS:
        if (text := request.ext.get(name)) is not None:
            given[name] = _permissions(text)
    for name, bound in (("accessKey", TEXT_CHARS_MAX), ("secretKey", PASSWORD_CHARS_MAX)):
        if len(str(given[name])) > bound:
            raise Refusal(UPDATE_FAILED, f"the {name} is longer than {bound} characters")
    return key, given


def _permissions(text: str) -> list[str]:
    listed = _split(text)
    if len(listed) > PERMISSIONS_MAX:
        raise Refusal(UPDATE_FAILED, f"{len(listed)} permissions, at most {PERMISSIONS_MAX} are allowed")
    for each in listed:
        words = [word for word in each.split("=") if word]
        shown = each[:TEXT_CHARS_MAX]
        if len(words) != 2:
            raise Refusal(
                UPDATE_FAILED,
                f"Parse Resource format error for {shown}.\nThe expected resource format is 'Res=Perm'. "
                "For example: topicA=SUB",
            )
        if permission(words[1]) is Permission.DENY and words[1].strip() != "DENY":
            raise Refusal(
                UPDATE_FAILED,
                f"Parse resource permission error for {shown}.\nThe expected permissions are 'SUB' or 'PUB' or "
                "'SUB|PUB' or 'PUB|SUB'.",
            )
    return listed


def _split(text: str) -> list[str]:
    """As Java's `split(",")`, which drops empty texts at the end."""
    words = text.split(",")
    while len(words) > 1 and not words[-1]:
        words.pop()
    return words


def _described(account: Document) -> Document:
    """A PlainAccessConfig."""
    names = ("accessKey", "secretKey", *TEXTS, *LISTS)
    found = {name: account[name] for name in names if account.get(name) not in (None, "")}
    return {**found, "admin": str(account.get("admin", "")).lower() == "true"}
