/* SPDX-License-Identifier: MIT
 *
 * test_cuda_host_cache.c - the disk cache of compiled kernels: whatever happens to its
 * files, a load gives the bytes that were stored or nothing. No GPU is involved.
 *
 * write(), fsync() and renameat() are wrapped (CMakeLists.txt), to fail when asked to.
 */
#include "test.h"

#include "cuda/host/cuda_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* ---- faults ------------------------------------------------------------------------- */

typedef enum { NONE, FULL_DISK, SHORT_WRITES, NO_SYNC, NO_RENAME, KILLED } fault;
static fault wanted;

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat(int from, const char *name, int to, const char *target);
int __wrap_renameat(int from, const char *name, int to, const char *target);

ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    static int calls;
    errno = ENOSPC;
    if (wanted == FULL_DISK && calls++ % 2 == 1) /* after the header */
        return -1;
    if (wanted == SHORT_WRITES && bytes > 7)
        bytes = 7;
    errno = EINTR;
    if (wanted == SHORT_WRITES && calls++ % 3 == 0)
        return -1;
    return __real_write(fd, data, bytes);
}

int __wrap_fsync(int fd)
{
    errno = EIO;
    return wanted == NO_SYNC ? -1 : __real_fsync(fd);
}

int __wrap_renameat(int from, const char *name, int to, const char *target)
{
    if (wanted == KILLED)
        raise(SIGKILL);
    errno = EACCES;
    return wanted == NO_RENAME ? -1 : __real_renameat(from, name, to, target);
}

/* ---- a folder and an image ------------------------------------------------------------- */

static char folder[256], path[400];
static unsigned char key[OG_SHA256_BYTES], image[3000];
static char reason[160];

static int make_folder(void **unused)
{
    (void)unused;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ogive-cache-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    char text[OG_SHA256_TEXT];
    test_random random = test_random_named("cache");
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (unsigned char)test_random_bits(&random);
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (unsigned char)test_random_bits(&random);
    snprintf(path, sizeof path, "%s/%s-13.0.image", folder, og_sha256_text(key, text));
    setenv("OGIVE_CACHE_DIR", folder, 1);
    wanted = NONE;
    reason[0] = 0;
    return 0;
}

static int remove_folder(void **unused)
{
    (void)unused;
    char name[600];
    chmod(folder, 0700);
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));) {
        snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
        unlink(name);
    }
    if (open)
        closedir(open);
    return rmdir(folder);
}

static int count_files(const char *prefix)
{
    int count = 0;
    DIR *open = opendir(folder);
    assert_non_null(open);
    for (struct dirent *entry; (entry = readdir(open));)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
                 strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open);
    return count;
}

static bool store(void)
{
    return og_cuda_cache_store(key, 13, 0, image, sizeof image, reason);
}

/* Whether the image is there, as it was stored; anything else fails the test. */
static bool is_there(int major, int minor)
{
    unsigned char *data = NULL;
    size_t bytes = 0;
    bool found = og_cuda_cache_load(key, major, minor, &data, &bytes);
    if (found) {
        assert_int_equal(bytes, sizeof image);
        assert_memory_equal(data, image, bytes);
    } else {
        assert_null(data);
    }
    free(data);
    return found;
}

/* ---- tests ---------------------------------------------------------------------------- */

static void check_hash(const char *text, size_t repeats, const char *want)
{
    unsigned char hash[OG_SHA256_BYTES];
    char digits[OG_SHA256_TEXT];
    og_sha256 state;
    og_sha256_start(&state);
    for (size_t i = 0; i < repeats; i++)
        og_sha256_add(&state, text, strlen(text));
    og_sha256_finish(&state, hash);
    assert_string_equal(og_sha256_text(hash, digits), want);
}

/* FIPS 180-4's examples, and every length around a block by another's hash. */
static void test_sha256(void **unused)
{
    (void)unused;
    check_hash("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_hash("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_hash("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    check_hash("a", 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    check_hash("a", 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
    check_hash("a", 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

static void test_keeps(void **unused)
{
    (void)unused;
    struct stat about;
    char state[OG_CUDA_FOLDER_TEXT];
    assert_false(is_there(13, 0));
    assert_null(og_cuda_cache_state(state, reason));
    assert_string_equal(state, folder);
    assert_true(store());
    assert_true(is_there(13, 0));
    assert_false(is_there(13, 1)); /* another NVRTC's */
    assert_true(is_there(0, 0));   /* any */
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(count_files(""), 1);
    assert_true(store()); /* again */
    assert_true(is_there(13, 0));
    key[5] ^= 1;
    assert_false(is_there(13, 0));
    assert_false(is_there(0, 0));
    assert_false(og_cuda_cache_store(key, 13, 0, image, 0, reason));
}

/* Any version: the newest, by number. */
static void test_newest(void **unused)
{
    (void)unused;
    unsigned char *data;
    size_t bytes;
    static const struct {
        int major, minor;
    } versions[] = {{12, 9}, {13, 10}, {13, 2}, {9, 99}};
    for (size_t i = 0; i < TEST_COUNT(versions); i++)
        assert_true(
            og_cuda_cache_store(key, versions[i].major, versions[i].minor, image, 100 + i, reason));
    assert_true(og_cuda_cache_load(key, 0, 0, &data, &bytes));
    assert_int_equal(bytes, 101);
    free(data);
    /* Names that only look alike. */
    char text[OG_SHA256_TEXT], name[500];
    static const char *const endings[] = {"-99.9.imagex", "-99.image", "-99.9", "-99.9.image~"};
    for (size_t i = 0; i < TEST_COUNT(endings); i++) {
        snprintf(name, sizeof name, "%s/%s%s", folder, og_sha256_text(key, text), endings[i]);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    assert_true(og_cuda_cache_load(key, 0, 0, &data, &bytes));
    assert_int_equal(bytes, 101);
    free(data);
    /* A damaged one is passed over. */
    static const size_t older[] = {102, 100, 103};
    static const char *const newest[] = {"13.10", "13.2", "12.9", "9.99"};
    for (size_t i = 0; i < TEST_COUNT(newest); i++) {
        snprintf(name, sizeof name, "%s/%s-%s.image", folder, text, newest[i]);
        assert_int_equal(truncate(name, 90), 0);
        bool found = og_cuda_cache_load(key, 0, 0, &data, &bytes);
        assert_int_equal(found, i < TEST_COUNT(older));
        assert_int_equal(bytes, i < TEST_COUNT(older) ? older[i] : 0);
        free(data);
    }
}

static void flip_byte(off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* One bit anywhere in the header, or in the image. */
static void test_flipped(void **unused)
{
    (void)unused;
    struct stat about;
    assert_true(store());
    assert_int_equal(stat(path, &about), 0);
    for (off_t at = 0; at < about.st_size; at += at < 100 ? 1 : 97) {
        flip_byte(at);
        assert_false(is_there(13, 0));
        flip_byte(at);
    }
    assert_true(is_there(13, 0));
    flip_byte(200);
    assert_true(store()); /* as a compilation would */
    assert_true(is_there(13, 0));
}

static void test_truncated(void **unused)
{
    (void)unused;
    struct stat about;
    assert_true(store());
    assert_int_equal(stat(path, &about), 0);
    for (off_t size = about.st_size - 1; size >= 0; size -= size > 100 ? 131 : 1) {
        assert_int_equal(truncate(path, size), 0);
        assert_false(is_there(13, 0));
    }
    assert_true(store());
    assert_int_equal(truncate(path, about.st_size + 1), 0);
    assert_false(is_there(13, 0));
}

/* What is no ordinary file of the caller's. */
static void test_alien(void **unused)
{
    (void)unused;
    char other[500];
    assert_true(store());
    assert_int_equal(chmod(path, 0620), 0);
    assert_false(is_there(13, 0));
    assert_int_equal(chmod(path, 0602), 0);
    assert_false(is_there(13, 0));
    assert_int_equal(chmod(path, 0600), 0);
    assert_true(is_there(13, 0));
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        assert_false(is_there(13, 0));
        assert_int_equal(chown(path, 0, (gid_t)-1), 0);
    }
    snprintf(other, sizeof other, "%s/moved", folder);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_false(is_there(13, 0));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* must not wait for a writer */
    assert_false(is_there(13, 0));
    assert_true(store()); /* in its place */
    assert_true(is_there(13, 0));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(is_there(13, 0));
    assert_false(store());
    assert_int_equal(rmdir(path), 0);
}

/* Others could have written what is there. */
static void test_open_folder(void **unused)
{
    (void)unused;
    char state[OG_CUDA_FOLDER_TEXT];
    assert_true(store());
    for (mode_t mode = 0720; mode <= 0770; mode += 050) {
        assert_int_equal(chmod(folder, mode), 0);
        assert_false(is_there(13, 0));
        assert_false(store());
        assert_string_equal(reason, "it belongs to another user, or others can write to it");
        assert_non_null(og_cuda_cache_state(state, reason));
    }
    assert_int_equal(chmod(folder, 0700), 0);
    assert_true(is_there(13, 0));
}

/* Runs check in a child; its exit status. */
static int in_child(int (*check)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(check());
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static bool loads(void)
{
    unsigned char *data;
    size_t bytes;
    bool good = og_cuda_cache_load(key, 13, 0, &data, &bytes) && bytes == sizeof image &&
                memcmp(data, image, bytes) == 0;
    free(data);
    return good;
}

static int read_as_nobody(void)
{
    char state[OG_CUDA_FOLDER_TEXT];
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 9;
    const char *problem = og_cuda_cache_state(state, reason);
    if (!problem || strcmp(problem, "it belongs to root and is only read") != 0)
        return 2;
    return !loads() ? 3 : store() ? 4 : 0;
}

static int refuse_as_nobody(void)
{
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 9;
    return loads() ? 2 : store() ? 3 : 0;
}

/* A folder that root has filled is read, if nobody else can write to it. */
static void test_root_folder(void **unused)
{
    (void)unused;
    if (geteuid() != 0)
        skip();
    assert_true(store());
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(in_child(refuse_as_nobody), 0); /* the file is root's alone */
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(in_child(read_as_nobody), 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(in_child(refuse_as_nobody), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chown(folder, 12345, (gid_t)-1), 0);
    assert_int_equal(in_child(refuse_as_nobody), 0);
    assert_false(is_there(13, 0)); /* not root's own either */
    assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
}

static int store_read_only(void)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 9;
    char state[OG_CUDA_FOLDER_TEXT];
    if (store() || !loads())
        return 2;
    const char *problem = og_cuda_cache_state(state, reason);
    if (!problem || strcmp(problem, "it is only read: Permission denied") != 0)
        return 3;
    strcat(state, "/new/folder");
    setenv("OGIVE_CACHE_DIR", state, 1);
    problem = og_cuda_cache_state(state, reason);
    return problem && strcmp(problem, "it cannot be made: Permission denied") == 0 ? 0 : 4;
}

static void test_read_only_folder(void **unused)
{
    (void)unused;
    assert_true(store());
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_int_equal(chown(folder, 65534, 65534), 0);
    }
    assert_int_equal(chmod(folder, 0500), 0);
    assert_int_equal(in_child(store_read_only), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(folder, 0, 0), 0);
}

static void test_faults(void **unused)
{
    (void)unused;
    static const struct {
        fault fault;
        int code;
    } faults[] = {{FULL_DISK, ENOSPC}, {NO_SYNC, EIO}, {NO_RENAME, EACCES}};
    for (size_t i = 0; i < TEST_COUNT(faults); i++) {
        wanted = faults[i].fault;
        assert_false(store());
        assert_string_equal(reason, strerror(faults[i].code));
        wanted = NONE;
        assert_false(is_there(13, 0));
        assert_int_equal(count_files(""), 0);
    }
    wanted = SHORT_WRITES;
    assert_true(store());
    assert_true(is_there(13, 0));
}

static int store_limited(void)
{
    const struct rlimit limit = {1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 9;
    return store() ? 2 : 0;
}

/* A limit on the size of files: writing beyond it would end the process. */
static void test_size_limit(void **unused)
{
    (void)unused;
    assert_int_equal(in_child(store_limited), 0);
    assert_int_equal(count_files(""), 0);
}

static int store_killed(void)
{
    wanted = KILLED;
    return store();
}

/* Killed between writing and renaming: nothing is found, the next one stores, and what
 * was left is removed when it is an hour old. */
static void test_killed(void **unused)
{
    (void)unused;
    char name[600];
    assert_int_equal(in_child(store_killed), 1000 + SIGKILL);
    assert_int_equal(count_files(".writing-"), 1);
    assert_false(is_there(13, 0));
    assert_true(store());
    assert_int_equal(count_files(".writing-"), 1); /* its writer may be alive */
    DIR *open = opendir(folder);
    for (struct dirent *entry; (entry = readdir(open));)
        if (strncmp(entry->d_name, ".writing-", 9) == 0) {
            const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
            snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
            assert_int_equal(utimensat(AT_FDCWD, name, old, 0), 0);
        }
    closedir(open);
    assert_true(store());
    assert_int_equal(count_files(".writing-"), 0);
    assert_true(is_there(13, 0));
}

/* A file of so many MiB that takes no room, last used so many days ago. */
static void place_file(const char *format, int number, int mebibytes, int days)
{
    char name[600], file[200];
    const struct timespec used = {.tv_sec = time(NULL) - days * 86400}, both[2] = {used, used};
    snprintf(file, sizeof file, format, number);
    snprintf(name, sizeof name, "%s/%s", folder, file);
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)mebibytes << 20), 0);
    assert_int_equal(futimens(fd, both), 0);
    close(fd);
}

/* More than 1 GiB: what was used longest ago goes, other files stay, and a load is a use. */
static void test_most_bytes(void **unused)
{
    static const int days[] = {3, 9, 5, 8, 4};
    struct stat about;
    (void)unused;
    place_file("notes-%d.image", 1, 5000, 100);
    for (int i = 0; i < 5; i++)
        place_file("%064d-13.0.image", i, 300, days[i]);
    assert_true(store());
    assert_int_equal(count_files("notes"), 1);
    assert_int_equal(count_files("000"), 3);
    assert_int_equal(
        count_files("0000000000000000000000000000000000000000000000000000000000000001"), 0);
    assert_int_equal(
        count_files("0000000000000000000000000000000000000000000000000000000000000003"), 0);
    assert_true(is_there(13, 0));
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(is_there(13, 0));
    assert_int_equal(stat(path, &about), 0);
    assert_true(time(NULL) - about.st_mtime < 3600);
    place_file("%064d-13.0.image", 7, 300, 1);
    assert_true(store());
    assert_int_equal(count_files("000"), 3);
    assert_true(is_there(13, 0));
}

/* Stores images of one key and several lengths, and loads: each must be whole. */
static int race(void)
{
    for (int i = 0; i < 60; i++) {
        size_t length = 500 + (size_t)(getpid() + i) % 5 * 500, bytes;
        unsigned char *data;
        if (!og_cuda_cache_store(key, 13, 0, image, length, reason))
            return 2;
        if (!og_cuda_cache_load(key, 13, 0, &data, &bytes) || memcmp(data, image, bytes) != 0 ||
            bytes % 500 != 0)
            return 3;
        free(data);
    }
    return 0;
}

static void test_race(void **unused)
{
    (void)unused;
    enum { PROCESSES = 6 };
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(race());
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(count_files(""), 1);
}

/* The folder is made when it is needed, with those above it. */
static void test_where(void **unused)
{
    (void)unused;
    char deep[300], state[OG_CUDA_FOLDER_TEXT];
    struct stat about;
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    setenv("XDG_CACHE_HOME", deep, 1);
    unsetenv("OGIVE_CACHE_DIR");
    assert_null(og_cuda_cache_state(state, reason));
    assert_false(is_there(13, 0));
    assert_int_equal(count_files(""), 0); /* looking makes nothing */
    assert_true(store());
    assert_true(is_there(13, 0));
    snprintf(path, sizeof path, "%s/ogive", deep);
    assert_string_equal(state, path);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0700);
    char command[500];
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", deep, 1);
    og_cuda_cache_state(state, reason);
    snprintf(path, sizeof path, "%s/.cache/ogive", deep);
    assert_string_equal(state, path);
    setenv("HOME", "", 1);
    assert_string_equal(og_cuda_cache_state(state, reason),
                        "none of OGIVE_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    assert_false(store());
    static char long_name[OG_CUDA_FOLDER_TEXT + 1];
    memset(long_name, 'a', OG_CUDA_FOLDER_TEXT);
    setenv("OGIVE_CACHE_DIR", long_name, 1);
    assert_string_equal(og_cuda_cache_state(state, reason), "the folder's name is too long");
    assert_false(store());
    setenv("OGIVE_CACHE_DIR", "no/relative/folder/", 1); /* it would be made where we are */
    assert_null(og_cuda_cache_state(state, reason));
    setenv("OGIVE_CACHE_DIR", "/dev/null", 1);
    assert_false(store());
    assert_false(is_there(13, 0));
    setenv("OGIVE_CACHE_DIR", "/proc/self/none", 1);
    assert_false(store());
    snprintf(command, sizeof command, "rm -rf '%s/a'", folder);
    assert_int_equal(system(command), 0);
}

/* A setuid program: its environment is the caller's, who must not say whose code it runs. */
static int run_raised(void)
{
    char program[300];
    snprintf(program, sizeof program, "%s/raised", folder);
    if (setgid(12345) != 0 || setuid(12345) != 0)
        return 9;
    execl(program, program, "raised", (char *)NULL);
    return 8;
}

/* What the copy does. */
static int look_raised(void)
{
    char state[OG_CUDA_FOLDER_TEXT];
    if (!getauxval(AT_SECURE))
        return 77; /* a file system without setuid programs */
    const char *problem = og_cuda_cache_state(state, reason);
    return problem && strstr(problem, "none of OGIVE_CACHE_DIR") ? 0 : 2;
}

static void test_raised_privileges(void **unused)
{
    (void)unused;
    char command[1000];
    if (geteuid() != 0)
        skip();
    snprintf(command, sizeof command,
             "cp /proc/%d/exe '%s/raised' && chown 65534 '%s/raised' && chmod 4755 '%s/raised'",
             (int)getpid(), folder, folder, folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    setenv("HOME", folder, 1);
    int status = in_child(run_raised);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "raised") == 0)
        _exit(look_raised()); /* no leak check: it does not work in setuid programs */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        TEST(test_keeps),
        TEST(test_newest),
        TEST(test_flipped),
        TEST(test_truncated),
        TEST(test_alien),
        TEST(test_open_folder),
        TEST(test_root_folder),
        TEST(test_read_only_folder),
        TEST(test_faults),
        TEST(test_size_limit),
        TEST(test_killed),
        TEST(test_most_bytes),
        TEST(test_race),
        TEST(test_where),
        TEST(test_raised_privileges),
    };
    return TEST_RUN(tests);
}
