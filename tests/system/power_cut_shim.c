/*
 * Preloaded into a process that writes a store: notes every write, truncation, removal and sync of the store's
 * files in one trace, so that a test can say what a disk holds that loses its power at any moment.
 *
 * CUT_STORE is the absolute path of events.db (its -wal and -journal belong to it; -shm is rebuilt by everyone),
 * CUT_TRACE the file that records go to. With CUT_KILL_AT=n the process is killed (SIGKILL) before its n-th
 * write to events.db itself once events.db-wal exists, which is in the middle of a checkpoint.
 *
 * A record: op (1 byte), length of the file's suffix (1), offset (8, native), length (8), suffix, bytes written.
 * Ops: W written, T truncated to offset, S synced, U unlinked, D the directory was synced.
 * Syncs only go into the trace, not to the disk: what is durable is the trace's matter.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define FDS 1024
#define SUFFIX 32
#define DIRECTORY "/"

static char names[FDS][SUFFIX]; /* of open files: suffix + 1 byte in front that says it is one of ours */
static char store[4096], folder[4096];
static int trace = -1;
static long kill_at = -1, main_writes = 0;
static int wal_seen = 0;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CUT_STORE"), *to = getenv("CUT_TRACE"), *at = getenv("CUT_KILL_AT");
    if (path == NULL || to == NULL || strlen(path) >= sizeof store)
        return;
    strcpy(store, path);
    strcpy(folder, path);
    *strrchr(folder, '/') = 0;
    if (at != NULL)
        kill_at = atol(at);
    trace = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* The suffix behind events.db, DIRECTORY for the folder, NULL for what is not ours. */
static const char *suffix_of(const char *path)
{
    size_t length = strlen(store);
    if (trace < 0 || length == 0 || path == NULL)
        return NULL;
    if (strcmp(path, folder) == 0)
        return DIRECTORY;
    if (strncmp(path, store, length) != 0 || strlen(path + length) >= SUFFIX - 1)
        return NULL;
    if (strcmp(path + length, "-shm") == 0)
        return NULL;
    return path + length;
}

static const char *name_of(int fd)
{
    return fd >= 0 && fd < FDS && names[fd][0] ? names[fd] + 1 : NULL;
}

static void note(char op, const char *suffix, uint64_t offset, const void *bytes, uint64_t length)
{
    size_t named = strlen(suffix), total = 18 + named + (bytes ? length : 0);
    unsigned char *record = malloc(total);
    if (record == NULL)
        abort();
    record[0] = (unsigned char)op;
    record[1] = (unsigned char)named;
    memcpy(record + 2, &offset, 8);
    memcpy(record + 10, &length, 8);
    memcpy(record + 18, suffix, named);
    if (bytes)
        memcpy(record + 18 + named, bytes, length);
    if (syscall(SYS_write, trace, record, total) != (long)total)
        abort();
    free(record);
}

static int opened(int fd, const char *path)
{
    const char *suffix = suffix_of(path);
    if (fd >= 0 && fd < FDS) {
        names[fd][0] = 0;
        if (suffix != NULL) {
            names[fd][0] = 1;
            strcpy(names[fd] + 1, suffix);
            wal_seen |= strcmp(suffix, "-wal") == 0;
        }
    }
    return fd;
}

#define OPEN(function)                                                                                          \
    int function(const char *path, int flags, ...)                                                              \
    {                                                                                                           \
        va_list more;                                                                                           \
        mode_t mode = 0;                                                                                        \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                                  \
            va_start(more, flags);                                                                              \
            mode = va_arg(more, mode_t);                                                                        \
            va_end(more);                                                                                       \
        }                                                                                                       \
        int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #function);     \
        return opened(next(path, flags, mode), path);                                                           \
    }
OPEN(open)
OPEN(open64)

int close(int fd)
{
    if (fd >= 0 && fd < FDS)
        names[fd][0] = 0;
    return (int)syscall(SYS_close, fd);
}

static ssize_t write_at(int fd, const char *suffix, const void *bytes, size_t length, off_t offset, int seeks)
{
    pthread_mutex_lock(&turn);
    if (kill_at > 0 && *suffix == 0 && wal_seen && ++main_writes == kill_at)
        kill(getpid(), SIGKILL);
    ssize_t written =
        seeks ? syscall(SYS_write, fd, bytes, length) : syscall(SYS_pwrite64, fd, bytes, length, offset);
    if (written > 0)
        note('W', suffix, (uint64_t)offset, bytes, (uint64_t)written);
    pthread_mutex_unlock(&turn);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
    const char *suffix = name_of(fd);
    if (suffix == NULL)
        return syscall(SYS_pwrite64, fd, bytes, length, offset);
    return write_at(fd, suffix, bytes, length, offset, 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    return pwrite64(fd, bytes, length, offset);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    const char *suffix = name_of(fd);
    if (suffix == NULL)
        return syscall(SYS_write, fd, bytes, length);
    return write_at(fd, suffix, bytes, length, lseek(fd, 0, SEEK_CUR), 1);
}

int ftruncate64(int fd, off64_t length)
{
    const char *suffix = name_of(fd);
    pthread_mutex_lock(&turn);
    int result = (int)syscall(SYS_ftruncate, fd, length);
    if (result == 0 && suffix != NULL)
        note('T', suffix, (uint64_t)length, NULL, 0);
    pthread_mutex_unlock(&turn);
    return result;
}

int ftruncate(int fd, off_t length)
{
    return ftruncate64(fd, length);
}

static int sync_of(int fd, long call)
{
    const char *suffix = name_of(fd);
    if (suffix == NULL)
        return (int)syscall(call, fd);
    pthread_mutex_lock(&turn);
    note(strcmp(suffix, DIRECTORY) == 0 ? 'D' : 'S', suffix, 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return 0;
}

int fsync(int fd)
{
    return sync_of(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return sync_of(fd, SYS_fdatasync);
}

int unlink(const char *path)
{
    const char *suffix = suffix_of(path);
    pthread_mutex_lock(&turn);
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (result == 0 && suffix != NULL)
        note('U', suffix, 0, NULL, 0);
    pthread_mutex_unlock(&turn);
    return result;
}
