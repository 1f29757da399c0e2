"""AccessCheck: signatures and rights of plain sends and pulls (see access_check.pxd)."""

import hmac
from base64 import b64encode

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcmp, memcpy

from firearrow._native.base.memory cimport fa_copy_short
from firearrow._native.fastpath.header_template cimport Piece
from firearrow._native.fastpath.request_fields cimport SIGNATURE_VALUE, TOPIC_VALUE
from firearrow._native.wire.json cimport SPAN_ABSENT, SPAN_ESCAPED, SPAN_RAW, unescape

cdef enum:
    SIGNED_FIELDS_MAX = 32        # of a header; more take the complete path
    BUFFER_BYTES = 65536
    NAMES_MAX = 64                # topics and groups of a login that are remembered
    NAME_BYTES_MAX = 256          # a topic and a group
    SHORT_BODY = 1024
    SIGNATURE_BYTES = 28

cdef fa_libcrypto libcrypto
cdef bint is_loaded = False


def load_libcrypto():
    # type: () -> bool
    """Whether the SHA-1 of libcrypto was found where `ssl` has it, and works; each AccessCheck calls this.
    Without it, Python's hmac checks signatures."""
    global is_loaded
    import _ssl
    path = getattr(_ssl, "__file__", None)
    is_loaded = isinstance(path, str) and fa_libcrypto_load(path.encode(), &libcrypto)
    # compared with a constant: Python's would initialize the library, which takes 0.7 MB
    is_loaded = is_loaded and hmac_sha1(b"key", [b"text"]) == b"Np4pWetJRQM4shJ0j3fY3tdIR7s="
    return is_loaded


def hmac_sha1(bytes secret not None, list parts not None):
    # type: (bytes, list[bytes]) -> bytes
    """Base64 of the HMAC-SHA1 of the parts, computed as signatures are."""
    cdef fa_hmac_key key
    cdef fa_sha1 hash
    cdef uint8_t text[SIGNATURE_BYTES + 1]
    if not is_loaded:
        return b64encode(hmac.digest(secret, b"".join(parts), "sha1"))
    fa_hmac_set_key(&libcrypto, &key, <const uint8_t *> PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret))
    hash = key.inner
    for part in parts:
        libcrypto.add(&hash, <const uint8_t *> PyBytes_AS_STRING(part), len(<bytes> part))
    fa_hmac_end(&libcrypto, &key, &hash, text)
    return PyBytes_FromStringAndSize(<const char *> text, SIGNATURE_BYTES)


cdef inline bint is_named(const Span *span, const char *name, Py_ssize_t length) noexcept nogil:
    return span.length == length and memcmp(span.at, name, length) == 0


cdef inline bint is_before(const Span *one, const Span *other) noexcept nogil:
    """In the order of Java's strings, for ASCII names."""
    cdef Py_ssize_t shorter = min(one.length, other.length)
    cdef int order = memcmp(one.at, other.at, shorter)
    return order < 0 or (order == 0 and one.length < other.length)


cdef inline str text_of(const Span *span):
    return (<const char *> span.at)[:span.length].decode("utf-8", "replace")


cdef struct Signed:
    # the fields that are signed, in order; the key and the signature
    const Span *name[SIGNED_FIELDS_MAX]
    const Span *value[SIGNED_FIELDS_MAX]
    int count
    const Span *access_key
    const Span *signature


cdef bint sort_fields(const Header *header, Signed *found) noexcept nogil:
    """False: the complete path has to look at them."""
    cdef int n, at
    cdef const Span *name
    found.count = 0
    found.access_key = found.signature = NULL
    if header.fields > SIGNED_FIELDS_MAX:
        return False
    for n in range(header.fields):
        name = &header.field[n].key
        if name.kind != SPAN_RAW or name.length == 0:
            return False
        if name.length > 8:
            if is_named(name, b"Signature", 9):
                if found.signature is not NULL:
                    return False
                found.signature = &header.field[n].value
                continue
            if is_named(name, b"AccessKey", 9):
                found.access_key = &header.field[n].value
            elif is_named(name, b"SecurityToken", 13) or is_named(name, b"_UNIQUE_KEY_QUERY", 17):
                return False
        at = found.count
        while at > 0 and is_before(name, found.name[at - 1]):
            found.name[at], found.value[at] = found.name[at - 1], found.value[at - 1]
            at -= 1
        if at > 0 and not is_before(found.name[at - 1], name):
            return False              # twice the same
        if name.at[0] >= 0x80:
            return False
        found.name[at], found.value[at] = name, &header.field[n].value
        found.count += 1
    return found.access_key is not NULL and found.signature is not NULL


cdef class AccessCheck:
    """Checks plain sends and pulls of users that have logged in.

    `allows(user, topic, group, host)`: whether the user may pull the topic for the group, or send to the
    topic if there is no group; `host`: the peer's address as in records. `each`: each signature is
    checked; else only until the login ends.
    """

    def __cinit__(self, allows not None, *, bint authorization, bint each):
        # type: (Callable[[str, str, str | None, bytes], bool], bool, bool) -> None
        self.allows = allows
        self.authorization = authorization
        self.each = each
        self.buffer = <uint8_t *> PyMem_Malloc(BUFFER_BYTES)
        if self.buffer is NULL:
            raise MemoryError()
        load_libcrypto()

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    def forget(self):
        # type: (...) -> None
        """Users or rules changed: every connection has to log in again."""
        self.generation += 1

    def log_in(
        self, FastConnection connection not None, str name not None, str password not None, double until
    ):
        # type: (...) -> None
        """The complete path has let a request of the user through. `until`: time of the loop, in s."""
        cdef Login login = Login.__new__(Login)
        cdef bytes secret = password.encode()
        login.name, login.user, login.secret = name.encode(), name, secret
        login.generation = self.generation
        login.until = until
        login.allowed = set() if self.authorization else None
        login.has_key = is_loaded
        if login.has_key:
            fa_hmac_set_key(
                &libcrypto, &login.key, <const uint8_t *> PyBytes_AS_STRING(secret), PyBytes_GET_SIZE(secret)
            )
        connection.login = login
        connection.template = None        # each template is of the login's user
        connection.unmatched = 0

    cdef Login login_of(self, FastConnection connection):
        """The login of the connection, None: there is none that counts."""
        if connection.login is None:
            return None
        login = <Login> connection.login
        return login if login.generation == self.generation else None

    cdef bint is_logged_in(self, FastConnection connection, str user) except -1:
        """Whether the login is that of the user; the caller knows that the signature is right."""
        cdef Login login = self.login_of(connection)
        return login is not None and login.user == user and (self.each or connection.last_seen < login.until)

    # ---- signatures ----

    cdef bint is_signed(
        self, FastConnection connection, const Frame *frame, const Header *header
    ) except -1:
        cdef Signed found
        cdef Py_ssize_t used = 0
        cdef int n
        cdef Login login = self.login_of(connection)
        if login is None or not sort_fields(header, &found):
            return False
        if found.access_key.kind != SPAN_RAW or found.signature.kind != SPAN_RAW:
            return False
        if not is_named(found.access_key, PyBytes_AS_STRING(login.name), PyBytes_GET_SIZE(login.name)):
            return False
        if not self.each:
            return connection.last_seen < login.until
        for n in range(found.count):
            used = self.add(used, found.value[n])
            if used < 0:
                return False
        return self.is_digest(login, used, frame, found.signature)

    cdef bint is_templated_signed(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, SigningPlan plan
    ) except -1:
        cdef const Piece *piece
        cdef Py_ssize_t used = 0
        cdef int n
        cdef Login login = self.login_of(connection)
        if login is None:
            return False
        if not self.each:
            return connection.last_seen < login.until
        if plan is None:
            return False
        for n in range(plan.count):
            piece = &plan.pieces[n]
            if piece.which < 0:
                fa_copy_short(self.buffer + used, plan.constants + piece.at, piece.length)
                used += piece.length
                continue
            used = self.add(used, &fields.value[piece.which])
            if used < 0:
                return False
        return self.is_digest(login, used, frame, &fields.value[SIGNATURE_VALUE])

    cdef Py_ssize_t add(self, Py_ssize_t used, const Span *value) noexcept:
        """Add a value to the buffer; how much is used then, -1: it is too long, or malformed."""
        cdef Py_ssize_t length
        if value.length > BUFFER_BYTES // 2 - used:
            return -1
        if value.kind != SPAN_ESCAPED:
            fa_copy_short(self.buffer + used, value.at, value.length)
            return used + value.length
        length = unescape(value.at, value.length, self.buffer + used)
        return -1 if length < 0 else used + length

    cdef bint is_digest(
        self, Login login, Py_ssize_t used, const Frame *frame, const Span *signature
    ) except -1:
        """Whether the signature is that of the values in the buffer and the body."""
        cdef fa_sha1 hash
        cdef uint8_t text[SIGNATURE_BYTES + 1]
        cdef Py_ssize_t body_bytes = frame.body_bytes
        if signature.kind != SPAN_RAW or signature.length != SIGNATURE_BYTES:
            return False
        if body_bytes <= SHORT_BODY:           # so that whole blocks are hashed where they are
            memcpy(self.buffer + used, frame.body, body_bytes)
            used += body_bytes
            body_bytes = 0
        if not login.has_key:
            content = self.buffer[:used] + (<const uint8_t *> frame.body)[:body_bytes]
            return hmac.compare_digest(hmac_sha1(login.secret, [content]), signature.at[:SIGNATURE_BYTES])
        hash = login.key.inner
        libcrypto.add(&hash, self.buffer, used)
        if body_bytes > 0:
            libcrypto.add(&hash, frame.body, body_bytes)
        fa_hmac_end(&libcrypto, &login.key, &hash, text)
        return libcrypto.differ(text, signature.at, SIGNATURE_BYTES) == 0

    cdef SigningPlan plan_of(self, const Header *header, const SendFields *fields):
        """None: the headers cannot be checked by a plan."""
        cdef Signed found
        cdef SigningPlan plan = SigningPlan.__new__(SigningPlan)
        cdef int n, which
        if not self.each or not sort_fields(header, &found):
            return None
        for n in range(found.count):
            which = changing(found.value[n], fields)
            if which >= 0:
                plan.add_changing(which)
            elif not plan.add_constant(found.value[n]):
                return None
        return plan

    # ---- rights ----

    cdef bint may_use(self, FastConnection connection, const Span *topic, const Span *group) except -1:
        """Whether the user may send to the topic (`group` NULL), or pull it for the group."""
        cdef Login login = <Login> connection.login
        cdef uint8_t *name = self.buffer
        cdef Py_ssize_t length = 2 + topic.length
        if login.allowed is None:
            return True
        if topic.length + (group.length if group is not NULL else 0) >= NAME_BYTES_MAX:
            return False
        # a binary header can hold any byte: only the length says where the topic ends
        name[0], name[1] = group is not NULL, <uint8_t> topic.length
        memcpy(name + 2, topic.at, topic.length)
        if group is not NULL:
            memcpy(name + length, group.at, group.length)
            length += group.length
        if (
            login.last is not None and PyBytes_GET_SIZE(login.last) == length
            and memcmp(PyBytes_AS_STRING(login.last), name, length) == 0
        ):
            return True
        key = PyBytes_FromStringAndSize(<const char *> name, length)
        if key not in login.allowed:
            if not self.allows(
                login.name.decode(), text_of(topic), None if group is NULL else text_of(group),
                connection.host,
            ):
                return False
            if len(login.allowed) >= NAMES_MAX:
                login.allowed.clear()
            login.allowed.add(key)
        login.last = key
        return True


cdef int changing(const Span *value, const SendFields *fields) noexcept nogil:
    """Which of the values that change from send to send it is; -1: none."""
    cdef int which
    for which in range(TOPIC_VALUE, SIGNATURE_VALUE):
        if fields.value[which].kind != SPAN_ABSENT and fields.value[which].at == value.at:
            return which
    return -1
