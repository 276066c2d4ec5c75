/* SPDX-License-Identifier: MIT
 *
 * shim_hopper.h - what hopper_ptx.cuh has on a GPU, for a CPU: barriers in shared memory,
 * TMA's boxes, products of a warpgroup. shim_device.h includes it.
 *
 * What is asynchronous on a GPU happens at once here: a box that is overwritten while a product
 * still reads it does not show. Addresses of shared memory are offsets into its dynamic part.
 */

static inline size_t __cvta_generic_to_shared(const void *p)
{
    return (size_t)((const char *)p - og_dynamic_shared);
}
static inline char *shim_shared_at(unsigned address)
{
    if (address >= SHIM_SHARED_BYTES)
        og_shim_link->fail("an address beyond shared memory");
    return og_dynamic_shared + address;
}

/* Lines of 128 bytes, or of 64 or 32 (swizzle 2 or 1): their 16-byte parts change places, by the
 * number of 128 bytes. */
static inline unsigned shim_swizzle(unsigned address, unsigned swizzle = 3)
{
    return address ^ (address >> 7 & ((1u << swizzle) - 1)) << 4;
}

/* ---- two numbers of 16 bits ------------------------------------------------------------- */

static inline unsigned og_max_halves(unsigned a, unsigned b)
{
    return max(a >> 16, b >> 16) << 16 | max(a & 0xffff, b & 0xffff);
}
static inline unsigned og_min_halves(unsigned a, unsigned b)
{
    return min(a >> 16, b >> 16) << 16 | min(a & 0xffff, b & 0xffff);
}
static inline unsigned og_add_halves(unsigned a, unsigned b)
{
    return ((a >> 16) + (b >> 16)) << 16 | ((a + b) & 0xffff);
}

/* ---- the lesser and the greater, NaN if one is ------------------------------------------ */

static inline float og_lesser(float a, float b)
{
    return a != a || a < b ? a : b;
}
static inline float og_greater(float a, float b)
{
    return a != a || a > b ? a : b;
}

/* ---- barriers -------------------------------------------------------------------------- */

struct shim_barrier {
    int arrivals, pending, bytes;
    unsigned phase;
};
static shim_barrier shim_barriers[2][SHIM_SHARED_BYTES / 8]; /* of each block of a cluster */

static inline shim_barrier &shim_barrier_at(unsigned address, unsigned rank)
{
    return shim_barriers[rank][address / 8];
}
static inline shim_barrier &shim_barrier_at(unsigned address)
{
    return shim_barrier_at(address, og_shim_link->rank);
}
static inline void shim_end_phase(shim_barrier &barrier)
{
    if (barrier.pending < 0)
        og_shim_link->fail("more arrivals than a barrier counts");
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.pending = barrier.arrivals;
        og_shim_link->settle();
    }
}
/* Lets others run until is_over(). */
template <class F> static inline void shim_wait(F is_over)
{
    for (int turns = 0; !is_over(); turns++) {
        if (turns == 100000)
            og_shim_link->fail("waits for what never comes");
        og_shim_link->pause();
    }
}

static inline void og_barrier_init(unsigned barrier, unsigned arrivals)
{
    shim_barrier_at(barrier) = {(int)arrivals, (int)arrivals, 0, 0};
}
static inline void og_publish_barriers()
{
}
static inline void shim_arrive(shim_barrier &barrier)
{
    barrier.pending--;
    shim_end_phase(barrier);
}
static inline void og_barrier_arrive(unsigned barrier)
{
    shim_arrive(shim_barrier_at(barrier));
}
static inline void og_barrier_expect(unsigned barrier, unsigned bytes)
{
    shim_barrier_at(barrier).bytes += (int)bytes;
    og_barrier_arrive(barrier);
}
static inline void og_barrier_wait(unsigned barrier, unsigned parity)
{
    shim_wait([=] { return shim_barrier_at(barrier).phase != parity; });
}
static inline void shim_need_cluster()
{
    if (!og_shim_link->other_shared)
        og_shim_link->fail("is in no cluster");
}
static inline void og_barrier_arrive_at(unsigned barrier, unsigned rank)
{
    shim_need_cluster();
    shim_arrive(shim_barrier_at(barrier, rank));
}

/* So many threads wait for each other. */
struct shim_meeting {
    unsigned came, rounds;
};
static inline void shim_meet(shim_meeting &meeting, unsigned count)
{
    const unsigned round = meeting.rounds;
    if (++meeting.came == count) {
        meeting.came = 0;
        meeting.rounds++;
        og_shim_link->settle();
    } else {
        shim_wait([&] { return meeting.rounds != round; });
    }
}
static shim_meeting shim_clusters_meeting, shim_groups_meetings[2][2];
static inline void og_meet_cluster()
{
    shim_need_cluster();
    shim_meet(shim_clusters_meeting, og_shim_link->cluster * blockDim.x);
}
template <class T> static inline void og_put_in_block(T *to, unsigned rank, const T &x)
{
    shim_need_cluster();
    if (rank >= og_shim_link->cluster)
        og_shim_link->fail("writes to a block that its cluster does not have");
    __builtin_memcpy(og_shim_link->find_in_block(rank, to), &x, sizeof x);
}

/* The 128 threads of consumer group 0 or 1. */
static inline void og_meet_group(int group)
{
    shim_meet(shim_groups_meetings[og_shim_link->rank][group], 128);
}

/* ---- boxes ----------------------------------------------------------------------------- */

#define OG_READ_ONCE 0
#define OG_READ_NORMALLY 0
#define OG_READ_OFTEN 0

template <class M> static inline void og_fetch_map(const M *)
{
}

/* Bytes of element (c, r, d) of the map, or none: they are 0 there. */
static inline const char *shim_find_element(const shim_map &map, long long c, long long r,
                                            long long d)
{
    const bool there = c >= 0 && r >= 0 && d >= 0 && c < (long long)map.extents[0] &&
                       r < (long long)map.extents[1] && d < (long long)map.extents[2];
    return there ? (const char *)map.address + c * map.bytes + r * (long long)map.pitches[0] +
                       d * (long long)map.pitches[1]
                 : nullptr;
}

template <class M> static inline shim_map shim_read_map(const M *at)
{
    shim_map map;
    static_assert(sizeof map <= sizeof *at, "a map's 128 bytes");
    __builtin_memcpy(&map, at, sizeof map);
    if (map.magic != SHIM_MAP_MAGIC)
        og_shim_link->fail("a copy by what is no map");
    return map;
}

/* An element of a box: what it is copied from, or 0. */
static inline void shim_put_element(char *place, const char *from, unsigned bytes)
{
#ifdef OG_SHIM_CHECK
    if (from)
        og_shim_link->touch(from, bytes, 0);
#endif
    if (from)
        __builtin_memcpy(place, from, bytes);
    else
        __builtin_memset(place, 0, bytes);
}

/* Into the shared memory of block rank of the cluster. */
template <class M>
static inline void shim_copy_box(unsigned rank, unsigned to, const M *at, int column, int row,
                                 int base, unsigned barrier)
{
    const bool is_own = rank == og_shim_link->rank;
    const shim_map map = shim_read_map(at);
    unsigned offset = 0;
    for (unsigned d = 0; d < map.box[2]; d++)
        for (unsigned r = 0; r < map.box[1]; r += map.steps[1])
            for (unsigned c = 0; c < map.box[0]; c++, offset += map.bytes) {
                const char *from = shim_find_element(map, (long long)column + c, (long long)row + r,
                                                     (long long)base + d);
                char *place = shim_shared_at(shim_swizzle(to + offset, map.swizzle));
                if (!is_own)
                    place = og_shim_link->other_shared + (place - og_dynamic_shared);
                shim_put_element(place, from, map.bytes);
            }
    shim_barrier_at(barrier, rank).bytes -= (int)offset;
    shim_end_phase(shim_barrier_at(barrier, rank));
}
template <class M>
static inline void og_copy_box(unsigned to, const M *at, int column, int row, int base,
                               unsigned barrier, unsigned long long)
{
    shim_copy_box(og_shim_link->rank, to, at, column, row, base, barrier);
}
template <class M>
static inline void og_copy_box_to_both(unsigned to, const M *at, int column, int row, int base,
                                       unsigned barrier, unsigned long long)
{
    shim_need_cluster();
    for (unsigned rank = 0; rank < 2; rank++)
        shim_copy_box(rank, to, at, column, row, base, barrier);
}

/* A box of five dims. */
template <class M>
static inline void og_copy_patch(unsigned to, const M *at, int w, int h, int d, int c, int b,
                                 unsigned barrier)
{
    const shim_map map = shim_read_map(at);
    const int first[5] = {w, h, d, c, b};
    unsigned counts[5], all = 1, offset = 0;
    for (int i = 0; i < 5; i++)
        all *= counts[i] = (map.box[i] + map.steps[i] - 1) / map.steps[i];
    if (w * (int)map.bytes % 16 || to % 128)
        og_shim_link->fail("a patch that does not begin at a multiple of 16 bytes");
    for (unsigned n = 0; n < all; n++, offset += map.bytes) {
        const char *from = (const char *)map.address;
        bool is_there = true;
        unsigned rest = n;
        for (int i = 0; i < 5; i++) {
            const long long place = first[i] + (long long)(rest % counts[i]) * map.steps[i];
            rest /= counts[i];
            is_there = is_there && place >= 0 && place < (long long)map.extents[i];
            from += place * (i ? (long long)map.pitches[i - 1] : (long long)map.bytes);
        }
        shim_put_element(shim_shared_at(shim_swizzle(to + offset, map.swizzle)),
                         is_there ? from : nullptr, map.bytes);
    }
    shim_barrier_at(barrier).bytes -= (int)offset;
    shim_end_phase(shim_barrier_at(barrier));
}

/* Of any type: the bytes there. */
struct shim_read {
    unsigned at;
    template <class T> operator T() const
    {
        T value;
        if (at % sizeof value)
            og_shim_link->fail("what is read of shared memory is not aligned");
        __builtin_memcpy(&value, shim_shared_at(at), sizeof value);
        return value;
    }
};
static inline shim_read og_load_shared(unsigned at)
{
    return {at};
}
static inline shim_read og_load_shared_two(unsigned at)
{
    return {at};
}
static inline shim_read og_load_shared_one(unsigned at)
{
    return {at};
}
static inline shim_read og_load_shared_words(unsigned at)
{
    return {at};
}
static inline void og_load_matrices_at(unsigned *to, unsigned row)
{
    og_load_matrices(to, shim_shared_at(row));
}
static inline void og_finish_loads()
{
}

/* ---- products -------------------------------------------------------------------------- */

template <int registers> static inline void og_give_registers()
{
}
template <int registers> static inline void og_take_registers()
{
}
static inline void og_products_fence()
{
}
static inline void og_products_commit()
{
}
template <int groups> static inline void og_products_wait()
{
}
static inline void og_pin_memory()
{
}
template <int n> static inline void og_pin(float (&)[n])
{
}

/* stmatrix.trans: lane 8 j + i writes column i of matrix j. */
static inline void og_store_matrices_across(unsigned at, const unsigned (&four)[4])
{
    const shim_lanes<4> &lanes = shim_exchange<4>(four);
    const int matrix = shim_lane() / 8, column = shim_lane() % 8;
    if (at % 16)
        og_shim_link->fail("a line of a matrix is not aligned");
    for (int row = 0; row < 8; row++) {
        const unsigned both = lanes.of[row * 4 + column / 2][matrix];
        const unsigned short half = (unsigned short)(both >> 16 * (column % 2));
        __builtin_memcpy(shim_shared_at(at + 2 * row), &half, 2);
    }
    __syncwarp();
}

/* Rows of a described factor: og_describe() of hopper_ptx.cuh. */
static inline shim_factor shim_described(unsigned long long description, bool across,
                                         bool is_bfloat)
{
#ifdef OG_SHIM_CHECK
    const bool checks = true;
#else
    const bool checks = false;
#endif
    return {og_shim_link, og_dynamic_shared, description, across, is_bfloat, checks};
}

/* A warp's factors as numbers: 16 rows of left, 2 n columns of right, 16 k of each. */
struct shim_factors {
    float left[16][16], right[256][16];
};
/* Of each warp of each block of a cluster: those run in turn. */
static shim_factors shim_factors_of[2][32];

/* Each lane of the warp reads a part of the factors, for all of them: they have met since what was
 * here before was used. */
template <int n, class Left, class Right>
static inline const shim_factors &shim_read_factors(Left left, Right right)
{
    static_assert(2 * n <= 256, "a product of a warpgroup has at most 256 columns");
    shim_factors &f = shim_factors_of[og_shim_link->rank][og_shim_link->thread.x / 32];
    for (int row = shim_lane(); row < 16; row += 32)
        left(row, f.left[row]);
    for (int column = shim_lane(); column < 2 * n; column += 32)
        right(column, f.right[column]);
    __syncwarp();
    return f;
}

/* d (64 x 2 n) = or += left (64 x 16) right (16 x 2 n). left(row, to) writes 16 k of a row of the
 * warp's 16; right(column, to). least: see shim_link.h. */
template <int n, class Left, class Right>
static inline void shim_multiply(float (&d)[n], bool adds, int least, Left left, Right right)
{
    const shim_factors &f = shim_read_factors<n>(left, right);
    og_shim_link->multiply(d, n, adds, least, f.left, f.right, shim_lane());
}

/* The left factor in registers, as for mma.sync; float16. */
template <int adds, int n>
static inline void og_multiply_16(float (&d)[n], const unsigned *left, unsigned long long right)
{
    const shim_lanes<4> &lanes = shim_exchange<4>(left);
    const shim_factor factor = shim_described(right, false, false);
    shim_multiply(
        d, adds != 0, -14,
        [&](int row, float *to) {
            for (int k = 0; k < 16; k++)
                to[k] =
                    shim_half<false>(lanes.of[row % 8 * 4 + k % 8 / 2][k / 8 * 2 + row / 8], k % 2);
        },
        [&](int column, float *to) { og_shim_link->read_row(&factor, column, to); });
}

template <int adds, int n>
static inline void og_multiply_part(float (&d)[n], const unsigned *left, unsigned long long right)
{
    og_multiply_16<adds>(d, left, right);
}

/* The same of 8 k of TF32, of which tensor cores see 19 bits: a lane has k t and t + 4. */
template <int adds, int n>
static inline void og_multiply_8(float (&d)[n], const unsigned *left, unsigned long long right)
{
    const shim_lanes<4> &lanes = shim_exchange<4>(left);
    const unsigned start = (unsigned)(right & 0x3fff) << 4;
    auto see = [](unsigned bits) { return __uint_as_float(bits & 0xffffe000u); };
    shim_multiply(
        d, adds != 0, -126,
        [&](int row, float *to) {
            for (int k = 0; k < 16; k++)
                to[k] = k < 8 ? see(lanes.of[row % 8 * 4 + k % 4][k / 4 * 2 + row / 8]) : 0.0f;
        },
        [&](int column, float *to) {
            for (int k = 0; k < 16; k++) {
                const unsigned at = start + column / 8 * 1024 + column % 8 * 128 + k * 4;
                unsigned bits = 0;
                if (k < 8)
                    __builtin_memcpy(&bits, shim_shared_at(shim_swizzle(at)), 4);
                to[k] = see(bits);
            }
        });
}

/* Both described; type: "f16" or "bf16", across: "0, 1" and so on. */
template <int n>
static inline void shim_multiply_described(float (&d)[n], unsigned long long left,
                                           unsigned long long right, unsigned adds,
                                           const char *type, const char *across)
{
    const int first = og_shim_link->thread.x / 32 % 4 * 16;
    const bool is_bfloat = type[0] == 'b';
    const shim_factor x = shim_described(left, across[0] == '1', is_bfloat);
    const shim_factor w = shim_described(right, across[3] == '1', is_bfloat);
    __syncwarp();
    shim_multiply(
        d, adds != 0, is_bfloat ? -126 : -14,
        [&](int row, float *to) { og_shim_link->read_row(&x, first + row, to); },
        [&](int column, float *to) { og_shim_link->read_row(&w, column, to); });
}

/* ---- what the driver sees ---------------------------------------------------------------- */

extern "C" struct shim_shared og_shim_shared = {
    __start_shim_static,
    __stop_shim_static,
    og_dynamic_shared,
    __bss_start,
    _end,
    {{(char *)&og_shim_link, sizeof og_shim_link},
     {og_dynamic_shared, sizeof og_dynamic_shared},
     {(char *)shim_barriers, sizeof shim_barriers},
     {(char *)&shim_clusters_meeting, sizeof shim_clusters_meeting},
     {(char *)shim_groups_meetings, sizeof shim_groups_meetings}}};
