/* Faults at the system calls of a process that change a folder, for benchmarks/crashes.py.

   Preloaded (LD_PRELOAD), it counts the calls of the C library that write below one folder, in all processes together,
   and at the n-th call it kills or stops the process, returns an error, or writes a part only. It can also record every
   call with its data, from which the states after a loss of power are built, and shift the clock. The orders stand in a
   file that is mapped into memory (the variable WRITE_FAULTS), so that processes that are forked later see them too.

   cc -shared -fPIC -O2 -o write_faults.so write_faults.c -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum action { NONE, KILL, FAIL, KILL_PART, FAIL_PART, STOP, FAIL_ALWAYS, FAIL_SPACE, SHIFT };
enum kind { OPEN, WRITE, RENAME, UNLINK, MKDIR, RMDIR, FSYNC, TRUNCATE, CHMOD, LINK, NUM_KINDS };

struct orders {
    int64_t exempt;        /* process that is never counted: the driver */
    int64_t armed;         /* 1: calls are counted */
    int64_t count;         /* calls so far */
    int64_t target;        /* call at which the fault occurs; 0 for none */
    int64_t action;
    int64_t code;          /* errno of a failing call */
    int64_t landed;        /* calls that met the fault */
    int64_t process;       /* process that met the fault first */
    int64_t met;           /* kind of the call that met the fault first, plus 1 */
    int64_t shift;         /* seconds by which the clock is set */
    int64_t updates;       /* counted by the driver */
    int64_t poisoned;      /* used by the driver */
    int64_t kinds[NUM_KINDS];
    char folder[PATH_MAX];
    char record[PATH_MAX]; /* file of the records of calls; empty for none */
};

struct record_header {
    int64_t kind, inode, offset, size, length, other;
};

static struct orders *orders;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record_file = -1;

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void map_orders(void) {
    const char *path = getenv("WRITE_FAULTS");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0)
        return;
    void *memory = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    orders = memory == MAP_FAILED ? NULL : memory;
    close(file);
}

static int is_active(void) { return orders && orders->armed && getpid() != orders->exempt; }

/* Return whether a path is the folder or below it. */
static int is_below(const char *path) {
    size_t length = strlen(orders->folder);
    return length && !strncmp(path, orders->folder, length) && (!path[length] || path[length] == '/');
}

static int path_of_file(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0 && is_below(path);
}

static int path_at(int folder, const char *name, char *path) {
    if (name[0] == '/')
        snprintf(path, PATH_MAX, "%s", name);
    else {
        char parent[PATH_MAX] = "";
        if (folder == AT_FDCWD) {
            if (!getcwd(parent, sizeof parent))
                parent[0] = 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, parent, sizeof parent - 1);
            parent[length < 0 ? 0 : length] = 0;
        }
        if (snprintf(path, PATH_MAX, "%s/%s", parent, name) >= PATH_MAX)
            path[0] = 0;
    }
    return is_below(path);
}

/* Count a call. Return 0 to go on, 1 to fail with errno set, 2 to do a part of it, which `end_part` completes. */
static int meet(enum kind kind) {
    int64_t number = __sync_add_and_fetch(&orders->count, 1);
    __sync_add_and_fetch(&orders->kinds[kind], 1);
    int always = orders->action == FAIL_ALWAYS || orders->action == FAIL_SPACE;
    if (!orders->target || (always ? number < orders->target : number != orders->target))
        return 0;
    if (orders->action == FAIL_SPACE && kind != OPEN && kind != WRITE && kind != MKDIR && kind != RENAME)
        return 0;
    if (__sync_fetch_and_add(&orders->landed, 1) == 0) {
        orders->process = getpid();
        orders->met = kind + 1;
    }
    switch (orders->action) {
    case KILL:
        kill(getpid(), SIGKILL);
        return 0;
    case STOP:
        kill(getpid(), SIGSTOP);
        return 0;
    case KILL_PART:
        if (kind == WRITE)
            return 2;
        kill(getpid(), SIGKILL);
        return 0;
    case FAIL_PART:
        if (kind == WRITE)
            return 2;
        /* fall through */
    case FAIL:
    case FAIL_ALWAYS:
    case FAIL_SPACE:
        errno = (int)orders->code;
        return 1;
    default:
        return 0;
    }
}

static void write_record(enum kind kind, int64_t inode, int64_t offset, const void *data, int64_t size,
                         const char *path, const char *other) {
    if (!orders->record[0])
        return;
    if (record_file < 0)
        record_file =
            (int)syscall(SYS_openat, AT_FDCWD, orders->record, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    struct record_header header = {kind, inode, offset, size, (int64_t)strlen(path), (int64_t)strlen(other)};
    struct iovec parts[] = {{&header, sizeof header},
                            {(void *)path, (size_t)header.length},
                            {(void *)other, (size_t)header.other},
                            {(void *)data, data ? (size_t)size : 0}};
    if (!data)
        header.size = size;
    syscall(SYS_writev, record_file, parts, 4);
}

static int64_t inode_of(int file) {
    struct stat status;
    return fstat(file, &status) ? 0 : (int64_t)status.st_ino;
}

static int64_t inode_at(const char *path) {
    struct stat status;
    return lstat(path, &status) ? 0 : (int64_t)status.st_ino;
}

/* Opening for writing. A file that is created, or emptied, is recorded. */
static int open_any(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int counted = is_active() && (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && path_at(folder, name, path);
    if (!counted)
        return (int)syscall(SYS_openat, folder, name, flags, mode);
    if (meet(OPEN))
        return -1;
    pthread_mutex_lock(&lock);
    int existed = inode_at(path) != 0;
    int file = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (file >= 0 && (!existed || flags & O_TRUNC)) {
        int code = errno;
        write_record(OPEN, inode_of(file), 0, NULL, 0, path, "");
        errno = code;
    }
    pthread_mutex_unlock(&lock);
    return file;
}

#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        return open_any(AT_FDCWD, path, flags, mode);                                                                  \
    }
#define OPENING_AT(name)                                                                                               \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        return open_any(folder, path, flags, mode);                                                                    \
    }
OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

int creat(const char *path, mode_t mode) { return open_any(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* Write to a file; `at` is the position, or -1 for that of the file. */
static ssize_t write_any(int file, const void *data, size_t size, off_t at) {
    char path[PATH_MAX];
    int counted = is_active() && path_of_file(file, path);
    int met = counted ? meet(WRITE) : 0;
    if (met == 1)
        return -1;
    if (met == 2 && (size /= 2) == 0) {
        if (orders->action == KILL_PART)
            kill(getpid(), SIGKILL);
        errno = (int)orders->code;
        return -1;
    }
    if (counted)
        pthread_mutex_lock(&lock);
    ssize_t written = at < 0 ? syscall(SYS_write, file, data, size) : syscall(SYS_pwrite64, file, data, size, at);
    if (counted) {
        int code = errno;
        if (written > 0) {
            off_t end = at < 0 ? lseek(file, 0, SEEK_CUR) : at + written;
            write_record(WRITE, inode_of(file), end - written, data, written, path, "");
        }
        pthread_mutex_unlock(&lock);
        errno = code;
    }
    if (met == 2 && orders->action == KILL_PART)
        kill(getpid(), SIGKILL);
    if (met == 2) { /* the caller writes the rest next, which fails */
        orders->target = orders->count + 1;
        orders->action = FAIL;
    }
    return written;
}

ssize_t write(int file, const void *data, size_t size) { return write_any(file, data, size, -1); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return write_any(file, data, size, at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return write_any(file, data, size, at); }
ssize_t writev(int file, const struct iovec *parts, int number) {
    char path[PATH_MAX];
    if (!(is_active() && path_of_file(file, path)))
        return syscall(SYS_writev, file, parts, number);
    for (int part = 0; part < number; part++)
        if (parts[part].iov_len) /* a part of all is a valid result */
            return write_any(file, parts[part].iov_base, parts[part].iov_len, -1);
    return 0;
}

/* A call with one or two paths: fail, or do it and record it. */
#define CHANGE(kind, first_folder, first, second_folder, second, call)                                                 \
    char path[PATH_MAX] = "", other[PATH_MAX] = "";                                                                    \
    const char *second_name = second;                                                                                  \
    int counted = is_active() && (path_at(first_folder, first, path) |                                                 \
                                  (second_name ? path_at(second_folder, second_name, other) : 0));                     \
    if (!counted)                                                                                                      \
        return (int)(call);                                                                                            \
    if (meet(kind))                                                                                                    \
        return -1;                                                                                                     \
    pthread_mutex_lock(&lock);                                                                                         \
    int64_t inode = inode_at(path);                                                                                    \
    int result = (int)(call);                                                                                          \
    if (!result) {                                                                                                     \
        int code = errno;                                                                                              \
        write_record(kind, kind == MKDIR ? inode_at(path) : inode, 0, NULL, 0, path, other);                           \
        errno = code;                                                                                                  \
    }                                                                                                                  \
    pthread_mutex_unlock(&lock);                                                                                       \
    return result;

int rename(const char *old, const char *new) {
    CHANGE(RENAME, AT_FDCWD, old, AT_FDCWD, new, syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0))
}
int renameat(int old_folder, const char *old, int new_folder, const char *new) {
    CHANGE(RENAME, old_folder, old, new_folder, new, syscall(SYS_renameat2, old_folder, old, new_folder, new, 0))
}
int renameat2(int old_folder, const char *old, int new_folder, const char *new, unsigned flags) {
    CHANGE(RENAME, old_folder, old, new_folder, new, syscall(SYS_renameat2, old_folder, old, new_folder, new, flags))
}
int link(const char *old, const char *new) {
    CHANGE(LINK, AT_FDCWD, old, AT_FDCWD, new, syscall(SYS_linkat, AT_FDCWD, old, AT_FDCWD, new, 0))
}
int symlink(const char *target, const char *name) {
    CHANGE(LINK, AT_FDCWD, name, AT_FDCWD, NULL, syscall(SYS_symlinkat, target, AT_FDCWD, name))
}
int unlink(const char *name) {
    CHANGE(UNLINK, AT_FDCWD, name, AT_FDCWD, NULL, syscall(SYS_unlinkat, AT_FDCWD, name, 0))
}
int unlinkat(int folder, const char *name, int flags) {
    CHANGE(flags & AT_REMOVEDIR ? RMDIR : UNLINK, folder, name, folder, NULL,
           syscall(SYS_unlinkat, folder, name, flags))
}
int rmdir(const char *name) {
    CHANGE(RMDIR, AT_FDCWD, name, AT_FDCWD, NULL, syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR))
}
int mkdir(const char *name, mode_t mode) {
    CHANGE(MKDIR, AT_FDCWD, name, AT_FDCWD, NULL, syscall(SYS_mkdirat, AT_FDCWD, name, mode))
}
int mkdirat(int folder, const char *name, mode_t mode) {
    CHANGE(MKDIR, folder, name, folder, NULL, syscall(SYS_mkdirat, folder, name, mode))
}
int chmod(const char *name, mode_t mode) {
    CHANGE(CHMOD, AT_FDCWD, name, AT_FDCWD, NULL, syscall(SYS_fchmodat, AT_FDCWD, name, mode))
}
int fchmodat(int folder, const char *name, mode_t mode, int flags) {
    (void)flags;
    CHANGE(CHMOD, folder, name, folder, NULL, syscall(SYS_fchmodat, folder, name, mode))
}

/* A call on an open file without data. */
#define ON_FILE(kind, size, call)                                                                                      \
    char path[PATH_MAX];                                                                                               \
    if (!(is_active() && path_of_file(file, path)))                                                                    \
        return (int)(call);                                                                                            \
    if (meet(kind))                                                                                                    \
        return -1;                                                                                                     \
    pthread_mutex_lock(&lock);                                                                                         \
    int result = (int)(call);                                                                                          \
    if (!result) {                                                                                                     \
        int code = errno;                                                                                              \
        write_record(kind, inode_of(file), 0, NULL, size, path, "");                                                   \
        errno = code;                                                                                                  \
    }                                                                                                                  \
    pthread_mutex_unlock(&lock);                                                                                       \
    return result;

int fsync(int file) { ON_FILE(FSYNC, 0, syscall(SYS_fsync, file)) }
int fdatasync(int file) { ON_FILE(FSYNC, 0, syscall(SYS_fdatasync, file)) }
int ftruncate(int file, off_t size) { ON_FILE(TRUNCATE, size, syscall(SYS_ftruncate, file, size)) }
int ftruncate64(int file, off64_t size) { ON_FILE(TRUNCATE, size, syscall(SYS_ftruncate, file, size)) }
int fchmod(int file, mode_t mode) { ON_FILE(CHMOD, 0, syscall(SYS_fchmod, file, mode)) }

/* The clock, which a fault sets forward or back. */
static int64_t clock_shift(void) {
    return is_active() && orders->action == SHIFT && orders->landed ? orders->shift : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real)
        real = (__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME)
        now->tv_sec += clock_shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int result = real(now, zone);
    if (!result)
        now->tv_sec += clock_shift();
    return result;
}

time_t time(time_t *now) {
    struct timespec value;
    clock_gettime(CLOCK_REALTIME, &value);
    if (now)
        *now = value.tv_sec;
    return value.tv_sec;
}
