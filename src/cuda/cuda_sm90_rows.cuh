/* SPDX-License-Identifier: MIT
 *
 * cuda_sm90_rows.cuh - pass 0 on finished sums of products of halves: 8 neighbouring threads have
 * 64 columns of a row, and what tensor cores could not be given (og_redo).
 */
/* What a thread has of columns n .. n + 63: quads at 4 (lane % 8) and 32 further. */
struct og_columns {
    og_index n;
    og_kept kept[2]; /* what is the same for all rows, and the product */
};

OG_FN og_span og_span_of_quad(const og_args &a, const og_columns &c, int h)
{
    return og_span_of(c.n + 32 * h, a.n);
}

OG_FN og_columns og_find_columns(const og_args &a, og_index n)
{
    og_columns c;
    c.n = n + threadIdx.x % 8 * 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_offsets at = og_start();
        og_step_row(a, c.n + 32 * h, at);
        og_span span = og_span_of_quad(a, c, h);
        og_kept::load(a, at, og_is_full(span) && og_kept::is_aligned(a, at), span, c.kept[h]);
    }
    return c;
}

/* A row, and what pass 0 reads there for the thread's quads. */
struct og_place {
    og_index index; /* of all rows */
    bool there;     /* else the thread takes part and writes nothing */
    bool whole;     /* the quads are all there and aligned */
    og_offsets at; /* of the first quad */
    og_loads0 x[2];
};

OG_FN og_offsets og_step_quads(const og_args &a, const og_offsets &at, int quads)
{
    og_offsets to = at;
    og_step_row(a, 32 * quads, to);
    return to;
}

OG_FN og_place og_find_place(const og_args &a, og_index index, bool there, const og_columns &c)
{
    og_place p;
    p.index = index;
    p.there = p.whole = there;
    p.at = og_start();
    og_seek_rows(a, index, p.at);
    og_step_row(a, c.n, p.at);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_offsets at = og_step_quads(a, p.at, h);
        og_span span = og_span_of_quad(a, c, h);
        bool aligned = og_is_full(span) && og_loads0::is_aligned(a, at);
        p.whole = p.whole && aligned && og_pass0::is_aligned(a, at);
        og_loads0::load(a, at, aligned, span, p.x[h]);
    }
    return p;
}

template <bool whole>
OG_FN void og_finish_place(const og_args &a, const og_place &p, og_columns &c, const og_quad *z)
{
    og_pass0::values y[2][4];
    og_row unused;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            c.kept[h].product[0] = z[h].e[j];
            og_pass0::compute(a, unused, c.kept[h], p.x[h], j, y[h][j]);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        og_span span = {0, p.there ? og_span_of_quad(a, c, h).end : 0};
        og_offsets at = og_step_quads(a, p.at, h);
        if (whole)
            og_pass0::store_whole(a, at, &unused, y[h]);
        else
            og_pass0::store(a, at, span, &unused, y[h]);
    }
    og_offsets row = og_start();
    og_seek_rows(a, p.index, row);
    og_end_run(a, row, p.index, c.n, p.there && threadIdx.x % 8 == 0 && c.n < a.n, y);
}

/* Pass 0 on the thread's quads z of a row. Most are whole: without a branch at each store the
 * compiler computes both at once. */
OG_FN void og_finish_quads(const og_args &a, const og_place &p, og_columns &c, const og_quad *z)
{
    if (__all_sync(0xffffffffu, p.whole))
        og_finish_place<true>(a, p, c, z);
    else
        og_finish_place<false>(a, p, c, z);
}

enum { OG_REDO_BLOCKS = 1 }; /* of a multiprocessor: two would spill */

/* Addresses that TMA does not take: all that og_redo is launched for. */
OG_FN bool og_redoes_all(const og_args &)
{
    return true;
}
