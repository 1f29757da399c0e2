/* Preloaded into a broker under test: system calls that fail as a mapped file of rules says, and a wall clock that is
 * moved by an offset in nanoseconds. Knows no broker; without a rule it only passes calls on. Any thread.
 *
 *   header 64:  wall clock, ns (i64) · number of rules in use (i64) · 0
 *   rule  256:  call · errno, below zero ms to wait instead (i32 ×2) · passes before it fails · failures left, -1 no
 *               end · failures so far (i64 ×3) · part of the path (char[224])
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum call { CALL_OPEN = 1, CALL_CREATE, CALL_WRITE, CALL_SYNC, CALL_MSYNC, CALL_TRUNCATE, CALL_RENAME, CALL_ALLOCATE };
enum { RULES_MAX = 8, PATH_CHARS = 1024, LINE_CHARS = 4200 };

struct rule {
    int32_t call, error;
    int64_t passes, left, failed;
    char path[224];
};
struct control {
    int64_t wall_ns, rules, rest[6];
    struct rule rule[RULES_MAX];
};
_Static_assert(sizeof(struct rule) == 256, "a rule of the control file");
_Static_assert(sizeof(struct control) == 64 + 256 * RULES_MAX, "the control file");

static struct control *control;

#define REAL(name) ((__typeof__(&name)) real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FIREARROW_FAULTS");
    int fd = path == NULL ? -1 : REAL(open)(path, O_RDWR | O_CLOEXEC);
    void *map;
    if (fd < 0)
        return;
    map = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        control = map;
}

/* The errno with which this call on this path fails now; 0: it succeeds, maybe after a delay. */
static int fault(enum call call, const char *path) {
    int64_t count = control == NULL ? 0 : __atomic_load_n(&control->rules, __ATOMIC_ACQUIRE);
    for (int64_t n = 0; n < count && n < RULES_MAX; n++) {
        struct rule *rule = &control->rule[n];
        if (rule->call != (int32_t) call || strstr(path, rule->path) == NULL)
            continue;
        if (__atomic_fetch_sub(&rule->passes, 1, __ATOMIC_RELAXED) > 0)
            continue;
        if (rule->left == 0)
            continue;
        if (rule->left > 0)
            __atomic_fetch_sub(&rule->left, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&rule->failed, 1, __ATOMIC_RELAXED);
        if (rule->error > 0)
            return rule->error;
        usleep((useconds_t) -rule->error * 1000);
    }
    return 0;
}

static int ruled(void) { return control != NULL && control->rules > 0; }

static int fault_fd(enum call call, int fd) {
    char link[64], path[PATH_CHARS];
    ssize_t length;
    if (!ruled())
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return fault(call, path);
}

static int fault_map(const void *at) {
    char line[LINE_CHARS];
    unsigned long from, to;
    int error = 0;
    FILE *maps = ruled() ? fopen("/proc/self/maps", "re") : NULL;
    if (maps == NULL)
        return 0;
    while (fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (unsigned long) at && (unsigned long) at < to) {
            error = fault(CALL_MSYNC, line);
            break;
        }
    fclose(maps);
    return error;
}

static int failed(int error) {
    errno = error;
    return -1;
}

static int fault_open(const char *path, int flags) {
    struct stat about;
    int error = errno;
    if (!ruled())
        return 0;
    if ((flags & O_CREAT) != 0 && stat(path, &about) != 0) {
        errno = error;
        error = fault(CALL_CREATE, path);
        return error != 0 ? error : fault(CALL_OPEN, path);
    }
    return fault(CALL_OPEN, path);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        mode_t mode = 0; \
        va_list more; \
        int error = fault_open(path, flags); \
        if (error != 0) \
            return failed(error); \
        va_start(more, flags); \
        if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) \
            mode = va_arg(more, mode_t); \
        va_end(more); \
        return REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define ON_FD(type, name, call, parameters, arguments) \
    type name parameters { \
        int error = fault_fd(call, fd); \
        return error != 0 ? failed(error) : REAL(name) arguments; \
    }
ON_FD(ssize_t, write, CALL_WRITE, (int fd, const void *data, size_t size), (fd, data, size))
ON_FD(ssize_t, pwrite, CALL_WRITE, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_FD(ssize_t, pwrite64, CALL_WRITE, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_FD(ssize_t, writev, CALL_WRITE, (int fd, const struct iovec *parts, int count), (fd, parts, count))
ON_FD(int, fsync, CALL_SYNC, (int fd), (fd))
ON_FD(int, fdatasync, CALL_SYNC, (int fd), (fd))
ON_FD(int, ftruncate, CALL_TRUNCATE, (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, CALL_TRUNCATE, (int fd, off64_t size), (fd, size))

/* These give the error number itself. */
int posix_fallocate(int fd, off_t at, off_t size) {
    int error = fault_fd(CALL_ALLOCATE, fd);
    return error != 0 ? error : REAL(posix_fallocate)(fd, at, size);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    int error = fault_fd(CALL_ALLOCATE, fd);
    return error != 0 ? error : REAL(posix_fallocate64)(fd, at, size);
}

int msync(void *at, size_t size, int flags) {
    int error = fault_map(at);
    return error != 0 ? failed(error) : REAL(msync)(at, size, flags);
}

int rename(const char *from, const char *to) {
    int error = ruled() ? fault(CALL_RENAME, to) : 0;
    return error != 0 ? failed(error) : REAL(rename)(from, to);
}

static int64_t set_by(void) { return control == NULL ? 0 : __atomic_load_n(&control->wall_ns, __ATOMIC_RELAXED); }

/* The system call itself: a sanitizer loaded before us reads the time while it looks up this function. */
int clock_gettime(clockid_t which, struct timespec *now) {
    int status = (int) syscall(SYS_clock_gettime, which, now);
    if (status == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + set_by();
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int status = zone == NULL ? clock_gettime(CLOCK_REALTIME, &exact) : REAL(gettimeofday)(now, zone);
    if (status == 0 && zone == NULL) {
        now->tv_sec = exact.tv_sec;
        now->tv_usec = exact.tv_nsec / 1000;
    }
    return status;
}

time_t time(time_t *to) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (to != NULL)
        *to = exact.tv_sec;
    return exact.tv_sec;
}
