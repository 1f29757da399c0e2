"""What users may do: creates, changes, deletes and lists acls (3006 to 3010). Loop thread.

Bodies and remarks are Apache's.
"""

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.access_model import (
    USER_PREFIX,
    Acl,
    PolicyEntry,
    PolicyType,
    Resource,
    user_of,
)
from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import bodies
from firearrow.broker.auth.audit_log import AuditLog, audit_change
from firearrow.broker.auth.bodies import no_permission
from firearrow.broker.auth.tables import AclTable, UserTable
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import json_fields

NO_POLICIES = (
    "org.apache.rocketmq.auth.authorization.exception.AuthorizationException: The body of acl is null"
)
NOT_SET = "not set any response code"
NO_SUBJECT = "An system error occurred, please try again later."


class AclsHandler:
    def __init__(self, users: UserTable, acls: AclTable, audit: AuditLog | None) -> None:
        self._users = users
        self._acls = acls
        self._audit = audit

    def routes(self) -> Routes:
        return {
            RequestCode.AUTH_CREATE_ACL: self.update,
            RequestCode.AUTH_UPDATE_ACL: self.update,
            RequestCode.AUTH_DELETE_ACL: self.delete,
            RequestCode.AUTH_GET_ACL: self.get,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Create or change: entries with an equal resource are replaced, others are added."""
        try:
            info = json_fields.members_or_none(
                loads_body(request.body, bodies.BODY_BYTES_MAX) if request.body else None, "body"
            )
            if not json_fields.items(info.get("policies"), "policies"):
                raise Refusal(ResponseCode.SYSTEM_ERROR, NO_POLICIES)
            subject = info.get("subject") or request.text_or("subject", "")
            user = user_of(str(subject))
            if user is None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, NO_SUBJECT)
            policies = bodies.read_policies(info)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"acl: {error}") from None
        if self._users.get(user) is None:
            raise no_permission(f"The subject of {USER_PREFIX}{user} is not exist.")
        self._acls.update(user, policies)
        changed = bodies.acl_info(Acl(user, {}).updated(policies))
        audit_change(self._audit, request, peer, "updateAcl", target=changed)
        return request.answer(remark=NOT_SET)

    def delete(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """One entry, of the Custom policy if none is named, or the whole acl."""
        user = self._subject(request)
        if self._acls.get(user) is None:
            raise no_permission("The acl is not exist.")
        resource = Resource.parse(request.text_or("resource", ""))
        if resource is None:
            self._acls.delete(user)
        else:
            kind = PolicyType.named(request.text_or("policyType", "")) or PolicyType.CUSTOM
            self._acls.delete_entry(user, kind, resource)
        deleted = "*" if resource is None else str(resource)
        audit_change(self._audit, request, peer, "deleteAcl", target=USER_PREFIX + user, resource=deleted)
        return request.answer(remark=NOT_SET)

    def get(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Without a body if the user has no acl."""
        acl = self._acls.get(self._subject(request))
        return request.answer(
            remark=NOT_SET, body=b"" if acl is None else fastjson.dumps(bodies.acl_info(acl))
        )

    def list_acls(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Entries whose resource contains a text, of subjects that contain a text; without a body if there is none."""
        subject, resource = request.text_or("subjectFilter", ""), request.text_or("resourceFilter", "")
        found = [
            bodies.acl_info(kept)
            for acl in self._acls
            if subject in acl.subject and (kept := _matching(acl, resource)).policies
        ]
        return request.answer(remark=NOT_SET, body=fastjson.dumps(found) if found else b"")

    def _subject(self, request: RemotingCommand) -> str:
        user = user_of(request.text_or("subject", ""))
        if user is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, NO_SUBJECT)
        if self._users.get(user) is None:
            raise no_permission("The subject is not exist.")
        return user


def _matching(acl: Acl, text: str) -> Acl:
    """The acl with the entries whose resource contains the text. A text that is in the subject leaves all, as in
    Apache."""
    if not text.strip() or text in acl.subject:
        return acl
    policies: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
    for kind, entries in acl.policies.items():
        if kept := tuple(entry for entry in entries if text in str(entry.resource)):
            policies[kind] = kept
    return Acl(acl.user, policies)
