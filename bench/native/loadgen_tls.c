/* The load generator (loadgen.c) over TLS. */
#define BENCH_TLS
#include "loadgen.c"
