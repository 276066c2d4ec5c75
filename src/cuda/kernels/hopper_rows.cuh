/* SPDX-License-Identifier: MIT
 *
 * hopper_rows.cuh - pass 0 on finished sums of products of halves: OG_ROW_THREADS neighbouring
 * threads have 64 columns of a row, and what tensor cores could not be given (og_redo).
 *
 * PARAMETERS
 *   OG_QUADS  of a row, that a thread has: 2, which is how columns are reduced, or 1, which stores
 *             whole lines of 128 bytes
 */
#include "cuda/kernels/product.cuh"

enum { OG_ROW_THREADS = 16 / OG_QUADS };

/* What a thread has of columns n .. n + 63: a quad at 4 (lane % OG_ROW_THREADS), a second one 32
 * further. */
struct og_columns {
    og_index n;
    og_kept kept[OG_QUADS]; /* what is the same for all rows, and the product */
};

OG_FN og_span og_span_of_quad(const og_args &a, const og_columns &c, int h)
{
    return og_span_of(c.n + 32 * h, a.n);
}

/* n: of the thread's first quad. whole: its quads are there and aligned. */
template <bool whole> OG_FN og_columns og_find_own_columns(const og_args &a, og_index n)
{
    og_columns c;
    c.n = n;
#pragma unroll
    for (int h = 0; h < OG_QUADS; h++) {
        og_offsets at = og_start();
        og_step_row(a, c.n + 32 * h, at);
        og_span span = og_span_of_quad(a, c, h);
        og_kept::load(a, at, whole || (og_is_full(span) && og_kept::is_aligned(a, at)), span,
                      c.kept[h]);
    }
    return c;
}

OG_FN og_columns og_find_columns(const og_args &a, og_index n)
{
    return og_find_own_columns<false>(a, n + threadIdx.x % OG_ROW_THREADS * 4);
}

/* A row, and what pass 0 reads there for the thread's quads. */
struct og_place {
    og_index index; /* of all rows */
    bool there;     /* else the thread takes part and writes nothing */
    og_offsets at;  /* of the first quad */
    og_loads0 x[OG_QUADS];
};

OG_FN og_offsets og_step_quads(const og_args &a, const og_offsets &at, int quads)
{
    og_offsets to = at;
    og_step_row(a, 32 * quads, to);
    return to;
}

/* Row r of `rows` from number `index` on; beyond the last: that one. whole: the row and the quads
 * are there and aligned. */
template <bool whole>
OG_FN og_place og_find_place(const og_args &a, og_index index, og_index r, og_index rows,
                             const og_columns &c)
{
    og_place p;
    p.there = whole || r < rows;
    p.index = index + (p.there ? r : rows > 0 ? rows - 1 : 0);
    p.at = og_start();
    og_seek_rows(a, p.index, p.at);
    og_step_row(a, c.n, p.at);
#pragma unroll
    for (int h = 0; h < OG_QUADS; h++) {
        og_offsets at = og_step_quads(a, p.at, h);
        og_span span = og_span_of_quad(a, c, h);
        og_loads0::load(a, at, whole || (og_is_full(span) && og_loads0::is_aligned(a, at)), span,
                        p.x[h]);
    }
    return p;
}

/* Pass 0 on the thread's quads z of a row. */
template <bool whole>
OG_FN void og_finish_quads(const og_args &a, const og_place &p, og_columns &c,
                           const og_quad (&z)[OG_PRODUCTS][OG_QUADS])
{
    og_pass0::values y[OG_QUADS][4];
    og_row unused;
#pragma unroll
    for (int h = 0; h < OG_QUADS; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < OG_PRODUCTS; i++)
                c.kept[h].product[i] = z[i][h].e[j];
            og_pass0::compute(a, unused, c.kept[h], p.x[h], j, y[h][j]);
        }
#pragma unroll
    for (int h = 0; h < OG_QUADS; h++) {
        og_span span = {0, p.there ? og_span_of_quad(a, c, h).end : 0};
        og_offsets at = og_step_quads(a, p.at, h);
        if (whole) /* without a branch at each store the compiler computes all at once */
            og_pass0::store_whole(a, at, &unused, y[h]);
        else
            og_pass0::store(a, at, span, &unused, y[h]);
    }
    og_offsets row = og_start();
    og_seek_rows(a, p.index, row);
    const bool writes = p.there && threadIdx.x % OG_ROW_THREADS == 0 && (whole || c.n < a.n);
    og_end_run(a, row, p.index, c.n, writes, y);
}

/* Addresses that TMA does not take: all that og_redo is launched for. */
OG_FN bool og_redoes_all(const og_args &)
{
    return true;
}
