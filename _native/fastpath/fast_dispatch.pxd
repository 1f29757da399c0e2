# FastDispatch: dispatches requests to sender and puller by their code. Each listener has its own, since the
# VIP port takes no pulls. Thread: the loop's.

from firearrow._native.fastpath.fast_connection cimport FastHandler
from firearrow._native.fastpath.pull_message cimport Puller
from firearrow._native.fastpath.send_message cimport Sender

cdef class FastDispatch(FastHandler):
    cdef Sender sender
    cdef Puller puller                    # None: takes no pulls
