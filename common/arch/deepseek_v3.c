/* DeepSeek-V3 and R1 (deepseek-ai/DeepSeek-V3): latent attention, dense layers first, shared experts; the sigmoid router
 * adds a correction for the selection only, and ranks groups by their two best experts. Kimi K2
 * (moonshotai/Kimi-K2-Instruct) uses the same code under another name. Reference: transformers models/deepseek_v3, and arXiv
 * 2412.19437 section 2.1. */
#include "common/arch/arch.h"

static const struct naming published = {
    .slot = {LLAMA_NAMES, EXPERT_NAMES, LATENT_NAMES, CORRECTED_NAMES},
    .ignored = {"model.layers.{n}.self_attn.rotary_emb.inv_freq"}};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, LATENT_NAMES, CORRECTED_NAMES}};

const struct arch arch_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .also = "kimi_k2",
    .summary = "DeepSeek-V3, V3.1, R1; Kimi K2",
    DEEPSEEK_V3(2.5, 8, 4),
    .naming = {&published, &fused},
};
