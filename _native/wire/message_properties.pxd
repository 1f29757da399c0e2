# Encodes messages to send: properties, and the items of a batch body.
#
#   properties   name 0x01 value 0x02 …
#   item         i32 size, i32 0, i32 0, i32 flag, i32 body bytes, body, i16 properties bytes, properties
#
# A message is any object with the attributes of firearrow.client's Message. It is read only, except that
# `unique_id` is set if it has none. Nothing is kept. Any thread.

from firearrow._native.wire.unique_ids cimport UniqueIds
from firearrow._native.wire.write_buffer cimport Writer

cdef int put_properties(Writer out, object message, UniqueIds ids, dict more) except -1
