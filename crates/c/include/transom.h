/*
 * Transom for C: the files of a virtio file system.
 *
 * Functions that return int or int64_t return a negative errno, by Linux's numbers, if they fail. The functions that
 * mount also write a message for a person, which ends with a NUL and is cut to fit; `message` may be NULL if
 * `message_len` is 0. A pointer that must not be NULL but is returns -EFAULT (-14).
 *
 * Paths end with a NUL, have at most 4095 bytes and begin at the root of the share. Any number of threads may use one
 * transom_fs or transom_file at the same time; a transom_dir belongs to one thread at a time. Close files and
 * directories before their file system is unmounted.
 *
 * SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
 */
#ifndef TRANSOM_H
#define TRANSOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct transom_fs transom_fs;
typedef struct transom_file transom_file;
typedef struct transom_dir transom_dir;

/* Flags of transom_open: those of open(2) on x86. Others are passed on to the server. */
#define TRANSOM_O_RDONLY 0x0
#define TRANSOM_O_WRONLY 0x1
#define TRANSOM_O_RDWR 0x2
#define TRANSOM_O_CREAT 0x40
#define TRANSOM_O_EXCL 0x80
#define TRANSOM_O_TRUNC 0x200
#define TRANSOM_O_APPEND 0x400

/* Attributes of a file. Times are since 1970; the mode is that of stat(2) on Linux. */
struct transom_attr {
    uint64_t ino;
    uint64_t size;
    uint64_t blocks;
    int64_t atime;
    int64_t mtime;
    int64_t ctime;
    uint32_t atime_nsec;
    uint32_t mtime_nsec;
    uint32_t ctime_nsec;
    uint32_t mode;
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev;
};

/* A name in a directory, which ends with a NUL. Its type is that of readdir(3), 0 if the server does not say. */
struct transom_entry {
    uint64_t ino;
    uint32_t type;
    uint32_t name_len;
    char name[256];
};

/*
 * What the library needs from a kernel. There is one table, and it stays valid: mounting again takes the same. Functions
 * get `context`, and may be called by any thread that calls the library.
 */
struct transom_platform {
    size_t size; /* sizeof(struct transom_platform) */
    void *context;
    /* Returns a monotonic time in nanoseconds. */
    uint64_t (*now_ns)(void *context);
    /* Returns once *word differs from `value`, transom_platform.wake was called for it, or now_ns has reached
     * `deadline_ns`; may return early. Atomic with regard to wake, as a futex is. NULL, also for wake: the library
     * polls. */
    void (*wait)(void *context, const uint32_t *word, uint32_t value, uint64_t deadline_ns);
    void (*wake)(void *context, const uint32_t *word);
    /* Lets other threads run, if threads do not preempt each other or share a processor. May be NULL. */
    void (*yield)(void *context);
    /* Returns zeroed memory at a multiple of 4096 that is contiguous for devices, which reach it at *address. NULL: there
     * is none. */
    void *(*dma_alloc)(void *context, size_t len, uint64_t *address);
    void (*dma_free)(void *context, void *start, size_t len, uint64_t address);
    /* Returns the address at which devices reach memory of a caller. UINT64_MAX: they do not. */
    uint64_t (*dma_address)(void *context, const void *start, size_t len);
    /* No range that is passed to dma_address crosses a multiple of this: the page size if each page may be elsewhere.
     * 0: all memory is contiguous. */
    size_t dma_contiguous_max;
    /* Not 0: no other thread makes progress while one waits. */
    uint32_t is_single_threaded;
};

/* Registers of a device. With `read` and `write`, accesses of 1, 2 or 4 bytes call them; without, they access memory at
 * `base`, a multiple of 4 that is mapped uncached until the file system is unmounted. */
struct transom_registers {
    void *base;
    size_t len;
    void *context;
    uint32_t (*read)(void *context, size_t offset, size_t width);
    void (*write)(void *context, size_t offset, size_t width, uint32_t value);
};

/* The configuration space of a PCI function, whose BARs have their addresses. `map` returns where the kernel has mapped
 * registers, uncached, until the file system is unmounted; NULL: it cannot. */
struct transom_pci {
    void *context;
    uint32_t (*config_read)(void *context, uint8_t offset);
    void (*config_write)(void *context, uint8_t offset, uint32_t value);
    void *(*map)(void *context, uint64_t address, uint64_t len);
};

/* Mounts the share of the vhost-user daemon that listens at a socket: for processes on Linux. */
int transom_connect(const char *socket, transom_fs **fs, char *message, size_t message_len);

/* Mounts the file system behind virtio-mmio registers, which is polled. `registers` is copied. */
int transom_mount_mmio(const struct transom_platform *platform, const struct transom_registers *registers,
                       transom_fs **fs, char *message, size_t message_len);

/* Mounts the file system that is a PCI function, which is polled. `pci` is only used during the call. */
int transom_mount_pci(const struct transom_platform *platform, const struct transom_pci *pci, transom_fs **fs,
                      char *message, size_t message_len);

/* Writes everything back and ends the session. `fs` is gone, also after an error. */
int transom_unmount(transom_fs *fs);

/* Writes back what is cached, and makes the share durable. */
int transom_syncfs(transom_fs *fs);

/* Looks a name up and returns its attributes; follows symbolic links, or does not. */
int transom_stat(transom_fs *fs, const char *path, struct transom_attr *attr);
int transom_lstat(transom_fs *fs, const char *path, struct transom_attr *attr);

int transom_mkdir(transom_fs *fs, const char *path, uint32_t mode);
int transom_rmdir(transom_fs *fs, const char *path);
int transom_unlink(transom_fs *fs, const char *path);
int transom_rename(transom_fs *fs, const char *from, const char *to);

int transom_open(transom_fs *fs, const char *path, uint32_t flags, uint32_t mode, transom_file **file);
/* Return the number of bytes: fewer than `len` only at the end of the file, or after an error behind them. */
int64_t transom_read(transom_file *file, uint64_t offset, void *buffer, size_t len);
int64_t transom_write(transom_file *file, uint64_t offset, const void *buffer, size_t len);
int transom_fstat(transom_file *file, struct transom_attr *attr);
int transom_truncate(transom_file *file, uint64_t size);
int transom_fsync(transom_file *file);
/* Returns errors of writing back. `file` is gone, also after an error. */
int transom_close(transom_file *file);

int transom_opendir(transom_fs *fs, const char *path, transom_dir **dir);
/* Returns 1 and the next entry, without `.` and `..`; 0 at the end. */
int transom_readdir(transom_dir *dir, struct transom_entry *entry);
void transom_closedir(transom_dir *dir);

/* Writes the meaning of an error that one of these functions has returned. */
int transom_describe(int error, char *message, size_t message_len);

#ifdef __cplusplus
}
#endif

#endif
