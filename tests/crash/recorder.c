/* Recorder: a library that is loaded before libc (LD_PRELOAD) and records, in order, what a process does to the
 * files below one folder: CRASH_ROOT is the folder, CRASH_LOG the log. The store knows nothing of it.
 *
 * Entry: kind u8, 3 bytes of padding, file u32, a i64, b i64, length u32, then that many bytes (little-endian).
 * Files have separate numbers, because a name may change and an inode may be reused. Stores into writable shared
 * mappings are found by comparing with a shadow copy before each recorded call, and at marks.
 * One lock is held around call and entry: the log's order is the order in which things happened. Any thread. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MARK = 1, WRITE, STORE, SIZE, ALLOCATE, SYNC, SYNC_RANGE, CREATE, LINK, RENAME, UNLINK, MKDIR, RMDIR, SYNC_FOLDER,
       ZERO };
enum { FILES_MAX = 65536, MAPS_MAX = 4096, BLOCK = 4096, WORD = 8 };

struct entry { uint8_t kind, none[3]; uint32_t file; int64_t a, b; uint32_t length; } __attribute__((packed));
struct map { uint8_t *at, *shadow; size_t length; off_t from; uint32_t file; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1;
static dev_t device;
static ino_t inodes[FILES_MAX];          /* inode of each file number; 0: it was used again */
static uint32_t files;
static struct map maps[MAPS_MAX];
static int map_count;

#define REAL(name) ((__typeof__(&name)) real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

static void die(const char *why) {
    dprintf(2, "recorder: %s: %s\n", why, strerror(errno));
    _exit(99);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("CRASH_ROOT"), *path = getenv("CRASH_LOG");
    struct stat about;
    if (folder == NULL || path == NULL) return;
    if (realpath(folder, root) == NULL || stat(root, &about) != 0) die(folder);
    root_length = strlen(root);
    device = about.st_dev;
    log_fd = (int) syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) die(path);
    unsetenv("CRASH_ROOT");              /* what is started by this process is not recorded */
}

/* ---- the log ---- */

static void put(int kind, uint32_t file, int64_t a, int64_t b, const void *data, size_t length) {
    struct entry entry = { .kind = kind, .file = file, .a = a, .b = b, .length = (uint32_t) length };
    struct iovec parts[2] = { { &entry, sizeof entry }, { (void *) data, length } };
    if (syscall(SYS_writev, log_fd, parts, 2) != (ssize_t) (sizeof entry + length)) die("log");
}

static void put_stores(struct map *map, size_t at, size_t length) {
    uint8_t now[BLOCK];
    memcpy(now, map->at + at, length);   /* other threads may store concurrently */
    for (size_t n = 0, end; n < length; n = end) {
        end = n + WORD < length ? n + WORD : length;
        if (memcmp(now + n, map->shadow + at + n, end - n) == 0) continue;
        while (end < length) {
            size_t next = end + WORD < length ? end + WORD : length;
            if (memcmp(now + end, map->shadow + at + end, next - end) == 0) break;
            end = next;
        }
        put(STORE, map->file, map->from + at + n, 0, now + n, end - n);
        memcpy(map->shadow + at + n, now + n, end - n);
    }
}

static void put_all_stores(void) {
    for (int n = 0; n < map_count; n++)
        for (size_t at = 0; at < maps[n].length; at += BLOCK) {
            size_t length = maps[n].length - at < BLOCK ? maps[n].length - at : BLOCK;
            if (memcmp(maps[n].at + at, maps[n].shadow + at, length) != 0) put_stores(&maps[n], at, length);
        }
}

static void refresh(uint32_t file, off_t from, size_t length) {
    for (int n = 0; n < map_count; n++) {
        off_t low = from > maps[n].from ? from - maps[n].from : 0;
        off_t high = from + (off_t) length - maps[n].from;
        if (maps[n].file != file) continue;
        if (high > (off_t) maps[n].length) high = maps[n].length;
        if (low < high) memcpy(maps[n].shadow + low, maps[n].at + low, high - low);
    }
}

void crash_mark(const char *text) {
    if (log_fd < 0) return;
    pthread_mutex_lock(&lock);
    put_all_stores();
    put(MARK, 0, 0, 0, text, strlen(text));
    pthread_mutex_unlock(&lock);
}

/* ---- which file ---- */

static int64_t file_of(int fd) {
    struct stat about;
    int kept = errno;
    int64_t found = -1;
    if (log_fd >= 0 && fstat(fd, &about) == 0 && about.st_dev == device && S_ISREG(about.st_mode))
        for (uint32_t n = files; n-- > 0 && found < 0;)
            if (inodes[n] == about.st_ino) found = n;
    errno = kept;
    return found;
}

static uint32_t new_file(int fd) {
    struct stat about;
    if (files == FILES_MAX || fstat(fd, &about) != 0) die("too many files");
    inodes[files] = about.st_ino;
    return files++;
}

/* The path below the root, or NULL if it is elsewhere. */
static const char *below(int folder, const char *path, char *whole) {
    char link[64];
    ssize_t length;
    if (log_fd < 0 || path == NULL) return NULL;
    if (path[0] == '/') snprintf(whole, PATH_MAX, "%s", path);
    else {
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        length = readlink(link, whole, PATH_MAX - 1);
        if (length < 0) return NULL;
        if (path[0] == 0) whole[length] = 0;
        else snprintf(whole + length, PATH_MAX - length, "/%s", path);
    }
    if (strncmp(whole, root, root_length) != 0) return NULL;
    if (whole[root_length] == 0) return whole + root_length;
    return whole[root_length] == '/' ? whole + root_length + 1 : NULL;
}

static size_t pair(char *both, const char *one, const char *other) {
    size_t first = strlen(one) + 1, second = strlen(other);
    memcpy(both, one, first);
    memcpy(both + first, other, second);
    return first + second;
}

/* ---- opening ---- */

static int open_at(int folder, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    const char *name = flags & (O_CREAT | O_TRUNC) ? below(folder, path, whole) : NULL;
    struct stat before;
    int there, fd;
    if (name == NULL) return (int) syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    there = stat(whole, &before) == 0;
    put_all_stores();
    fd = (int) syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && !there) put(CREATE, new_file(fd), 0, 0, name, strlen(name));
    else if (fd >= 0 && flags & O_TRUNC && before.st_size > 0) put(SIZE, (uint32_t) file_of(fd), 0, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE_OF(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); \
    mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags) return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE_OF(flags) return open_at(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE_OF(flags) return open_at(folder, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }

/* ---- content: CALL is the real one, between the stores before it and its entry ---- */

#define RECORDED(type, fd, call, failed, entry) \
    int64_t file = file_of(fd); \
    type result; \
    if (file < 0) return call; \
    pthread_mutex_lock(&lock); \
    put_all_stores(); \
    result = call; \
    if (!(failed)) { entry; } \
    pthread_mutex_unlock(&lock); \
    return result;
#define WRITTEN(at) put(WRITE, (uint32_t) file, at, 0, data, (size_t) result); refresh((uint32_t) file, at, (size_t) result)

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    RECORDED(ssize_t, fd, syscall(SYS_pwrite64, fd, data, length, at), result < 0, WRITTEN(at))
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) { return pwrite(fd, data, length, at); }

ssize_t write(int fd, const void *data, size_t length) {
    RECORDED(ssize_t, fd, syscall(SYS_write, fd, data, length), result < 0,
             off_t at = lseek(fd, 0, SEEK_CUR) - result; WRITTEN(at))
}

#define REFUSED(name, ...) ssize_t name(int fd, __VA_ARGS__) { \
    if (file_of(fd) >= 0) die(#name " is not recorded"); \
    return REAL(name)(fd, data, count MORE); }
#define MORE
REFUSED(writev, const struct iovec *data, int count)
#undef MORE
#define MORE , at
REFUSED(pwritev, const struct iovec *data, int count, off_t at)
REFUSED(pwritev64, const struct iovec *data, int count, off64_t at)

int ftruncate(int fd, off_t size) {
    RECORDED(int, fd, (int) syscall(SYS_ftruncate, fd, size), result != 0,
             put(SIZE, (uint32_t) file, size, 0, NULL, 0); refresh((uint32_t) file, 0, (size_t) size))
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int posix_fallocate(int fd, off_t at, off_t length) {
    RECORDED(int, fd, REAL(posix_fallocate)(fd, at, length), result != 0,
             put(ALLOCATE, (uint32_t) file, at, length, NULL, 0))
}
int posix_fallocate64(int fd, off64_t at, off64_t length) { return posix_fallocate(fd, at, length); }

/* An in-memory file system has none: zeros are written there, which readers cannot distinguish. */
static int zero_range(int fd, off_t at, off_t length) {
    static const uint8_t zeros[BLOCK];
    if (syscall(SYS_fallocate, fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, at, length) == 0) return 0;
    if (errno != EOPNOTSUPP) return -1;
    for (off_t done = 0, chunk; done < length; done += chunk) {
        chunk = length - done < BLOCK ? length - done : BLOCK;
        if (syscall(SYS_pwrite64, fd, zeros, chunk, at + done) != chunk) return -1;
    }
    return 0;
}

static int zero(int fd, off_t at, off_t length) {
    RECORDED(int, fd, zero_range(fd, at, length), result != 0,
             put(ZERO, (uint32_t) file, at, length, NULL, 0); refresh((uint32_t) file, at, (size_t) length))
}

int fallocate(int fd, int mode, off_t at, off_t length) {
    if (mode == (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE) && file_of(fd) >= 0) return zero(fd, at, length);
    if (mode != 0 && file_of(fd) >= 0) die("fallocate of that mode is not recorded");
    RECORDED(int, fd, (int) syscall(SYS_fallocate, fd, mode, at, length), result != 0,
             put(ALLOCATE, (uint32_t) file, at, length, NULL, 0))
}
int fallocate64(int fd, int mode, off64_t at, off64_t length) { return fallocate(fd, mode, at, length); }

/* ---- syncing ---- */

static int sync_file(int fd, long call) {
    char whole[PATH_MAX];
    struct stat about;
    if (log_fd >= 0 && fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
        const char *name = below(fd, "", whole);
        int status;
        pthread_mutex_lock(&lock);
        status = (int) syscall(call, fd);
        if (status == 0 && name != NULL) put(SYNC_FOLDER, 0, 0, 0, name, strlen(name));
        pthread_mutex_unlock(&lock);
        return status;
    }
    RECORDED(int, fd, (int) syscall(call, fd), result != 0, put(SYNC, (uint32_t) file, 0, 0, NULL, 0))
}
int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int msync(void *at, size_t length, int flags) {
    int status;
    if (log_fd < 0) return (int) syscall(SYS_msync, at, length, flags);
    pthread_mutex_lock(&lock);
    put_all_stores();
    status = (int) syscall(SYS_msync, at, length, flags);
    for (int n = 0; n < map_count && status == 0 && flags & MS_SYNC; n++)
        if ((uint8_t *) at >= maps[n].at && (uint8_t *) at < maps[n].at + maps[n].length)
            put(SYNC_RANGE, maps[n].file, maps[n].from + ((uint8_t *) at - maps[n].at), (int64_t) length, NULL, 0);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- mappings ---- */

void *mmap(void *hint, size_t length, int protection, int flags, int fd, off_t from) {
    int64_t file = fd >= 0 && protection & PROT_WRITE && (flags & MAP_TYPE) == MAP_SHARED ? file_of(fd) : -1;
    void *at = (void *) syscall(SYS_mmap, hint, length, protection, flags, fd, from);
    struct stat about;
    if (file < 0 || at == MAP_FAILED) return at;
    pthread_mutex_lock(&lock);
    if (map_count == MAPS_MAX || fstat(fd, &about) != 0) die("too many mappings");
    if (about.st_size - from < (off_t) length) length = (size_t) (about.st_size - from);
    maps[map_count] = (struct map) { at, malloc(length + 1), length, from, (uint32_t) file };
    memcpy(maps[map_count++].shadow, at, length);
    pthread_mutex_unlock(&lock);
    return at;
}
void *mmap64(void *hint, size_t length, int protection, int flags, int fd, off64_t from) {
    return mmap(hint, length, protection, flags, fd, from);
}

int munmap(void *at, size_t length) {
    int status;
    if (log_fd < 0) return (int) syscall(SYS_munmap, at, length);
    pthread_mutex_lock(&lock);
    for (int n = 0; n < map_count; n++)
        if (maps[n].at == at) {
            put_all_stores();
            free(maps[n].shadow);
            maps[n] = maps[--map_count];
            break;
        }
    status = (int) syscall(SYS_munmap, at, length);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- names ---- */

#define NAMED(folder, path, call, kind) \
    char whole[PATH_MAX]; \
    const char *name = below(folder, path, whole); \
    int status; \
    if (name == NULL) return call; \
    pthread_mutex_lock(&lock); \
    put_all_stores(); \
    status = call; \
    if (status == 0) put(kind, 0, 0, 0, name, strlen(name)); \
    pthread_mutex_unlock(&lock); \
    return status;

int unlinkat(int folder, const char *path, int flags) {
    NAMED(folder, path, (int) syscall(SYS_unlinkat, folder, path, flags), flags & AT_REMOVEDIR ? RMDIR : UNLINK)
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int folder, const char *path, mode_t mode) {
    NAMED(folder, path, (int) syscall(SYS_mkdirat, folder, path, mode), MKDIR)
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

static int two_names(int kind, int old_folder, const char *old, int new_folder, const char *new, int flags) {
    char whole[PATH_MAX], other[PATH_MAX], both[2 * PATH_MAX];
    const char *from = below(old_folder, old, whole), *to = below(new_folder, new, other);
    long call = kind == RENAME ? SYS_renameat : SYS_linkat;
    int status;
    if (from == NULL || to == NULL) return (int) syscall(call, old_folder, old, new_folder, new, flags);
    pthread_mutex_lock(&lock);
    put_all_stores();
    status = (int) syscall(call, old_folder, old, new_folder, new, flags);
    if (status == 0) put(kind, 0, 0, 0, both, pair(both, from, to));
    pthread_mutex_unlock(&lock);
    return status;
}
int renameat(int of, const char *old, int nf, const char *new) { return two_names(RENAME, of, old, nf, new, 0); }
int rename(const char *old, const char *new) { return two_names(RENAME, AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int of, const char *old, int nf, const char *new, int flags) {
    return two_names(LINK, of, old, nf, new, flags);
}
int link(const char *old, const char *new) { return two_names(LINK, AT_FDCWD, old, AT_FDCWD, new, 0); }
