/* SPDX-License-Identifier: MIT
 *
 * shim_link.h - between a kernel compiled for the CPU (shim_device.h) and the fake
 * driver that runs it (fake_launch.c): C and C++, no include, since a kernel's source
 * brings integer types of its own.
 *
 * A module exports
 *     og_shim_link           a pointer to shim_link that the driver fills in at load
 *     og_shim_shared         where shared memory is: static from, to, then dynamic
 *     og_entry_NAME          calls kernel NAME with the launch's parameters
 *     og_bounds_NAME         threads of its __launch_bounds__, 0 if it has none
 *     og_cluster_NAME        blocks of its __cluster_dims__, 1 if it has none
 * or is idle (OGIVE_SHIM_IDLE=1): SHIM_IDLE and then the kernel's source, which nothing compiles.
 */
#ifndef OG_SHIM_LINK_H
#define OG_SHIM_LINK_H

#define SHIM_IDLE "shim: idle\n"

/* Dynamic shared memory of a block on an H200: 227 KiB. */
enum { SHIM_SHARED_BYTES = 227 * 1024 };

/* What a thread waits for together with others. */
enum {
    SHIM_BARRIER,     /* the block */
    SHIM_BARRIER_AND, /* the same with a vote */
    SHIM_BARRIER_OR,
    SHIM_BARRIER_COUNT,
    SHIM_WARP,    /* lanes of a mask */
    SHIM_SHUFFLE, /* ... each takes the value of a source lane */
    SHIM_BALLOT
};

struct shim_index {
    unsigned x, y, z;
};

struct shim_factor;

struct shim_link {
    struct shim_index thread, block, block_size, grid_size; /* of whom runs now */
    unsigned rank, cluster; /* of the block in its cluster, and how many blocks that has; 0, 1 */
    char *other_shared;     /* dynamic shared memory of the cluster's next block, or NULL */
    /* Where block rank of the cluster has what is at `shared` in this one. */
    void *(*find_in_block)(unsigned rank, const void *shared);
    /* Waits at the block's barrier; returns the vote's result. */
    int (*barrier)(int kind, int vote);
    /* Waits for the lanes of mask. SHUFFLE: the value of lane source; BALLOT: bits of
     * the lanes whose value is not 0. */
    unsigned long long (*meet)(int kind, unsigned mask, int source, unsigned long long value);
    /* Every load and store, in a module compiled for checking. */
    void (*touch)(const volatile void *address, unsigned long bytes, int write);
    void (*fail)(const char *message);
    /* Others run, then this thread again. */
    void (*pause)(void);
    /* Threads have met by other means than these: what they did before races with nothing that
     * is done from now on. */
    void (*settle)(void);
    /* The thread has waited for the launch before this one. */
    void (*await_launch)(void);
    /* sum + x w over 16 k as a Hopper does it (arXiv 2511.10909): products, not normalised, and the
     * sum are aligned to the greatest of their exponents and truncated 25 bits below it, added
     * exactly, and truncated to float32. least: the exponent that a factor's type ends with. */
    float (*add_products)(float sum, const float *x, const float *w, int least);
    /* A lane's n numbers of d (16 x 2 n) = or += left (16 x 16) right (2 n x 16), 16 k along each:
     * lane 4 g + t has of each 8 columns 2 t and 2 t + 1, of rows g and g + 8. */
    void (*multiply)(float *d, int n, int adds, int least, const float (*left)[16],
                     const float (*right)[16], int lane);
    /* 16 k of a row of a factor in shared memory, as numbers. */
    void (*read_row)(const struct shim_factor *from, int row, float *to);
};

/* A factor of halves in shared memory, which og_describe() of hopper_ptx.cuh describes. */
struct shim_factor {
    const struct shim_link *link;
    const char *shared; /* dynamic shared memory */
    unsigned long long description;
    int across, is_bfloat;
    int checks; /* is every load looked at? */
};

/* What cuTensorMapEncodeTiled() leaves in a map's 128 bytes. */
enum { SHIM_MAP_MAGIC = 0x70616d };
struct shim_map {
    unsigned magic, bytes; /* bytes: of an element */
    unsigned long long address, extents[5], pitches[4];
    unsigned box[5];
    unsigned char steps[5], swizzle; /* over 16 << swizzle bytes; 0: none */
};

/* A compiler does not put static variables of templates into the section that others are in. They
 * are among all of the module's that begin as zeros, some of which are not a block's. */
enum { SHIM_NOT_BLOCKS = 5 };
struct shim_shared {
    char *from, *to, *dynamic;
    char *zeros_from, *zeros_to;
    struct {
        char *from;
        unsigned long bytes;
    } not_blocks[SHIM_NOT_BLOCKS];
};

#endif
