/* DeepSeek-V3.2 (deepseek-ai/DeepSeek-V3.2): DeepSeek-V3 whose tokens attend to the index_topk positions that an indexer
 * chooses. The published program also multiplies the indexer's queries and keys by a Hadamard matrix and rounds them to 8
 * bits; transformers and this program do neither. Reference: transformers models/deepseek_v32. */
#include "common/arch/arch.h"

#define RULES \
    .left_out = "predictors draft without an indexer", \
    .ignored = {"model.layers.{n}.self_attn.indexer.*", "model.layers.{n}.self_attn.rotary_emb.inv_freq"}
static const struct naming published = {.slot = {LLAMA_NAMES, EXPERT_NAMES, LATENT_NAMES, INDEX_NAMES, CORRECTED_NAMES}, RULES};
static const struct naming fused = {.slot = {LLAMA_NAMES, FUSED_NAMES, LATENT_NAMES, INDEX_NAMES, CORRECTED_NAMES}, RULES};

const struct arch arch_deepseek_v32 = {
    .model_type = "deepseek_v32",
    .summary = "DeepSeek-V3.2",
    DEEPSEEK_V3(2.5, 8, 4),
    .indexed = true,
    .naming = {&published, &fused},
};
