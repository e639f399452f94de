/* Uses a share through transom.h: argv[1] is the daemon's socket. Prints what it saw; exits with 1 at the first error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transom.h"

#define CHECK(call)                                                                  \
    do {                                                                             \
        int64_t result = (call);                                                     \
        if (result < 0) {                                                            \
            char why[100];                                                           \
            transom_describe((int)result, why, sizeof why);                          \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, why);              \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define EXPECT(holds)                                                                \
    do {                                                                             \
        if (!(holds)) {                                                              \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #holds);              \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static void errors(transom_fs *fs, transom_file *file) {
    struct transom_attr attr;
    transom_file *none = (transom_file *)1;
    char message[8];
    char *path = malloc(5000);
    memset(path, 'x', 4999);
    path[4999] = 0;
    EXPECT(transom_stat(fs, "absent", &attr) == -2);
    EXPECT(transom_open(fs, "absent", TRANSOM_O_RDONLY, 0, &none) == -2 && none == NULL);
    EXPECT(transom_stat(fs, path, &attr) == -36);
    EXPECT(transom_stat(fs, NULL, &attr) == -14);
    EXPECT(transom_stat(NULL, "hello", &attr) == -14);
    EXPECT(transom_stat(fs, "hello", NULL) == -14);
    EXPECT(transom_read(file, 0, NULL, 1) == -14);
    EXPECT(transom_read(file, 0, NULL, 0) == 0);
    EXPECT(transom_read(file, 0, path, SIZE_MAX) == -22);
    EXPECT(transom_unmount(NULL) == -14);
    EXPECT(transom_close(NULL) == -14);
    EXPECT(transom_connect("/nonexistent/socket", &fs, message, sizeof message) == -2 && fs == NULL);
    EXPECT(strlen(message) == sizeof message - 1);
    transom_closedir(NULL);
    free(path);
}

int main(int argc, char **argv) {
    transom_fs *fs;
    transom_file *file;
    transom_dir *dir;
    struct transom_attr attr;
    struct transom_entry entry;
    char message[200] = "usage: cat SOCKET", buffer[1000];
    int64_t len;
    int more;

    if (argc != 2 || transom_connect(argv[1], &fs, message, sizeof message) != 0) {
        fprintf(stderr, "cannot connect: %s\n", message);
        return 1;
    }
    CHECK(transom_stat(fs, "hello", &attr));
    printf("hello: %llu bytes, mode %o\n", (unsigned long long)attr.size, attr.mode);
    CHECK(transom_open(fs, "hello", TRANSOM_O_RDONLY, 0, &file));
    CHECK(len = transom_read(file, 0, buffer, sizeof buffer));
    printf("%.*s", (int)len, buffer);
    errors(fs, file);
    CHECK(transom_close(file));

    CHECK(transom_mkdir(fs, "made", 0755));
    CHECK(transom_open(fs, "made/file", TRANSOM_O_RDWR | TRANSOM_O_CREAT | TRANSOM_O_EXCL, 0640, &file));
    EXPECT(transom_write(file, 3, "by C\n", 5) == 5);
    CHECK(transom_fsync(file));
    CHECK(transom_truncate(file, 100000));
    CHECK(transom_fstat(file, &attr));
    EXPECT(attr.size == 100000 && (attr.mode & 0777) == 0640);
    CHECK(transom_truncate(file, 8));
    CHECK(transom_close(file));
    CHECK(transom_rename(fs, "made/file", "made/renamed"));
    CHECK(transom_mkdir(fs, "made/empty", 0755));
    CHECK(transom_rmdir(fs, "made/empty"));
    CHECK(transom_open(fs, "made/gone", TRANSOM_O_WRONLY | TRANSOM_O_CREAT, 0600, &file));
    CHECK(transom_close(file));
    CHECK(transom_unlink(fs, "made/gone"));
    CHECK(transom_opendir(fs, "made", &dir));
    while ((more = transom_readdir(dir, &entry)) > 0)
        printf("made/%s, of type %u, %u letters\n", entry.name, entry.type, entry.name_len);
    CHECK(more);
    transom_closedir(dir);
    CHECK(transom_syncfs(fs));
    CHECK(transom_unmount(fs));
    return 0;
}
