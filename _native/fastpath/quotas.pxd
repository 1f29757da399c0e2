# Quotas: how many messages and bytes per second users, topics and groups may send and get.
#
# EntityQuota: a user, topic or group with its rates. For each rate it keeps the time at which what was used
# is paid (`due`): a request of n adds n / rate to it, and it never lies more than BURST_S in the past, so an
# entity that was idle may use the rate of a second at once. What `due` lies in the future is the debt, in
# seconds.
#
# Sender and Puller have a Quotas only while there is a quota for their direction: without one, they test one
# pointer. Ownership: the dicts own the EntityQuotas. Times: monotonic seconds. Thread: the loop's.

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.fastpath.fast_connection cimport FastConnection

cdef enum:
    MESSAGES_IN, BYTES_IN, MESSAGES_OUT, BYTES_OUT
    RATES
    IN = MESSAGES_IN                      # the first rate of a direction; the second follows
    OUT = MESSAGES_OUT

cdef enum:
    USER, TOPIC, GROUP
    KINDS


@cython.final
cdef class EntityQuota:
    cdef readonly int kind
    cdef readonly str name
    cdef readonly bint by_default
    cdef readonly int64_t delayed, refused
    cdef double rate[RATES]               # 0: no quota
    cdef double due[RATES]
    cdef int64_t second[RATES]            # in which `count` was used; `last`: in the second before
    cdef int64_t count[RATES]
    cdef int64_t last[RATES]

    cdef double debt(self, int direction, double now) noexcept
    cdef int use(self, int which, int64_t amount, double now) noexcept
    cdef int worst(self, int direction) noexcept


@cython.final
cdef class Quotas:
    cdef list entities                    # of a kind: name → EntityQuota
    cdef list defaults                    # of a kind: a tuple of rates, or None
    cdef int64_t delayed[KINDS][RATES]
    cdef int64_t refused[KINDS][RATES]

    cdef EntityQuota find(self, int kind, name)
    cdef EntityQuota worst_of(self, int direction, user, str topic, group, double now)
    cdef double debt_of(self, int direction, user, str topic, group, double now) except? -1
    cdef double use(
        self, int direction, user, str topic, group, int64_t messages, int64_t size, double now
    ) except? -1
    cdef double debt_here(self, int direction, FastConnection connection, str topic, group) except? -1
    cdef int use_here(
        self, int direction, FastConnection connection, str topic, group, int64_t messages, int64_t size
    ) except -1
