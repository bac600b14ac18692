#include "kernels/cpu/table.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/operand.h"
#include "kernels/cpu/read.h"

#define cpu_isa_of ISA_NAME(cpu_isa)

extern const struct cpu_isa cpu_isa_of;

const struct cpu_isa cpu_isa_of = {
    .name = ISA_TEXT,
    .tiles = TILES,
    .ops = {
        .embed = cpu_embed,
        .norm = cpu_norm,
        .clamp = cpu_clamp,
        .gather = cpu_gather,
        .linear = cpu_linear,
        .rope = cpu_rope,
        .kv_write = cpu_kv_write,
        .kv_move = cpu_kv_move,
#if defined(ISA_VNNI)
        .attention = cpu_attention_integers,
#else
        .attention = cpu_attention,
#endif
        .route_score = cpu_route_score,
        .route_shortlist = cpu_route_shortlist,
        .route_select = cpu_route_select,
        .expert_sum = cpu_expert_sum,
        .expert_ffn = cpu_expert_ffn,
        .activate = cpu_activate,
        .log_add = cpu_log_add,
        .blend = cpu_blend,
        .blend_weights = cpu_blend_weights,
        .top = cpu_top,
        .short_conv = cpu_short_conv,
        .delta_keys = cpu_delta_keys,
        .delta = cpu_delta,
        .gated = cpu_gated,
        .index = cpu_index,
    },
    .read = cpu_read,
    .multiply = cpu_multiply,
};
