/* Attention over a cache in q8 with integer products, for processors with VNNI; attention.c processes the other formats. Both
 * files use the same blocks, chunks and tiles, and give the same bits, because sums of integers are exact in any order.
 *
 * The instruction vpdpbusd adds four products of bytes to each of 16 sums. A chunk is therefore PACKED before its tiles use it,
 * so that the 16 sums are scores of 16 positions, or columns of the output:
 *     keys    [position / 16][column / 4][16 positions][4 columns], each plus 128
 *     values  [column / 64][vector][position / 4][16 columns][4 positions]
 * 128 times the sum of the query's codes is subtracted from each sum of keys. Vector n of 64 columns of values contains columns
 * 16 p + 4 n + i, p < 4, i < 4; a query's output has this order until query_order. */
#include "kernels/cpu/isa.h"

#if defined(ISA_VNNI)

#include "kernels/cpu/attention_query.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/table.h"
#include "kernels/plain/quantise.h"

enum { QUADS = ATTENTION_CHUNK / 4 };

/* Returns the number of columns of packed rows: a multiple of 64. */
static int pack_width(int width) { return (width + 63) / 64 * 64; }

/* Cache lines to prefetch into the second-level cache, one by one. step: 64, or 0 if there are none; then `line` is a line in
 * the cache, because prefetching it again takes less time than a condition. */
struct ahead { const unsigned char *line; size_t step; };

TILE_INLINE void fetch_line(struct ahead *ahead)
{
    __asm__ volatile("prefetcht1 %0" ::"m"(*ahead->line));
    ahead->line += ahead->step;
}

/* The lines that packing prefetches: half as many as it reads, and as many again if the next memory is wider. */
struct both { struct ahead half, more; };

static struct both no_lines(const unsigned char *cached) { return (struct both){{cached, 0}, {cached, 0}}; }

/* Packed positions `begin` .. `end` - 1 of a chunk; other positions of the same 16 keys or 4 values are zeros. */
struct packed {
    int begin, end;
    float scale[ATTENTION_CHUNK];
    _Alignas(64) unsigned char at[ATTENTION_CHUNK * ATTENTION_HEAD_DIM_MAX];
};

struct panel {
    const unsigned char *cache;         /* at the beginning of the kv head */
    const float *scale;                 /* likewise */
    struct ahead ahead;                 /* lines that the next tile prefetches */
    bool keys;
    int width, chunk, row;              /* row: that of `path` */
    struct packed committed, path;      /* path: all positions that a row with a path sees */
    unsigned char gathered[ATTENTION_CHUNK * ATTENTION_HEAD_DIM_MAX];
};

/* Packs 64 columns of 16 keys, which are `step` bytes apart. */
TILE_INLINE void pack_key(const unsigned char *from, size_t step, unsigned char *to, struct both *both)
{
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++, from += 16) {
        __m512i row[4], two[4];                                 /* part l of row[i]: 16 columns of key 4 l + i */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const unsigned char *at = from + (size_t)i * step;
            row[i] = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)at));
            row[i] = _mm512_mask_broadcast_i32x4(row[i], 0x00f0, _mm_loadu_si128((const void *)(at + 4 * step)));
            row[i] = _mm512_mask_broadcast_i32x4(row[i], 0x0f00, _mm_loadu_si128((const void *)(at + 8 * step)));
            row[i] = _mm512_mask_broadcast_i32x4(row[i], 0xf000, _mm_loadu_si128((const void *)(at + 12 * step)));
            row[i] = _mm512_xor_si512(row[i], _mm512_set1_epi8(-128));
            fetch_line(i % 2 ? &both->half : &both->more);
        }
        two[0] = _mm512_unpacklo_epi32(row[0], row[1]);
        two[1] = _mm512_unpackhi_epi32(row[0], row[1]);
        two[2] = _mm512_unpacklo_epi32(row[2], row[3]);
        two[3] = _mm512_unpackhi_epi32(row[2], row[3]);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++, to += 128) {
            _mm512_store_si512((void *)to, _mm512_unpacklo_epi64(two[i], two[i + 2]));
            _mm512_store_si512((void *)(to + 64), _mm512_unpackhi_epi64(two[i], two[i + 2]));
        }
    }
}

/* Packs 64 columns of 4 values. */
TILE_INLINE void pack_value(const unsigned char *from, size_t step, unsigned char *to, struct both *both)
{
    __m512i row[4], low[2], high[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        row[i] = _mm512_loadu_si512((const void *)(from + (size_t)i * step));
        fetch_line(i % 2 ? &both->half : &both->more);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        low[i] = _mm512_unpacklo_epi8(row[2 * i], row[2 * i + 1]);
        high[i] = _mm512_unpackhi_epi8(row[2 * i], row[2 * i + 1]);
    }
    _mm512_store_si512((void *)to, _mm512_unpacklo_epi16(low[0], low[1]));
    _mm512_store_si512((void *)(to + QUADS * 64), _mm512_unpackhi_epi16(low[0], low[1]));
    _mm512_store_si512((void *)(to + 2 * QUADS * 64), _mm512_unpacklo_epi16(high[0], high[1]));
    _mm512_store_si512((void *)(to + 3 * QUADS * 64), _mm512_unpackhi_epi16(high[0], high[1]));
}

/* Copies 64 columns of `count` positions, beginning at `j`. Missing columns and positions become zeros. */
static void pack_part(const struct packed *p, const unsigned char *from, int width, int j, int c, int count, unsigned char *to)
{
    const size_t some = width - c < 64 ? (size_t)(width - c) : 64;
    memset(to, 0, (size_t)count * 64);
    for (int i = 0; i < count; i++)
        if (j + i >= p->begin && j + i < p->end)
            memcpy(to + i * 64, from + (size_t)(j + i) * (size_t)width + c, some);
}

/* Packs keys or values. from: the first position of the chunk; keys: a constant at each use. */
static void pack_all(bool keys, struct packed *p, const unsigned char *from, int width, struct both both)
{
    const int count = keys ? 16 : 4, quads = pack_width(width) / 4;
    for (int b = p->begin / count; b * count < p->end; b++)
        for (int c = 0; c < width; c += 64) {
            const int j = b * count;
            const bool complete = j >= p->begin && j + count <= p->end && c + 64 <= width;
            unsigned char part[16 * 64];
            unsigned char *to = p->at + (size_t)(keys ? b * quads + c / 4 : c / 16 * QUADS + b) * 64;
            if (!complete)
                pack_part(p, from, width, j, c, count, part);
            const unsigned char *at = complete ? from + (size_t)j * (size_t)width + c : part;
            if (keys)
                pack_key(at, complete ? (size_t)width : 64, to, &both);
            else
                pack_value(at, complete ? (size_t)width : 64, to, &both);
        }
}

static void pack(struct panel *panel, struct packed *p, const unsigned char *from, const float *scale, struct both both)
{
    if (panel->keys)
        pack_all(true, p, from, panel->width, both);
    else
        pack_all(false, p, from, panel->width, both);
    memcpy(p->scale + p->begin, scale + p->begin, (size_t)(p->end - p->begin) * sizeof *scale);
}

/* Begins a chunk: packs the committed positions that a query of the block sees. next: the memory to prefetch, in rows of
 * `width` bytes; NULL: none. Packing prefetches the first half of it, and the first tile the second half. */
static void panel_open(struct panel *panel, int chunk, const struct attention_span *span, const unsigned char *next, int width)
{
    const int first = chunk * ATTENTION_CHUNK;
    const size_t bytes = ATTENTION_CHUNK * (size_t)panel->width;
    struct packed *p = &panel->committed;
    struct both both = no_lines(p->at);
    panel->ahead = both.half;
    if (next) {
        both.half = (struct ahead){next, 64};
        panel->ahead = (struct ahead){next + bytes / 2, 64};
    }
    if (next && width > panel->width)
        both.more = (struct ahead){next + bytes, 64};
    p->begin = span->low > first ? span->low - first : 0;
    p->end = span->committed < first + ATTENTION_CHUNK ? span->committed - first : ATTENTION_CHUNK;
    panel->chunk = chunk;
    panel->row = -1;
    if (p->begin < p->end)
        pack(panel, p, panel->cache + (size_t)first * (size_t)panel->width, panel->scale + first, both);
}

/* Returns whether a query sees positions of its path in the current chunk. */
static bool sees_path(const struct query *query) { return query->prefix - query->start < query->visible; }

/* Returns the packed positions that a query sees. */
static const struct packed *panel_of(struct panel *panel, const struct query *query)
{
    const int first = panel->chunk * ATTENTION_CHUNK;
    const size_t width = (size_t)panel->width;
    struct packed *p = &panel->path;
    float scale[ATTENTION_CHUNK];
    if (!sees_path(query))
        return &panel->committed;
    if (panel->row == query->row)
        return p;
    p->begin = query->start - first;
    p->end = p->begin + query->visible;
    for (int j = p->begin; j < p->end; j++) {
        const int position = first + j;
        const size_t slot = (size_t)(position < query->prefix ? position : query->path[position - query->prefix]);
        memcpy(panel->gathered + (size_t)j * width, panel->cache + slot * width, width);
        scale[j] = panel->scale[slot];
    }
    pack(panel, p, panel->gathered, scale, no_lines(p->at));
    panel->row = query->row;
    return p;
}

struct block {
    struct query query[BLOCK_QUERIES];
    int32_t offset[BLOCK_QUERIES];      /* to subtract from the query's sums of keys */
    _Alignas(64) uint8_t code[BLOCK_QUERIES][2 * ATTENTION_CHUNK];      /* codes of shares; zeros may follow them */
    struct panel keys, values;
};

/* Up to eight queries, beginning at `first`, that use the same packed positions. */
struct tile {
    int first, rows, filled;            /* filled: rows, padded with copies of the last query, whose sums are not used */
    const struct packed *packed;
    struct ahead ahead;
};

/* Forms a tile of the first of `count` queries and those after it. */
static void tile_open(struct tile *tile, struct block *b, struct panel *panel, int first, int count)
{
    const struct query *query = &b->query[first];
    const bool path = sees_path(query);
    int same = 1;
    while (first + same < count && same < TILE_ROWS && query[same].visible &&
           (path ? query[same].row == query->row : !sees_path(&query[same])))
        same++;
    tile->first = first;
    tile->rows = same;
    tile->filled = same > 4 ? 8 : same > 2 ? 4 : same;
    tile->packed = panel_of(panel, query);
    tile->ahead = panel->ahead;
    panel->ahead = (struct ahead){tile->packed->at, 0};         /* only the first tile prefetches */
}

/* Computes the sums of `rows` rows and `vectors` vectors, of `steps` times four products. The packed bytes of the vectors are
 * `pitch` bytes apart. keys: packed bytes are unsigned and those of rows signed; otherwise the other way round. */
TILE_INLINE void products(bool keys, int rows, int vectors, const unsigned char *packed, size_t pitch, int steps,
                          const unsigned char *const *row, struct ahead *lines, __m512i *out)
{
    struct ahead ahead = *lines;
    __m512i sum[16];
#pragma GCC unroll 16
    for (int n = 0; n < rows * vectors; n++)
        sum[n] = _mm512_setzero_si512();
    for (int s = 0; s < steps; s++, packed += 64) {
        __m512i some[4];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            some[v] = _mm512_load_si512((const void *)(packed + (size_t)v * pitch));
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, row[r] + 4 * s, sizeof four);
            const __m512i all = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++)
                sum[r * vectors + v] = keys ? _mm512_dpbusd_epi32(sum[r * vectors + v], some[v], all)
                    : _mm512_dpbusd_epi32(sum[r * vectors + v], all, some[v]);
        }
#pragma GCC unroll 2
        for (int v = 0; v < (vectors + 1) / 2; v++)
            fetch_line(&ahead);
    }
#pragma GCC unroll 16
    for (int n = 0; n < rows * vectors; n++)
        _mm512_store_si512((void *)&out[n], sum[n]);
    *lines = ahead;
}

#define PRODUCTS_ARGUMENTS \
    const unsigned char *packed, size_t pitch, int steps, const unsigned char *const *row, struct ahead *ahead, __m512i *sum
typedef void products_function(PRODUCTS_ARGUMENTS);

/* Not inlined: with the variables of a caller, compilers keep sums in memory. */
#define PRODUCTS(keys, rows, vectors) \
    static __attribute__((noinline)) void products_##keys##_##rows##_##vectors(PRODUCTS_ARGUMENTS) \
    { \
        products(keys, rows, vectors, packed, pitch, steps, row, ahead, sum); \
    }
#define PRODUCTS_OF(keys) \
    PRODUCTS(keys, 8, 2) PRODUCTS(keys, 8, 1) PRODUCTS(keys, 4, 4) PRODUCTS(keys, 4, 1) \
    PRODUCTS(keys, 2, 4) PRODUCTS(keys, 2, 1) PRODUCTS(keys, 1, 4) PRODUCTS(keys, 1, 1)
PRODUCTS_OF(0)
PRODUCTS_OF(1)

/* Returns the function for a tile of `rows` rows; vectors: 1, or tile_vectors. */
static products_function *products_of(bool keys, int rows, int vectors)
{
    static products_function *const table[2][4][2] = {
        {{products_0_1_1, products_0_1_4}, {products_0_2_1, products_0_2_4}, {products_0_4_1, products_0_4_4},
         {products_0_8_1, products_0_8_2}},
        {{products_1_1_1, products_1_1_4}, {products_1_2_1, products_1_2_4}, {products_1_4_1, products_1_4_4},
         {products_1_8_1, products_1_8_2}}};
    return table[keys][rows == 8 ? 3 : rows / 2][vectors > 1];
}

/* Returns how many vectors a tile processes at a time. */
static int tile_vectors(int rows) { return rows == 8 ? 2 : 4; }

/* Computes the scores of `vectors` times 16 positions, from 16 * b on. */
static void scores(struct tile *tile, int vectors, int b, int quads, const unsigned char *const *code, const int32_t *offset,
                   float *const *score)
{
    const struct packed *p = tile->packed;
    __m512i sum[16];
    products_of(true, tile->filled, vectors)(p->at + (size_t)(b * quads) * 64, (size_t)quads * 64, quads, code, &tile->ahead,
                                             sum);
    for (int r = 0; r < tile->rows; r++)
        for (int v = 0; v < vectors; v++) {
            const int j = 16 * (b + v);
            const __m512 dot = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r * vectors + v], _mm512_set1_epi32(offset[r])));
            _mm512_storeu_ps(score[r] + j, _mm512_mul_ps(dot, _mm512_loadu_ps(p->scale + j)));
        }
}

/* Computes the first half of a chunk: scores, maximum and sum. */
static void tile_keys(struct tile *tile, struct block *b)
{
    const unsigned char *code[TILE_ROWS];
    float *score[TILE_ROWS];
    int32_t offset[TILE_ROWS];
    const int quads = pack_width(b->keys.width) / 4, first = b->keys.chunk * ATTENTION_CHUNK;
    const int end = (tile->packed->end + 15) / 16, many = tile_vectors(tile->filled);
    for (int r = 0; r < tile->filled; r++) {
        const int i = tile->first + (r < tile->rows ? r : tile->rows - 1);
        code[r] = (const unsigned char *)b->query[i].code.byte;
        offset[r] = b->offset[i];
        score[r] = b->query[i].share;
    }
    for (int at = tile->packed->begin / 16, next; at < end; at = next) {
        next = at + (at + many <= end ? many : 1);
        scores(tile, next - at, at, quads, code, offset, score);
    }
    for (int r = 0; r < tile->rows; r++) {
        struct query *query = &b->query[tile->first + r];
        tile_shares(query->share + (query->start - first), query->visible, query->scale, &query->chunk_max, &query->chunk_sum);
    }
}

/* Quantises the shares of a chunk (plain_quantise_shares) and returns their scale. */
static float query_codes(const struct query *query, const struct packed *values, int first, uint8_t *code)
{
    const int begin = query->start - first;
    __m512 share[ATTENTION_CHUNK / 16];
    __m512i max = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < ATTENTION_CHUNK / 16; i++) {
        const int left = query->visible - 16 * i;
        const __mmask16 mask = (__mmask16)(left >= 16 ? 0xffff : left > 0 ? (1 << left) - 1 : 0);
        share[i] = _mm512_maskz_mul_ps(mask, _mm512_loadu_ps(query->share + begin + 16 * i),
                                       _mm512_maskz_loadu_ps(mask, values->scale + begin + 16 * i));
        max = _mm512_max_epi32(max, _mm512_and_si512(_mm512_castps_si512(share[i]), _mm512_set1_epi32(0x7fffffff)));
    }
    const int32_t bits = _mm512_reduce_max_epi32(max);
    const float largest = plain_from_bits((uint32_t)bits);
    const bool good = largest >= 0x1p-100f && bits < 0x7f800000;
    const __m512 inverse = _mm512_set1_ps(255 / largest);
    memset(code, 0, ATTENTION_CHUNK);
#pragma GCC unroll 4
    for (int i = 0; i < ATTENTION_CHUNK / 16 && good; i++)
        _mm_storeu_si128((void *)(code + begin + 16 * i),
                         _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(share[i], inverse))));
    return good ? largest / 255 : bits < 0x7f800000 ? 0 : plain_from_bits(0x7fc00000u);
}

/* Joins `vectors` times 16 columns, from 16 * b on. */
static void columns(struct tile *tile, int vectors, int b, const unsigned char *const *code, const struct tile_join *join,
                    float *const *out)
{
    const struct packed *p = tile->packed;
    const int first = p->begin / 4, steps = (p->end + 3) / 4 - first;
    const unsigned char *from[TILE_ROWS];
    __m512i sum[16];
    for (int r = 0; r < tile->filled; r++)
        from[r] = code[r] + 4 * first;
    products_of(false, tile->filled, vectors)(p->at + (size_t)(b * QUADS + first) * 64, (size_t)QUADS * 64, steps, from,
                                              &tile->ahead, sum);
    for (int r = 0; r < tile->rows; r++)
        for (int v = 0; v < vectors; v++) {
            float *to = out[r] + 16 * (b + v);
            const __m512 a = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r * vectors + v]), _mm512_set1_ps(join->now[r]));
            _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_loadu_ps(to), _mm512_set1_ps(join->before[r]), a));
        }
}

/* Computes the second half of a chunk: values, joined to the result of the chunks before. */
static void tile_join_values(struct tile *tile, struct block *b)
{
    const int first = b->values.chunk * ATTENTION_CHUNK, width = b->values.width, end = pack_width(width) / 16;
    const int many = tile_vectors(tile->filled);
    const unsigned char *code[TILE_ROWS];
    float *out[TILE_ROWS], max[TILE_ROWS] = {0}, chunk_max[TILE_ROWS] = {0};
    struct tile_join join;
    for (int r = 0; r < tile->filled; r++) {
        const int i = tile->first + (r < tile->rows ? r : tile->rows - 1);
        struct query *query = &b->query[i];
        code[r] = b->code[i];
        out[r] = query->value;
        max[r] = query->begun ? query->max : query->chunk_max;
        chunk_max[r] = query->chunk_max;
    }
    tile_factors(&join, max, chunk_max);
    for (int r = 0; r < tile->rows; r++) {
        struct query *query = &b->query[tile->first + r];
        query->max = max[r];
        query->sum = query->begun ? __builtin_fmaf(query->sum, join.before[r], query->chunk_sum * join.now[r])
            : query->chunk_sum;
        join.now[r] *= query_codes(query, tile->packed, first, b->code[tile->first + r]);
        if (!query->begun)
            memset(query->value, 0, (size_t)pack_width(width) * sizeof *query->value);
        query->begun = true;
    }
    for (int at = 0, next; at < end; at = next) {
        next = at + (at + many <= end ? many : 1);
        columns(tile, next - at, at, code, &join, out);
    }
}

/* Processes one chunk for all queries of a block: its keys, then its values. Values are prefetched during keys, and the keys of
 * the next chunk during values. */
static void attend_chunk(struct block *b, int chunk, const struct attention_span *span)
{
    const size_t first = (size_t)chunk * ATTENTION_CHUNK, after = first + ATTENTION_CHUNK;
    const size_t key = (size_t)b->keys.width, value = (size_t)b->values.width;
    const int count = span->count;
    struct tile tile;
    panel_open(&b->keys, chunk, span, b->values.cache + first * value, b->values.width);
    for (int i = 0; i < count; i += tile.rows) {
        tile.rows = 1;
        if (b->query[i].visible) {
            tile_open(&tile, b, &b->keys, i, count);
            tile_keys(&tile, b);
        }
    }
    panel_open(&b->values, chunk, span, after < (size_t)span->committed ? b->keys.cache + after * key : NULL, b->keys.width);
    for (int i = 0; i < count; i += tile.rows) {
        tile.rows = 1;
        if (b->query[i].visible) {
            tile_open(&tile, b, &b->values, i, count);
            tile_join_values(&tile, b);
        }
    }
}

static void panel_begin(struct panel *panel, struct buffer cache, bool keys, int width, size_t rows, size_t first)
{
    const unsigned char *data = work_pointer(cache);
    panel->keys = keys;
    panel->width = width;
    panel->cache = data + first * (size_t)width;
    panel->scale = (const float *)(const void *)(data + cache_scales(CACHE_Q8, rows, (size_t)width)) + first;
}

/* Quantises a query; its codes are padded with zeros. Returns the offset of its scores. */
static int32_t query_quantise(struct query *query, int width)
{
    int8_t *code = query->code.byte;
    int32_t sum = 0;
    query->scale *= plain_quantise_row(query->q, width, code);
    for (int i = 0; i < width; i++)
        sum += code[i];
    memset(code + width, 0, (size_t)(pack_width(width) - width));
    return 128 * sum;
}

/* Brings the output of a query into the order of its columns. */
static void query_order(struct query *query, int width)
{
    for (int c = 0; c < width; c += 64) {
        float part[64];
        memcpy(part, query->value + c, sizeof part);
        for (int i = 0; i < 64; i++)
            query->value[c + i] = part[i / 4 % 4 * 16 + i / 16 * 4 + i % 4];
    }
}

/* See attend_block of attention.c. */
static void attend_block(const struct attention *w, struct block *b, int kv_head, int block)
{
    const struct attention_args *a = w->args;
    const size_t slots = (size_t)kv_head * (size_t)a->capacity, rows = (size_t)a->kv_heads * (size_t)a->capacity;
    const struct attention_span span = attention_begin(w, b->query, kv_head, block);
    panel_begin(&b->keys, a->k, true, a->head_dim, rows, slots);
    panel_begin(&b->values, a->v, false, a->value_dim, rows, slots);
    for (int i = 0; i < span.count; i++)
        b->offset[i] = query_quantise(&b->query[i], a->head_dim);
    for (int chunk = span.low / ATTENTION_CHUNK; chunk * ATTENTION_CHUNK < span.high; chunk++) {
        for (int i = 0; i < span.count; i++)
            query_chunk(&b->query[i], chunk);
        attend_chunk(b, chunk, &span);
    }
    for (int i = 0; i < span.count; i++)
        query_order(&b->query[i], a->value_dim);
    for (int i = 0; i < span.count; i++)
        query_end(&b->query[i], a->value_dim);
}

static void attend(void *argument, int member, int members)
{
    struct attention *w = argument;
    struct block block;
    for (int64_t task; (task = work_take(&w->work, member, members)) >= 0;)
        attend_block(w, &block, (int)(task / w->blocks), (int)(task % w->blocks));
}

void cpu_attention_integers(struct queue *queue, const struct attention_args *args)
{
    if (args->format == CACHE_Q8)
        attention_run(queue, args, attend);
    else
        cpu_attention(queue, args);
}

#endif
