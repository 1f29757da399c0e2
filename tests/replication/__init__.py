"""The log copied to slaves: raw sockets, and real slaves of Apache's."""
