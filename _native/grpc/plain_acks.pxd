# PlainAcks: the calls of AckMessage on one connection that need no Python object: one entry, whose receipt
# handle is the newest of its message, in a queue of the topic itself, from a client whose calls the
# complete path has let through. The acknowledgement is stored by the templates that remoting uses as well
# (fastpath/ack_templates.pxd).
#
# AckRules: what all connections share. `may_use(group, topic)`: whether clients of gRPC may use these
# names. `owners`: the clients, by id and user, for whom messages are renewed; `find`: the
# MessageReceiptHandle of such a message, whose `asked` counts what is not answered yet; `ended(it, whether the message
# is acknowledged)`: called once.
# `failed(reply, code, remark)`: the reply to an acknowledgement that was not stored, or not confirmed in
# time.
#
# Ownership: an AckCall lives until its reply is sent; it owns its stream. Thread: the loop's.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.fastpath.ack_templates cimport AckTemplate, AckTemplates
from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.fastpath.pending_replies cimport AnsweredCall
from firearrow._native.fastpath.request_times cimport RequestTimes
from firearrow._native.fastpath.send_message cimport Sender
from firearrow._native.grpc.plain_sends cimport LetThrough
from firearrow._native.http2.grpc_stream cimport GrpcStream, PlainCalls
from firearrow._native.store.log.record cimport Text

cdef struct AckRequest:
    Text group, topic, message_id, receipt_handle
    Text check_point, queue_id            # of the handle: the words of its pop, and one of the message
    int64_t pop_ms, queue_offset


@cython.final
cdef class AckRules:
    cdef Sender sender
    cdef AckTemplates templates
    cdef RequestTimes times               # of gRPC
    cdef object may_use, owners, find, ended, failed


@cython.final
cdef class PlainAcks(PlainCalls):
    cdef AckRules rules
    cdef FastConnection connection

    cdef bint put(
        self, GrpcStream stream, AckTemplate template, const AckRequest *request, object renewed
    ) except -1


@cython.final
cdef class AckCall(AnsweredCall):
    cdef GrpcStream stream
    cdef PlainAcks acks
    cdef object renewed                   # the MessageReceiptHandle that ends with the message, or None
    cdef int64_t since_ns
