/* Time in nanoseconds, and a latency histogram with 32 buckets per power of two: quantiles are accurate to 3 %.
 * One thread. */
#ifndef BENCH_LATENCY_H
#define BENCH_LATENCY_H

#include <stdint.h>
#include <time.h>

enum { LATENCY_BUCKETS = 64 * 32 };

typedef struct {
    uint64_t seen, bucket[LATENCY_BUCKETS];
    int64_t slowest;
} Latency;

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void count_latency(Latency *latency, int64_t ns)
{
    if (ns < 1) ns = 1;
    if (ns > latency->slowest) latency->slowest = ns;
    int high = 63 - __builtin_clzll((uint64_t) ns);
    int low = high >= 5 ? (ns >> (high - 5)) & 31 : (ns << (5 - high)) & 31;
    latency->bucket[high * 32 + low]++;
    latency->seen++;
}

static inline double quantile_us(const Latency *latency, double part)
{
    uint64_t wanted = (uint64_t) (part * latency->seen), below = 0;
    for (int bucket = 0; bucket < LATENCY_BUCKETS; bucket++) {
        below += latency->bucket[bucket];
        if (below > wanted) {
            int high = bucket / 32, low = bucket % 32;
            return (high >= 5 ? (double) ((32LL + low) << (high - 5)) : (double) (32 + low) / (1 << (5 - high))) / 1000;
        }
    }
    return latency->slowest / 1000.0;
}

#endif
