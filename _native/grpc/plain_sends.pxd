# PlainSends: the calls of SendMessage on one connection that need no Python object: one message of type NORMAL for a
# topic of this type, from a client whose calls the complete path has let through. The message is stored by the Sender
# of remoting (fastpath/send_message.pxd), so that rights, quotas, counts and waits are the same.
#
# SendRules: what all connections share. `find_topic(name)`: how many queues a topic has for such sends, 0: it takes
# none; asked once until `forget_topics`. `failed(reply, code, remark)`: the reply to a message that was not stored, or
# not confirmed in time.
#
# LetThrough: a client that may make plain calls, as its headers name it: the id, and how it logs in. The same headers
# mean the same client until it ends (`forget`), or until users and rules change (`generation` of the AccessCheck).
# While the age of headers counts (`dated`), no call is plain.
#
# Ownership: a SendCall lives until its reply is sent; it owns its stream. Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.fastpath.access_check cimport AccessCheck
from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.fastpath.pending_replies cimport AnsweredCall
from firearrow._native.fastpath.request_times cimport RequestTimes
from firearrow._native.fastpath.send_message cimport Sender
from firearrow._native.grpc.send_request cimport SendRequest
from firearrow._native.http2.grpc_stream cimport GrpcStream, PlainCalls
from firearrow._native.store.log.record cimport Text


cdef class QueueTurns:
    cdef dict next                        # topic → the queue whose turn it is

    cpdef int turn(self, str topic, int queues) except -1


@cython.final
cdef class CallTopic:
    cdef str name
    cdef int queues                       # 0: it takes no plain sends


@cython.final
cdef class SendRules:
    cdef Sender sender
    cdef QueueTurns turns
    cdef RequestTimes times               # of gRPC
    cdef object find_topic, failed
    cdef frozenset not_settable           # names that no user property has, as bytes
    cdef bint dated
    cdef dict topics                      # name → CallTopic
    cdef uint8_t *properties              # of the send that is being handled

    cdef CallTopic topic(self, const Text *name)
    cdef bint may_set(self, const SendRequest *request)


@cython.final
cdef class LetThrough:
    cdef str user
    cdef tuple owner                      # client id and user
    cdef bytes host                       # the client's address
    cdef int64_t generation
    cdef bint ended


cdef bint is_allowed(
    AccessCheck access, FastConnection connection, LetThrough client, const Text *topic, const Text *group
) except -1


@cython.final
cdef class PlainSends(PlainCalls):
    cdef SendRules rules
    cdef FastConnection connection
    cdef readonly PlainCalls acks
    cdef dict clients                     # headers that name a client → LetThrough

    cdef bint put(self, GrpcStream stream, LetThrough client, SendRequest *request) except -1


@cython.final
cdef class SendCall(AnsweredCall):
    cdef GrpcStream stream
    cdef PlainSends sends
    cdef int64_t since_ns
