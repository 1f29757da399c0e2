# Encodes stored records as the body of a batch request without decoding them: copies bodies as they are
# stored, and properties as PropertyEdits change them.
#
#   item      i32 size, i32 0, i32 0, i32 flag, i32 + body, i16 + properties         items follow each other
#
# Ownership: a batch is a new bytes object. Order: a record is checked again before it is copied. Any thread.

cdef enum:
    ITEM_AT_FLAG = 12
    ITEM_AT_BODY_BYTES = 16
    ITEM_HEAD_BYTES = 20          # everything before the body
    ITEM_OVER_BYTES = 22          # everything but body and properties
