"""Quotas: rates of users, topics and groups, and what they have used (see quotas.pxd)."""

from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.fastpath.access_check cimport Login

# type: MESSAGES_IN: int
# type: BYTES_IN: int
# type: MESSAGES_OUT: int
# type: BYTES_OUT: int
# type: IN: int
# type: OUT: int
# type: USER: int
# type: TOPIC: int
# type: GROUP: int
# type: _Rates = tuple[float, float, float, float]
# type: """Messages in, bytes in, messages out, bytes out, per second; 0: no quota."""

BURST_S = 1.0  # type: float
DELAY_MAX_S = 1.0  # type: float
ENTITIES_MAX = 16_384  # type: int
NAME_CHARS_MAX = 255  # type: int

globals().update(
    MESSAGES_IN=MESSAGES_IN, BYTES_IN=BYTES_IN, MESSAGES_OUT=MESSAGES_OUT, BYTES_OUT=BYTES_OUT,
    IN=IN, OUT=OUT, USER=USER, TOPIC=TOPIC, GROUP=GROUP,
)

cdef double BURST = BURST_S
cdef double DELAY_MAX = DELAY_MAX_S
cdef double NO_DEBT = -1e300


cdef inline double now_s() noexcept:
    return <double> nanoseconds() / 1e9


cdef class EntityQuota:
    """A user, topic or group with its rates. `by_default`: they are those of all others of its kind."""

    cdef double debt(self, int direction, double now) noexcept:
        cdef int which
        cdef double most = NO_DEBT
        for which in range(direction, direction + 2):
            if self.rate[which] > 0 and self.due[which] - now > most:
                most = self.due[which] - now
        return most

    cdef int use(self, int which, int64_t amount, double now) noexcept:
        cdef int64_t second = <int64_t> now
        if self.rate[which] <= 0:
            return 0
        if self.due[which] < now - BURST:
            self.due[which] = now - BURST
        self.due[which] += amount / self.rate[which]
        if second != self.second[which]:
            self.last[which] = self.count[which] if second == self.second[which] + 1 else 0
            self.second[which], self.count[which] = second, 0
        self.count[which] += amount
        return 0

    cdef int worst(self, int direction) noexcept:
        """Which of the two has the larger debt."""
        if self.rate[direction] <= 0:
            return direction + 1
        if self.rate[direction + 1] <= 0 or self.due[direction] >= self.due[direction + 1]:
            return direction
        return direction + 1

    def rates(self):
        # type: (...) -> _Rates
        return tuple([self.rate[which] for which in range(RATES)])

    def used(self, double now):
        # type: (...) -> tuple[int, int, int, int]
        """What was used in the last whole second."""
        cdef int64_t second = <int64_t> now
        cdef int which
        found = []
        for which in range(RATES):
            if self.second[which] == second:
                found.append(self.last[which])
            else:
                found.append(self.count[which] if self.second[which] == second - 1 else 0)
        return tuple(found)


cdef EntityQuota entity_of(int kind, str name, rates, bint by_default):
    cdef EntityQuota entity = EntityQuota.__new__(EntityQuota)
    entity.kind, entity.name, entity.by_default = kind, name, by_default
    for which in range(RATES):
        entity.rate[which] = rates[which]
    return entity


cdef class Quotas:
    """The rates of users, topics and groups, and what they have used. Times are monotonic seconds."""

    def __cinit__(self):
        self.entities = [{}, {}, {}]
        self.defaults = [None, None, None]

    def configure(self, int kind, default, dict named not None):
        # type: (int, _Rates | None, dict[str, _Rates]) -> None
        """Replace the rates of a kind. Who keeps its rates keeps its debt."""
        cdef dict before = self.entities[kind]
        cdef dict after = {}
        for name, rates in named.items():
            found = before.get(name)
            if found is None or (<EntityQuota> found).by_default or found.rates() != rates:
                found = entity_of(kind, name, rates, False)
            after[name] = found
        if default is not None and default == self.defaults[kind]:
            for name, entity in before.items():
                if (<EntityQuota> entity).by_default and name not in after:
                    after[name] = entity
        self.defaults[kind] = default
        self.entities[kind] = after

    def limits(self, int direction):
        # type: (...) -> bool
        """Whether anything has a quota for IN or OUT."""
        for default in self.defaults:
            if default is not None and (default[direction] or default[direction + 1]):
                return True
        return any(
            entity.rates()[direction] or entity.rates()[direction + 1]
            for entities in self.entities for entity in entities.values()
        )

    cdef EntityQuota find(self, int kind, name):
        """None: it has no quota."""
        if not name or len(name) > NAME_CHARS_MAX:
            return None
        found = (<dict> self.entities[kind]).get(name)
        if found is None and self.defaults[kind] is not None:
            if len(self.entities[kind]) >= ENTITIES_MAX:
                self.drop_idle(kind)
            found = self.entities[kind][name] = entity_of(kind, name, self.defaults[kind], True)
        return <EntityQuota> found

    def drop_idle(self, int kind):
        """Drop those with the default that owe nothing; if these are few, all with the default."""
        cdef EntityQuota entity
        cdef double now = now_s()
        entities = self.entities[kind]
        busy = {
            name: entity for name, entity in entities.items()
            if not entity.by_default or entity.debt(IN, now) > 0 or entity.debt(OUT, now) > 0
        }
        if len(busy) > ENTITIES_MAX // 2:
            busy = {name: entity for name, entity in entities.items() if not entity.by_default}
        self.entities[kind] = busy

    cdef EntityQuota worst_of(self, int direction, user, str topic, group, double now):
        """The one with the largest debt; None: none of them has a quota."""
        cdef EntityQuota entity
        cdef EntityQuota worst = None
        for kind, name in ((USER, user), (TOPIC, topic), (GROUP, group)):
            entity = self.find(kind, name)
            if entity is not None and (
                worst is None or entity.debt(direction, now) > worst.debt(direction, now)
            ):
                worst = entity
        return worst

    cdef double debt_of(self, int direction, user, str topic, group, double now) except? -1:
        cdef EntityQuota worst = self.worst_of(direction, user, topic, group, now)
        return NO_DEBT if worst is None else worst.debt(direction, now)

    cdef double use(
        self, int direction, user, str topic, group, int64_t messages, int64_t size, double now
    ) except? -1:
        cdef EntityQuota entity
        cdef EntityQuota worst = None
        cdef double debt, most = NO_DEBT
        for kind, name in ((USER, user), (TOPIC, topic), (GROUP, group)):
            entity = self.find(kind, name)
            if entity is None:
                continue
            entity.use(direction, messages, now)
            entity.use(direction + 1, size, now)
            debt = entity.debt(direction, now)
            if debt > most:
                most, worst = debt, entity
        if most > 0:
            worst.delayed += 1
            self.delayed[worst.kind][worst.worst(direction)] += 1
        return most

    # ---- the fast path ----

    cdef double debt_here(self, int direction, FastConnection connection, str topic, group) except? -1:
        user = None if connection.login is None else (<Login> connection.login).user
        return self.debt_of(direction, user, topic, group, now_s())

    cdef int use_here(
        self, int direction, FastConnection connection, str topic, group, int64_t messages, int64_t size
    ) except -1:
        """Use so much. Over the quota of sends, the connection is throttled."""
        user = None if connection.login is None else (<Login> connection.login).user
        cdef double debt = self.use(direction, user, topic, group, messages, size, now_s())
        if debt > 0 and direction == IN:
            connection.throttle(min(debt, DELAY_MAX))
        return 0

    # ---- the complete path ----

    def debt(self, int direction, user, str topic not None, group, double now):
        # type: (int, str | None, str, str | None, float) -> float
        """The seconds until the last of the three is within its quota; <= 0: they all are."""
        return self.debt_of(direction, user, topic, group, now)

    def charge(
        self, int direction, user, str topic not None, group, int64_t messages, int64_t size, double now
    ):
        # type: (int, str | None, str, str | None, int, int, float) -> float
        """Use so much; returns the debt after it. A debt counts as delayed."""
        return self.use(direction, user, topic, group, messages, size, now)

    def refuse(self, int direction, user, str topic not None, group, double now):
        # type: (int, str | None, str, str | None, float) -> tuple[int, str, int, float]
        """Count a refusal: the kind and name of who has the largest debt, which quota it is, and its rate."""
        cdef EntityQuota worst = self.worst_of(direction, user, topic, group, now)
        cdef int which
        if worst is None:
            raise ValueError("none of them has a quota")
        which = worst.worst(direction)
        worst.refused += 1
        self.refused[worst.kind][which] += 1
        return worst.kind, worst.name, which, worst.rate[which]

    def listed(self, int kind):
        # type: (...) -> Sequence[EntityQuota]
        return list((<dict> self.entities[kind]).values())

    def counts(self):
        # type: (...) -> list[tuple[int, int, int, int]]
        """Kind, quota, how many requests were delayed, and refused; without zeros."""
        cdef int kind, which
        found = []
        for kind in range(KINDS):
            for which in range(RATES):
                if self.delayed[kind][which] or self.refused[kind][which]:
                    found.append((kind, which, self.delayed[kind][which], self.refused[kind][which]))
        return found
