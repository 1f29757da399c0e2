"""Users: creates, changes, deletes and lists them (AUTH_CREATE_USER 3001 to AUTH_LIST_USER 3005). Loop thread.

Bodies and remarks are Apache's. Unlike there, only Super users see passwords.
"""

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.access_model import User, UserType
from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import bodies
from firearrow.broker.auth.access_control import AccessControl
from firearrow.broker.auth.audit_log import AuditLog, audit_change
from firearrow.broker.auth.tables import AclTable, UserTable
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import json_fields

NOT_SET = "not set any response code"
"""Apache's remark, a default that its handler does not replace."""
SUPER_CREATE = "The super user can only be create by super user"
LAST_SUPER = "{} is the last Super user that is enabled: create another one first"
SUPER_UPDATE = "The super user can only be update by super user"


class UsersHandler:
    def __init__(
        self, users: UserTable, acls: AclTable, access: AccessControl, audit: AuditLog | None
    ) -> None:
        self._users = users
        self._acls = acls
        self._access = access
        self._audit = audit

    def routes(self) -> Routes:
        return {
            RequestCode.AUTH_CREATE_USER: self.create,
            RequestCode.AUTH_UPDATE_USER: self.update,
            RequestCode.AUTH_DELETE_USER: self.delete,
            RequestCode.AUTH_GET_USER: self.get,
            RequestCode.AUTH_LIST_USER: self.list_users,
        }

    def create(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name = self._name(request)
        user = bodies.read_user(name, self._info(request))
        if user.is_super and not self._access.is_super(request):
            raise Refusal(ResponseCode.SYSTEM_ERROR, SUPER_CREATE)
        self._users.create(user)
        self._write(request, peer, "createUser", user)
        return request.answer(remark=NOT_SET)

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name, info = self._name(request), self._info(request)
        by_super = self._access.is_super(request)
        if UserType.named(info.get("userType")) is UserType.SUPER and not by_super:
            raise Refusal(ResponseCode.SYSTEM_ERROR, SUPER_UPDATE)
        known = self._users.get(name)
        if known is None:
            raise bodies.no_permission("The user is not exist")
        if known.is_super and not by_super:
            raise bodies.no_permission(SUPER_UPDATE)
        user = bodies.read_change(known, info)
        if not (user.is_super and user.is_enabled):
            self._keep_super(known)
        self._users.replace(user)
        self._write(request, peer, "updateUser", user, password=user.password != known.password)
        return request.answer(remark=NOT_SET)

    def delete(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """No error if there is no such user."""
        name = request.text_or("username", "")
        if not name.strip():
            raise bodies.no_permission("username can not be blank")
        user = self._users.get(name)
        if user is not None:
            if user.is_super and not self._access.is_super(request):
                raise bodies.no_permission(SUPER_UPDATE)
            self._keep_super(user)
            self._users.delete(name)
            self._acls.delete(name)
            self._write(request, peer, "deleteUser", user)
        return request.answer(remark=NOT_SET)

    def get(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Without a body if there is no such user."""
        user = self._users.get(self._name(request))
        body = b"" if user is None else fastjson.dumps(self._shown(request, user))
        return request.answer(remark=NOT_SET, body=body)

    def list_users(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Users whose name contains the filter; without a body if there is none."""
        part = request.text_or("filter", "")
        found = [self._shown(request, user) for user in self._users if not part.strip() or part in user.name]
        return request.answer(remark=NOT_SET, body=fastjson.dumps(found) if found else b"")

    def _keep_super(self, user: User) -> None:
        """Refusal: this is the last Super user."""
        if self._users.is_last_super(user):
            raise bodies.no_permission(LAST_SUPER.format(user.name[: bodies.TEXT_CHARS_MAX]))

    def _name(self, request: RemotingCommand) -> str:
        name = request.text_or("username", "")
        if not name.strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
        return name

    def _info(self, request: RemotingCommand) -> json_fields.Members:
        try:
            return json_fields.members(loads_body(request.body, bodies.BODY_BYTES_MAX), "body")
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"user: {error}") from None

    def _shown(self, request: RemotingCommand, user: User) -> dict[str, str]:
        return bodies.user_info(user, with_password=self._access.is_super(request))

    def _write(
        self, request: RemotingCommand, peer: Peer, what: str, user: User, *, password: bool = False
    ) -> None:
        info = bodies.user_info(user, with_password=False)
        audit_change(self._audit, request, peer, what, target=info, passwordChanged=password)
