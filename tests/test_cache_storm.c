/* SPDX-License-Identifier: MIT
 *
 * test_cache_storm.c - eight processes use one folder of compiled kernels, cold at first, and are
 * killed at any moment, between write and rename too. What is loaded is whole, always; in the end
 * every image can be stored and loaded.
 */
#include "test.h"

#include "cuda/host/cuda_cache.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { PROCESSES = 8, KEYS = 12, MOST_BYTES = 1 << 16 };

/* Image number i: as long as i says, every byte by its place. */
static size_t make_image(int i, unsigned char key[OG_SHA256_BYTES], unsigned char *image)
{
    size_t bytes = 1 + (size_t)i * (MOST_BYTES - 1) / KEYS;
    memset(key, i + 1, OG_SHA256_BYTES);
    for (size_t at = 0; at < bytes; at++)
        image[at] = (unsigned char)(at * 31 + (size_t)i * 7 + at / 256);
    return bytes;
}

/* Loads image i; *found says whether there is one. False if it is not what was stored. */
static bool load_image(int i, bool *found)
{
    static unsigned char want[MOST_BYTES];
    unsigned char key[OG_SHA256_BYTES], *image = NULL;
    size_t bytes = 0, want_bytes = make_image(i, key, want);
    *found = og_cuda_cache_load(key, i % 2 ? 12 : 0, i % 2 ? 8 : 0, &image, &bytes);
    bool right = !*found || (bytes == want_bytes && memcmp(image, want, bytes) == 0);
    free(image);
    return right;
}

static void store_image(int i)
{
    static unsigned char image[MOST_BYTES];
    unsigned char key[OG_SHA256_BYTES];
    char reason[160];
    size_t bytes = make_image(i, key, image);
    og_cuda_cache_store(key, 12, 8, image, bytes, reason);
}

/* A process of its own: stores what it does not find, and now and then what it does. */
static pid_t start_process(int seed)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    test_random random = {(uint64_t)seed * 2654435761u + test_seed()};
    for (;;) {
        int i = (int)test_random_below(&random, KEYS);
        bool found;
        if (!load_image(i, &found))
            _exit(1);
        if (!found || test_random_below(&random, 4) == 0)
            store_image(i);
    }
}

static void test_processes_are_killed(void **state)
{
    (void)state;
    test_random random = test_random_named("kill");
    pid_t processes[PROCESSES];
    int kills = test_full() ? 20000 : 300;
    for (int p = 0; p < PROCESSES; p++)
        processes[p] = start_process(p);
    for (int n = 0; n < kills; n++) {
        int p = (int)test_random_below(&random, PROCESSES), status;
        nanosleep(&(struct timespec){.tv_nsec = test_random_below(&random, 5000000)}, NULL);
        kill(processes[p], SIGKILL);
        assert_int_equal(waitpid(processes[p], &status, 0), processes[p]);
        assert_true(WIFSIGNALED(status)); /* it did not find a wrong image before */
        processes[p] = start_process(PROCESSES + n);
    }
    for (int p = 0; p < PROCESSES; p++) {
        kill(processes[p], SIGKILL);
        waitpid(processes[p], NULL, 0);
    }
    for (int i = 0; i < KEYS; i++) {
        bool found;
        assert_true(load_image(i, &found));
        store_image(i);
        assert_true(load_image(i, &found));
        assert_true(found);
    }
}

static char folder[] = "/tmp/ogive-storm.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder) || setenv("OGIVE_CACHE_DIR", folder, 1);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_processes_are_killed)};
    return test_report(cmocka_run_group_tests(tests, make_folder, remove_folder));
}
