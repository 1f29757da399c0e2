"""Ground floor of every package: byte order, memory, hashes, clocks and C vectors. Imports nothing of ours.

- `clock`: wall and monotonic time in milliseconds
- `endian`: Big-endian numbers at a pointer: on the wire and in files
- `hash`: CRC-32 as records hold it, Java's String.hashCode over UTF-8, and the index's key hash
- `malloc`: glibc's malloc, told what it keeps of freed memory
- `memory`: memory that will be read or written soon is fetched into the cache early
- `text`: UTF-8 checked without decoding it: ASCII eight bytes at a time, all else by the first byte of a
  letter
- `vector`: A vector in C memory that doubles: `capacity` elements are there, `count` of them are in use
"""
