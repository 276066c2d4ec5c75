/* SPDX-License-Identifier: MIT
 *
 * fuzz_replay.c - main() of the fuzzers where libFuzzer is not linked: feeds
 * every file named, and every file in a folder named, to the fuzzer once. So any
 * compiler replays the corpus as a regression test. libFuzzer's own main(), where
 * linked, is found first.
 */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (!file || fstat(fileno(file), &info)) {
        perror(path);
        return 1;
    }
    /* Exactly as large as the file, so that a sanitizer sees one byte too many. */
    size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) {
        perror(path);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0, files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (!folder) {
            failed += replay_file(argv[i]);
            files++;
            continue;
        }
        struct dirent *entry;
        while ((entry = readdir(folder))) {
            char path[4096];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            failed += replay_file(path);
            files++;
        }
        closedir(folder);
    }
    printf("%d files replayed\n", files);
    return failed || !files;
}
