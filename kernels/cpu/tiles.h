/* Matrix tiles (AMX): eight registers of up to 16 rows of 64 bytes. Compilers do not know which memory these instructions
 * access, so each assembly statement declares it. Tile numbers must be literals. */
#ifndef MOE_KERNELS_CPU_TILES_H
#define MOE_KERNELS_CPU_TILES_H

#include <stdint.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_BYTES = 64, TILE_OUTPUTS = 16, TILES_THERE = 8 };

#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_LOAD(tile, at, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(at), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(tile, at, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(at), "r"((size_t)(stride)) : "memory")
/* sums[m][n] += sum over k of in[m][k] * weights[k / pack][n][k % pack]; pack is 2 for bf16, 4 for signed bytes. */
#define TILE_MULTIPLY_BF16(sums, in, weights) __asm__ volatile("tdpbf16ps %%tmm" #weights ", %%tmm" #in ", %%tmm" #sums ::)
#define TILE_MULTIPLY_BYTES(sums, in, weights) __asm__ volatile("tdpbssd %%tmm" #weights ", %%tmm" #in ", %%tmm" #sums ::)

/* Layout: Intel 64 and IA-32 Architectures, volume 1, table 18-1. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static inline void tile_shape(struct tile_shapes *shapes, int tile, int rows, int row_bytes)
{
    shapes->palette = 1;
    shapes->rows[tile] = (uint8_t)rows;
    shapes->row_bytes[tile] = (uint16_t)row_bytes;
}

/* Configures the tiles; a tile without a shape cannot be used. */
static inline void tiles_begin(const struct tile_shapes *shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(*shapes)); }
static inline void tiles_end(void) { __asm__ volatile("tilerelease" ::); }

#endif
