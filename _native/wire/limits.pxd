# Limits of input from the network. Each has a test at the limit and one past it.

cdef enum:
    # whole frame, length word included (Apache: com.rocketmq.remoting.frameMaxLength)
    FRAME_BYTES_MAX = 16777216
    FRAME_BYTES_MIN = 8           # length word, type and header length
    HEADER_BYTES_MAX = 1048576    # five times 32,767 bytes of properties, each escaped to six
    FIELDS_MAX = 256              # ext fields of one header
    DEPTH_MAX = 16                # nesting of unknown JSON members that are skipped
    FRAMES_PER_PASS = 256         # frames of one connection before others are served
