/* What differs between Linux, macOS and Windows, or between gcc, clang and MSVC, in the modules that the client needs.
 *
 * Times are nanoseconds. Bits and bytes: bits must not be 0. Any thread. */

#ifndef FIREARROW_PLATFORM_H
#define FIREARROW_PLATFORM_H

#include <stdint.h>
#include <time.h>

#ifdef _MSC_VER
#include <intrin.h>
#include <stdlib.h>
#define fa_swap16(x) _byteswap_ushort(x)
#define fa_swap32(x) _byteswap_ulong(x)
#define fa_swap64(x) _byteswap_uint64(x)
static inline int fa_lowest_bit(uint64_t bits) {
    unsigned long found;
    _BitScanForward64(&found, bits);
    return (int) found;
}
#else
#define fa_swap16(x) __builtin_bswap16(x)
#define fa_swap32(x) __builtin_bswap32(x)
#define fa_swap64(x) __builtin_bswap64(x)
#define fa_lowest_bit(bits) __builtin_ctzll(bits)
#endif

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static inline int64_t fa_filetime(FILETIME time) {
    return ((int64_t) time.dwHighDateTime << 32 | time.dwLowDateTime) * 100;
}

static inline int64_t fa_wall_ns(void) {
    FILETIME now;
    GetSystemTimePreciseAsFileTime(&now);
    return fa_filetime(now) - 11644473600LL * 1000000000;      /* from 1601 to 1970 */
}

static inline int64_t fa_monotonic_ns(void) {
    LARGE_INTEGER count, second;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&second);
    return count.QuadPart / second.QuadPart * 1000000000
         + count.QuadPart % second.QuadPart * 1000000000 / second.QuadPart;
}

static inline int64_t fa_thread_cpu_ns(void) {
    FILETIME created, ended, kernel, user;
    GetThreadTimes(GetCurrentThread(), &created, &ended, &kernel, &user);
    return fa_filetime(kernel) + fa_filetime(user);
}

static inline void fa_local_time(time_t seconds, struct tm *found) { localtime_s(found, &seconds); }
#else
static inline int64_t fa_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t fa_wall_ns(void) { return fa_clock_ns(CLOCK_REALTIME); }
static inline int64_t fa_monotonic_ns(void) { return fa_clock_ns(CLOCK_MONOTONIC); }
static inline int64_t fa_thread_cpu_ns(void) { return fa_clock_ns(CLOCK_THREAD_CPUTIME_ID); }
static inline void fa_local_time(time_t seconds, struct tm *found) { localtime_r(&seconds, found); }
#endif

#ifdef __GLIBC__
#include <malloc.h>
#define fa_release_free_memory() malloc_trim(0)
#else
#define fa_release_free_memory() 0                             /* only glibc has this */
#endif

#endif
