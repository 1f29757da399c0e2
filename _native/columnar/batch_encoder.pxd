# Records turned into the body of a batch request without decoding them: bodies are copied as they lie,
# properties as Edits say.
#
#   item      i32 size, i32 0, i32 0, i32 flag, i32 + body, i16 + properties         one behind the other
#
# Ownership: a batch is a bytes object of its own. Order: a record is checked again when it is written, and
# what is copied is what was checked. Any thread.

cdef enum:
    ITEM_AT_FLAG = 12
    ITEM_AT_BODY_BYTES = 16
    ITEM_HEAD_BYTES = 20          # all in front of the body
    ITEM_OVER_BYTES = 22          # all but body and properties
