/* SPDX-License-Identifier: MIT
 *
 * process.h - what this process holds of the machine, for tests that watch it stay the same.
 */
#ifndef OG_PROCESS_H
#define OG_PROCESS_H

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

/* Entries of a folder of /proc. */
static inline int process_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static inline int process_handles(void)
{
    return process_entries("/proc/self/fd");
}

static inline int process_threads(void)
{
    return process_entries("/proc/self/task");
}

/* Resident memory, in bytes. */
static inline long process_bytes(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

#endif
