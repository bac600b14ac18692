#!/usr/bin/env bats
# Every family against transformers: logits of a prompt and a greedy answer, on tiny checkpoints in which every feature of
# the family shows (tests/golden/families/make.py). And with one feature wrong the same comparison fails.

load common

setup_file() {
    load common
    export GOLDEN="$BATS_TEST_DIRNAME/../golden/families" WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    families > families
    for family in $(cat families); do
        moe-convert -q "$GOLDEN/$family/model" -o $family.moe
        jq -c '{id: "one", tokens: .prompt}' "$GOLDEN/$family/golden.json" > $family.jsonl
    done
}

setup() { cd "$WORK"; }

families() { (cd "$GOLDEN" && ls -d */ | tr -d /); }

beyond() { jq -n -e --argjson d "$1" "\$d > $2" > /dev/null || { echo "no logit is off by more than $1"; return 1; }; }

@test "logits equal those of transformers" {
    [ "$(wc -l < families)" -ge 8 ]
    for family in $(cat families); do
        for device in host ref; do
            echo "$family on $device"
            within "$(distance $family $family.moe --device $device)" 2e-4
        done
    done
}

@test "greedy answers equal those of transformers, with and without drafts" {
    for family in $(cat families); do
        for draft in none ngram; do
            echo "$family, draft $draft"
            moe-decode -q -m $family.moe -n 24 -d $draft --json $family.jsonl | jq -c .tokens > got
            jq -c .tokens "$GOLDEN/$family/golden.json" | cmp - got
        done
    done
}

@test "families with a state: two texts that share forwards have the answers of each alone" {
    for family in bailing_hybrid granitemoehybrid jamba kimi_linear lfm2_moe nemotron_h qwen3_next; do
        echo "$family"
        sed 'p; s/one/two/' $family.jsonl > both.jsonl
        moe-decode -q -m $family.moe -n 24 --parallel 2 -d ngram --json both.jsonl | jq -c .tokens > got
        jq -c '.tokens, .tokens' "$GOLDEN/$family/golden.json" | cmp - got
    done
}

@test "the goldens have clear margins" {
    for family in $(cat families); do
        jq -e '(.margins | length) == 24 and (.margins | min) > 1e-3' "$GOLDEN/$family/golden.json"
    done
}

# With a config changed so, the golden fails: FAMILY and jq's expression, which must change something.
off() {
    local family=$1
    rm -rf wrong wrong.moe
    cp -r "$GOLDEN/$family/model" wrong
    jq "$2" "$GOLDEN/$family/model/config.json" > wrong/config.json
    ! cmp -s <(jq -c . wrong/config.json) <(jq -c . "$GOLDEN/$family/model/config.json") || { echo "no change: $2"; return 1; }
    moe-convert -q wrong -o wrong.moe
    beyond "$(distance $family wrong.moe)" 5e-3 || { echo "$family: $2"; return 1; }
}

@test "olmoe: clipping, weights of experts, epsilon and rope affect the logits" {
    off olmoe '.clip_qkv = null'
    off olmoe '.clip_qkv = 0.9'
    off olmoe '.norm_topk_prob = false'
    off olmoe '.num_experts_per_tok = 2'
    off olmoe '.rms_norm_eps = 1e-5'
    off olmoe '.rope_parameters.rope_theta = 20000'
}

@test "llama: the scaled rope and every number of it affect the logits" {
    off llama '.rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}'
    off llama '.rope_parameters.factor = 4'
    off llama '.rope_parameters.low_freq_factor = 2'
    off llama '.rope_parameters.high_freq_factor = 8'
    off llama '.rope_parameters.original_max_position_embeddings = 64'
    off llama '.rms_norm_eps = 1e-5'
}

@test "llama: the dynamic rope affects the logits past the original positions" {
    for change in '.rope_parameters.rope_type = "default" | .max_position_embeddings = 96' '.rope_parameters.factor = 2' \
                  '.max_position_embeddings = 44'; do
        rm -rf wrong
        cp -r "$GOLDEN/llama-dynamic/model" wrong
        jq "$change" "$GOLDEN/llama-dynamic/model/config.json" > wrong/config.json
        moe-convert -q wrong -o wrong.moe
        within "$(distance llama-dynamic wrong.moe)" 2e-4
        moe-decode -q -m wrong.moe -n 24 --json llama-dynamic.jsonl | jq -c .tokens > got
        [ "$(jq length got)" -eq 24 ]
        refute cmp <(jq -c .tokens "$GOLDEN/llama-dynamic/golden.json") got
    done
}

@test "mistral and mixtral: the window affects the logits" {
    off mistral '.sliding_window = null'
    off mistral '.sliding_window = 12'
    off mistral '.sliding_window = 14'
    off mixtral '.sliding_window = null'
    off mixtral '.sliding_window = 12'
    off mixtral '.num_experts_per_tok = 1'
    off mixtral '.rope_parameters.rope_theta = 1000000'
}

@test "qwen2 and qwen3: the choice of sliding layers and the rope affect the logits" {
    for family in qwen2 qwen3; do
        off $family '.use_sliding_window = false | .sliding_window = null | .layer_types = ["full_attention", "full_attention"]'
        off $family '.layer_types = ["sliding_attention", "sliding_attention"] | .max_window_layers = 0'
        off $family '.sliding_window = 10'
    done
    off qwen3 '.rope_parameters = {"rope_type": "default", "rope_theta": 5000.0}'
    off qwen3 '.rope_parameters.factor = 2'
}

@test "qwen2_moe and qwen3_moe: weights of experts affect the logits" {
    off qwen3_moe '.norm_topk_prob = false'
    off qwen2_moe '.norm_topk_prob = true'
    off qwen3_moe '.num_experts_per_tok = 2'
    off qwen3_moe '.rope_parameters.rope_theta = 20000'
}

# With a config spelt so, as its publisher does, the golden holds.
same() {
    local family=$1
    rm -rf spelt spelt.moe
    cp -r "$GOLDEN/$family/model" spelt
    jq "$2" "$GOLDEN/$family/model/config.json" > spelt/config.json
    moe-convert -q spelt -o spelt.moe
    within "$(distance $family spelt.moe)" 2e-4 || { echo "$family: $2"; return 1; }
}

@test "minimax_m2 and glm4_moe_lite: rotary width, experts and their weights affect the logits" {
    off minimax_m2 '.rope_parameters.partial_rotary_factor = 1'
    off minimax_m2 '.num_experts_per_tok = 2'
    same minimax_m2 'del(.rope_parameters) | .rope_theta = 10000 | .rotary_dim = 8 | .scoring_func = "sigmoid"'
    off glm4_moe_lite '.norm_topk_prob = false'
    off glm4_moe_lite '.routed_scaling_factor = 1'
    same glm4_moe_lite 'del(.mlp_layer_types) | .first_k_dense_replace = 1'
}

@test "deepseek_v32 and glm_moe_dsa: groups, weights and the choice of positions affect the logits" {
    off deepseek_v32 '.topk_group = 4'
    off deepseek_v32 '.index_topk = 13'
    off deepseek_v32 '.index_topk = 64'
    off glm_moe_dsa '.index_topk = 11'
    off deepseek_v32 '.routed_scaling_factor = 1'
    same deepseek_v32 '.layer_types[0] = "deepseek_sparse_attention"'
    same deepseek_v32 'del(.layer_types, .mlp_layer_types, .scoring_func) | .first_k_dense_replace = 1'
    off glm_moe_dsa '.routed_scaling_factor = 1'
    same glm_moe_dsa 'del(.layer_types, .indexer_types) | .index_topk_pattern = "FS"'
    run -2 moe-profile -q -m glm_moe_dsa.moe --kv-dtype q8 glm_moe_dsa.jsonl
    [[ "$output" == 'moe-profile: glm_moe_dsa.moe: sparse attention cannot read keys in q8; choose --kv-dtype f32, f16 or bf16' ]]
    cp -r "$GOLDEN/glm_moe_dsa/model" none
    jq '.index_topk = 0' "$GOLDEN/glm_moe_dsa/model/config.json" > none/config.json
    run -2 moe-convert none -o x.moe
    [[ "$output" == *'index_topk is 0; it must be at least 1' ]]
    jq '.indexer_types = ["shared", "full"]' "$GOLDEN/glm_moe_dsa/model/config.json" > none/config.json
    run -2 moe-convert none -o x.moe
    [[ "$output" == *'layer 0: sharing the positions of a missing layer is not supported together with an indexer' ]]
    jq '.layer_types[1] = "mystery"' "$GOLDEN/glm_moe_dsa/model/config.json" > none/config.json
    run -2 moe-convert none -o x.moe
    [[ "$output" == *'layer 1: only indexed_attention is supported' ]]
}

@test "longcat_flash: experts, scales and latents affect the logits; unsupported features are named" {
    off longcat_flash '.moe_topk = 3'
    off longcat_flash '.routed_scaling_factor = 1'
    off longcat_flash '.mla_scale_q_lora = false'
    off longcat_flash '.mla_scale_kv_lora = false'
    same longcat_flash '.num_experts_per_tok = .moe_topk | .zero_expert_type = "identity" | .router_bias = false |
        del(.moe_topk, .rope_parameters, .num_key_value_heads) | .rope_theta = 10000'
    cp -r "$GOLDEN/longcat_flash/model" kinds
    jq '.zero_expert_type = "copy"' "$GOLDEN/longcat_flash/model/config.json" > kinds/config.json
    run -2 moe-convert kinds -o x.moe
    [[ "$output" == *'zero_expert_type is "copy"; only identity is supported' ]]
    for budget in 2 auto; do                            # before a prompt is read
        run -2 moe-decode -q -m longcat_flash.moe -n 4 --budget $budget longcat_flash.jsonl
        [ "$output" = 'moe-decode: --budget: not supported for models with zero experts; leave the option out' ]
    done
}

@test "dots1 and ernie4_5_moe: window, groups and experts affect the logits" {
    off dots1 '.sliding_window = 10'
    off dots1 '.n_group = 1 | .topk_group = 1'
    off dots1 '.routed_scaling_factor = 1'
    same dots1 'del(.layer_types) | .scoring_func = "noaux_tc"'
    off ernie4_5_moe '.moe_k = 2'
    same ernie4_5_moe 'del(.rope_parameters) | .rope_theta = 10000'
}

@test "exaone_moe, afmoe and cohere2_moe: positions by layer, windows and weights affect the logits" {
    off exaone_moe '.layer_types[1] = "sliding_attention"'
    off exaone_moe '.sliding_window = 10'
    off exaone_moe '.topk_group = 4'
    same exaone_moe 'del(.layer_types, .mlp_layer_types) | .sliding_window_pattern = 2 | .first_k_dense_replace = 1'
    off afmoe '.mup_enabled = false'
    off afmoe '.route_scale = 1'
    same afmoe 'del(.layer_types) | .global_attn_every_n_layers = 2'
    off cohere2_moe '.shared_expert_combination_strategy = "sum"'
    off cohere2_moe '.expert_selection_fn = "softmax"'
    off cohere2_moe '.prefix_dense_sliding_window_pattern = 2'
    off cohere2_moe '.logit_scale = 1'
    same cohere2_moe 'del(.layer_types, .mlp_layer_types, .tie_word_embeddings) | .first_k_dense_replace = 1 |
        .sliding_window_pattern = 2'
}

@test "mimo_v2_flash and gemma4: both kinds of layers affect the logits" {
    off mimo_v2_flash '.attention_value_scale = null'
    off mimo_v2_flash '.rope_parameters.sliding_attention.rope_theta = 10000'
    off mimo_v2_flash '.sliding_window = 10'
    same mimo_v2_flash '.hybrid_layer_pattern = [0, 1, 0] | .moe_layer_freq = [0, 1, 1] | .sliding_window_size = 8 |
        .swa_num_key_value_heads = 2 | .swa_rope_theta = 100 | .rope_theta = 10000 | .partial_rotary_factor = 0.334 |
        .layernorm_epsilon = .rms_norm_eps |
        del(.layer_types, .mlp_layer_types, .rope_parameters, .rms_norm_eps, .sliding_window)'
    off gemma4_text '.rope_parameters.full_attention.partial_rotary_factor = 0.25'
    off gemma4_text '.final_logit_softcapping = null'
    off gemma4_text '.top_k_experts = 2'
    same gemma4_text '.global_head_dim = 16 | .num_global_key_value_heads = 1 | del(.per_layer_config, .tie_word_embeddings)'
}

# The checkpoint of family $1 as the text part of a model of texts and images of type $2, in the folder nested: the tensors have
# what the expression $3 of Python makes of `name`, and those of images are $4 and $5.
nest() {
    mkdir -p nested
    jq --arg type "$2" '{model_type: $type, text_config: ., vision_config: {}}' "$GOLDEN/$1/model/config.json" > nested/config.json
    python3 - "$GOLDEN/$1/model/model.safetensors" nested/model.safetensors "${@:3}" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, values = json.loads(data[8:8 + length]), data[8 + length:]
header = {eval(sys.argv[3]): entry for name, entry in header.items() if name != "__metadata__"}
for name in sys.argv[4:]:
    header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [len(values), len(values) + 8]}
    values += bytes(8)
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + values)
END
}

@test "llama4: chunks, positions, norms and experts affect the logits; of a model of texts and images the text part is converted" {
    off llama4_text '.attention_chunk_size = 12'
    off llama4_text '.layer_types[3] = "chunked_attention"'
    off llama4_text '.no_rope_layers[3] = 1'
    off llama4_text '.attn_temperature_tuning = false'
    off llama4_text '.floor_scale = 9'
    off llama4_text '.attn_scale = 0.2'
    off llama4_text '.use_qk_norm = false'
    same llama4_text '.no_rope_layers = [] | .attn_temperature_tuning = 4 | .rope_scaling = .rope_parameters | .rope_theta = 10000 |
        del(.layer_types, .moe_layers, .rope_parameters, .use_qk_norm)'
    nest llama4_text llama4 '"language_model." + name' vision_model.a multi_modal_projector.b
    run -0 moe-convert nested -o nested.moe
    [[ "$output" == *'2 tensors (the first: '*') are left out: only the text model is converted'* ]]
    within "$(distance llama4_text nested.moe)" 2e-4
    jq '.text_config.num_experts_per_tok = 2' nested/config.json > two && mv two nested/config.json
    run -2 moe-convert nested -o x.moe
    [[ "$output" == *'with weighted expert inputs only 1 expert per token is supported, not 2'* ]]
}

@test "gemma4: of a model of texts and images the text part is converted, with a note" {
    nest gemma4_text gemma4 'name.replace("model.", "model.language_model.", 1)' model.vision_tower.a model.embed_vision.b
    run -0 moe-convert nested -o nested.moe
    [[ "$output" == *'2 tensors (the first: model.'*') are left out: only the text model is converted'* ]]
    within "$(distance gemma4_text nested.moe)" 2e-4
    jq '.text_config.enable_moe_block = false' nested/config.json > dense && mv dense nested/config.json
    run -2 moe-convert nested -o x.moe
    [[ "$output" == *'enable_moe_block is false; only Gemma 4 with experts is supported'* ]]
}

@test "layer types that are not supported point to the list of families" {
    cp -r "$GOLDEN/exaone_moe/model" typed
    jq '.layer_types[1] = "linear_attention"' "$GOLDEN/exaone_moe/model/config.json" > typed/config.json
    run -2 moe-convert typed -o x.moe
    [[ "$output" == *'layer 1 is "linear_attention"; supported are full_attention and sliding_attention; moe-convert --list'* ]]
}

@test "hunyuan_v1_moe and flex_olmo: alpha of rope, experts and their weights affect the logits" {
    off hunyuan_v1_moe '.rope_parameters.alpha = 1'
    off hunyuan_v1_moe '.moe_topk = 2'
    same hunyuan_v1_moe '.moe_topk = [3, 3] | .moe_intermediate_size = [16, 16] | .num_shared_expert = [1, 1] |
        .rope_scaling = (.rope_parameters | .type = .rope_type | del(.rope_type)) | .rope_theta = 100 | del(.rope_parameters)'
    off flex_olmo '.num_experts_per_tok = 2'
    off flex_olmo '.rope_parameters.rope_theta = 20000'
}

@test "qwen3_next: states, gates, norms, rotary width and experts affect the logits" {
    off qwen3_next '.num_experts_per_tok = 2'
    off qwen3_next '.norm_topk_prob = false'
    off qwen3_next '.rope_parameters.partial_rotary_factor = 0.5'
    off qwen3_next '.rms_norm_eps = 1e-5'
    same qwen3_next 'del(.rope_parameters, .norm_topk_prob, .linear_conv_kernel_dim) | .rope_theta = 10000'
}

@test "qwen3_next: without layer_types an interval or the weights determine which layers have a state; a contradiction is refused" {
    same qwen3_next 'del(.layer_types) | .full_attention_interval = 2'
    same qwen3_next 'del(.layer_types)'
    cp -r "$GOLDEN/qwen3_next/model" told
    jq 'del(.layer_types) | .full_attention_interval = 4' "$GOLDEN/qwen3_next/model/config.json" > told/config.json
    run -2 moe-convert told -o x.moe
    [[ "$output" == *"config.json: by full_attention_interval layer 1 is linear_attention, but the weights contain model.layers.1.self_attn.q_proj.weight; correct config.json" ]]
    jq '.layer_types[2] = "full_attention"' "$GOLDEN/qwen3_next/model/config.json" > told/config.json
    run -2 moe-convert told -o x.moe
    [[ "$output" == *"config.json: by layer_types layer 2 is full_attention, but the weights contain model.layers.2.linear_attn.out_proj.weight; correct config.json" ]]
    sed -i 's/model.layers.1.mlp.up_proj.weight/model.layers.1.linear_attn.out_proj.weight/; s/"__metadata__":{"format":"pt"}/"__metadata__":{    }/' told/model.safetensors
    run -2 moe-convert told -o x.moe
    [[ "$output" == *"layer 1 has tensors of attention and of a recurrent state, such as model.layers.1.linear_attn.out_proj.weight; a layer has only one of the two, so remove the tensors of the other" ]]
}

@test "qwen3_5_moe: nested and plain files are the same model; states, gates and rotary width affect the logits" {
    off qwen3_5_moe '.text_config.num_experts_per_tok = 2'
    off qwen3_5_moe '.text_config.rope_parameters.partial_rotary_factor = 0.5'
    off qwen3_5_moe '.text_config.rms_norm_eps = 1e-5'
    same qwen3_5_moe 'del(.text_config.rope_parameters.partial_rotary_factor, .text_config.linear_conv_kernel_dim)'
    run moe-convert "$GOLDEN/qwen3_5_moe/model" -o noted.moe
    [ "$status" -eq 0 ]
    [[ "$output" == *"1 tensor (the first: model.visual.pos_embed.weight) is left out: only the text model is converted"* ]]
}

@test "granitemoehybrid: states, positions, shared experts and factors affect the logits; other spellings mean the same" {
    off granitemoehybrid '.position_embedding_type = "rope"'
    off granitemoehybrid '.num_experts_per_tok = 1'
    off granitemoehybrid '.residual_multiplier = 1'
    off granitemoehybrid-dense '.position_embedding_type = "nope"'
    off granitemoehybrid-dense '.rope_parameters.rope_theta = 100'
    same granitemoehybrid '.layer_types = ["mamba", "attention", "mamba"] | .position_embedding_type = "nope" | .mamba_d_head = "auto" |
        del(.time_step_limit, .rope_parameters, .mamba_d_conv, .mamba_conv_bias, .mamba_proj_bias)'
    same granitemoehybrid 'del(.layer_types)'
    cp -r "$GOLDEN/granitemoehybrid/model" limited
    jq '.time_step_limit = [0.1, 1]' "$GOLDEN/granitemoehybrid/model/config.json" > limited/config.json
    run -2 moe-convert limited -o x.moe
    [[ "$output" == *'time_step_limit is [0.1,1]; only 0 to infinity, which is no limit, is supported' ]]
    jq '.layer_types[1] = "conv"' "$GOLDEN/granitemoehybrid/model/config.json" > limited/config.json
    run -2 moe-convert limited -o x.moe
    [[ "$output" == *'layer 1 is "conv"; supported are attention and mamba; moe-convert --list-families'* ]]
    jq '.mamba_proj_bias = true' "$GOLDEN/granitemoehybrid/model/config.json" > limited/config.json
    run -2 moe-convert limited -o x.moe
    [[ "$output" == *'mamba_proj_bias is true; this is not supported for granitemoehybrid' ]]
}

@test "lfm2_moe: norms, experts and their weights affect the logits; other spellings mean the same" {
    off lfm2_moe '.num_experts_per_tok = 1'
    off lfm2_moe '.routed_scaling_factor = 1'
    off lfm2_moe '.norm_topk_prob = false'
    off lfm2_moe '.norm_eps = 1e-5'
    same lfm2_moe 'del(.rope_parameters, .tie_word_embeddings, .conv_L_cache, .use_expert_bias) | .rope_theta = 10000 | .tie_embedding = false'
    cp -r "$GOLDEN/lfm2_moe/model" biased
    jq '.conv_bias = true' "$GOLDEN/lfm2_moe/model/config.json" > biased/config.json
    run -2 moe-convert biased -o x.moe
    [[ "$output" == *'conv_bias is true; this is not supported for lfm2_moe' ]]
}

@test "solar_open: experts, groups and norms affect the logits; the published keys mean the same" {
    off solar_open '.num_experts_per_tok = 1'
    off solar_open '.topk_group = 3'
    off solar_open '.rms_norm_eps = 1e-5'
    same solar_open 'del(.rope_parameters) | .first_k_dense_replace = 0 | .use_qk_norm = false | .partial_rotary_factor = 1.0 |
        .rope_theta = 10000 | .rope_scaling = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}'
}

@test "kimi_linear: experts and norms affect the logits; the published keys mean the same; unsupported features are named" {
    off kimi_linear '.num_experts_per_token = 1'
    off kimi_linear '.topk_group = 2'
    off kimi_linear '.rms_norm_eps = 1e-5'
    same kimi_linear 'del(.layer_types, .mlp_layer_types, .linear_head_dim, .linear_num_heads, .linear_conv_kernel_dim) |
        .first_k_dense_replace = 1 | .moe_layer_freq = 1 | .mla_use_nope = true | .moe_router_activation_func = "sigmoid" |
        .linear_attn_config = {"full_attn_layers": [2], "kda_layers": [1, 3], "head_dim": 6, "num_heads": 2, "short_conv_kernel_size": 4}'
    cp -r "$GOLDEN/kimi_linear/model" channels
    jq '.mla_use_nope = false' "$GOLDEN/kimi_linear/model/config.json" > channels/config.json
    run -2 moe-convert channels -o x.moe
    [[ "$output" == *'mla_use_nope is false; only true is supported' ]]
    jq 'del(.layer_types) | .linear_attn_config.full_attn_layers = [0]' "$GOLDEN/kimi_linear/model/config.json" > channels/config.json
    run -2 moe-convert channels -o x.moe
    [[ "$output" == *'its entries must be from 1 to 3' ]]
}

@test "kimi_linear: save_pretrained of transformers names dense layers like those with experts" {
    command -v python3 > /dev/null || skip "no python3"
    nest kimi_linear kimi_linear 'name.replace("layers.0.mlp.", "layers.0.block_sparse_moe.")'
    mv nested/model.safetensors .
    rm -r nested
    cp -r "$GOLDEN/kimi_linear/model" saved
    mv model.safetensors saved
    moe-convert -q saved --name model -o saved.moe
    within "$(distance kimi_linear saved.moe)" 2e-4
}

@test "bailing_hybrid: limits of gated units, which each layer has for routed and for shared experts" {
    local golden="$GOLDEN/bailing_hybrid" change
    rm -rf limited
    cp -r "$golden" limited
    limited() { jq --slurpfile with "$golden/limits.json" ". + \$with[0].limits | $1" "$golden/model/config.json"; }
    jq --slurpfile with "$golden/limits.json" '.logits = $with[0].logits' "$golden/golden.json" > limited/golden.json
    limited . > limited/model/config.json
    moe-convert -q limited/model -o limited.moe
    cp bailing_hybrid.jsonl limited.jsonl
    for device in host ref; do within "$(GOLDEN=. distance limited limited.moe --device $device)" 2e-4; done
    for change in 'del(.expert_swiglu_limit_list)' '.expert_swiglu_limit_list[1] = 0.8' 'del(.share_expert_swiglu_limit_list)' \
                  '.share_expert_swiglu_limit_list = [null, 0.6, 0.6]' '.share_expert_swiglu_limit_list[2] = 0'; do
        limited "$change" > limited/model/config.json
        moe-convert -q limited/model -o wrong.moe
        beyond "$(GOLDEN=. distance limited wrong.moe)" 5e-3 || { echo "$change"; return 1; }
    done
    limited '.expert_swiglu_limit_list = [] | .share_expert_swiglu_limit_list = [null]' > limited/model/config.json
    moe-convert -q limited/model -o limited.moe
    within "$(distance bailing_hybrid limited.moe)" 2e-4
}

@test "bailing_hybrid: decays, experts and norms affect the logits; other names and keys mean the same; unsupported features are named" {
    local keys='del(.layer_types, .mlp_layer_types, .linear_head_dim, .linear_num_heads, .linear_conv_kernel_dim, .rope_parameters) |
        .first_k_dense_replace = 1 | .layer_group_size = 2 | .rope_theta = 10000 | .rope_scaling = null | .partial_rotary_factor = 0.5'
    off bailing_hybrid '.kda_lower_bound = -5'
    off bailing_hybrid '.kda_safe_gate = false'
    off bailing_hybrid '.topk_group = 2'
    off bailing_hybrid '.rms_norm_eps = 1e-5'
    same bailing_hybrid "$keys"
    rm -rf kda
    cp -r "$GOLDEN/bailing_hybrid/model" kda
    LC_ALL=C sed -i 's/attention\.o_proj\.weight":/attention.dense.weight": /g' kda/model.safetensors      # as transformers saves it
    ! cmp -s kda/model.safetensors "$GOLDEN/bailing_hybrid/model/model.safetensors"
    moe-convert -q kda -o kda.moe
    within "$(distance bailing_hybrid kda.moe)" 2e-4
    while IFS='#' read -r change message; do
        jq "$change" "$GOLDEN/bailing_hybrid/model/config.json" > kda/config.json
        run -2 moe-convert kda -o x.moe
        [[ "$output" == *"$message" ]] || { echo "$change: $output"; return 1; }
    done <<'END'
.architectures = ["BailingMoeV2_5ForCausalLM"]#lightning attention (Ling 2.5) is not supported
.expert_swiglu_limit_list = 7#expert_swiglu_limit_list is 7; it must be a list
.share_expert_swiglu_limit_list = ["7"]#it must be a list of numbers from 0 and of nulls
.expert_swiglu_limit_list = [0, -7]#it must be a list of numbers from 0 and of nulls
.kda_lower_bound = -1e-60#it must be below 0
.no_kda_lora = false#no_kda_lora is false; only true is supported
.mtp_use_kda = true#mtp_use_kda is true; only false is supported
.gated_attention_proj_granularity_type = "element_wise"#"element_wise"; only head_wise is supported
.score_function = "softmax"#score_function is "softmax"; only sigmoid is supported
.num_kv_heads_for_linear_attn = 1#num_kv_heads_for_linear_attn is 1; only 0 is supported
.kda_lower_bound = 0#it must be below 0
.moe_shared_expert_intermediate_size = 9#only moe_intermediate_size is supported
del(.layer_types) | .layer_group_size = 0#it must be at least 1
END
}

@test "jamba: experts and norms affect the logits; other keys mean the same; unsupported features are named" {
    off jamba '.num_experts_per_tok = 1'
    off jamba '.rms_norm_eps = 1e-5'
    same jamba 'del(.mamba_d_conv, .mamba_expand, .mamba_conv_bias) | .sliding_window = null | .mamba_proj_bias = false'
    rm -rf scan
    cp -r "$GOLDEN/jamba/model" scan
    while IFS='#' read -r change message; do
        jq "$change" "$GOLDEN/jamba/model/config.json" > scan/config.json
        run -2 moe-convert scan -o x.moe
        [[ "$output" == *"$message" ]] || { echo "$change: $output"; return 1; }
    done <<'END'
.mamba_proj_bias = true#mamba_proj_bias is true; this is not supported for jamba
.attn_layer_offset = 3#attn_layer_offset is 3; it must be from 0 to 2
.expert_layer_period = 0#expert_layer_period is 0; it must be at least 1
.mamba_dt_rank = "all"#mamba_dt_rank is "all"; it must be an integer
.mamba_expand = 100#mamba_expand times hidden_size must be from 1 to 1048576
.mamba_d_state = 300 | .mamba_expand = 64#only 1 key head and at most 16384 floats are supported
END
}

@test "nemotron_h: layers, experts and norms affect the logits; other spellings mean the same; unsupported features are named" {
    off nemotron_h '.num_experts_per_tok = 1'
    off nemotron_h '.topk_group = 2'
    off nemotron_h '.layer_norm_epsilon = 1e-5'
    same nemotron_h 'del(.layers_block_type, .time_step_limit, .conv_kernel, .use_conv_bias) |
        .hybrid_override_pattern = "ME*-ME" | .num_hidden_layers = 6 | .norm_eps = 1 | .time_step_limit = [0.0, 1e30]'
    same nemotron_h '.layers_block_type = ["mamba", "moe", "attention", "mlp", "mamba", "moe"]'
    cp -r "$GOLDEN/nemotron_h/model" halves
    jq '.layers_block_type[3] = "conv"' "$GOLDEN/nemotron_h/model/config.json" > halves/config.json
    run -2 moe-convert halves -o x.moe
    [[ "$output" == *'layer 3: supported are mamba (M), attention (*), moe (E) and mlp (-)' ]]
    jq '.mlp_hidden_act = "silu"' "$GOLDEN/nemotron_h/model/config.json" > halves/config.json
    run -2 moe-convert halves -o x.moe
    [[ "$output" == *'mlp_hidden_act is "silu"; only relu2 is supported' ]]
    jq '.moe_latent_size = 8' "$GOLDEN/nemotron_h/model/config.json" > halves/config.json
    run -2 moe-convert halves -o x.moe
    [[ "$output" == *'moe_latent_size is 8; this is not supported for nemotron_h' ]]
}

@test "tensors of parts that are left out are counted in one note, and unknown layer types are named" {
    cp -r "$GOLDEN/qwen3_next/model" parts
    python3 - parts/model.safetensors <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
end = len(data) - 8 - size
for name in ("mtp.fc.weight", "mtp.norm.weight"):
    header[name] = {"dtype": "BF16", "shape": [1], "data_offsets": [end, end + 2]}
    end += 2
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:] + bytes(4))
END
    run moe-convert parts -o parts.moe
    [ "$status" -eq 0 ]
    [[ "$output" == *"2 tensors (the first: mtp.fc.weight) are left out"* ]]
    within "$(distance qwen3_next parts.moe)" 2e-4
    jq '.layer_types[1] = "mamba"' "$GOLDEN/qwen3_next/model/config.json" > parts/config.json
    run -2 moe-convert parts -o x.moe
    [[ "$output" == *'layer 1 is "mamba"; supported are full_attention and linear_attention; moe-convert --list-families'* ]]
}

@test "a number for each layer must be the same for all" {
    cp -r "$GOLDEN/hunyuan_v1_moe/model" numbers
    jq '.moe_topk = [3, 2]' "$GOLDEN/hunyuan_v1_moe/model/config.json" > numbers/config.json
    run -2 moe-convert numbers -o x.moe
    [[ "$output" == *'moe_topk is [3,2]; only the same number for all layers is supported'* ]]
}

@test "a list of dense and sparse layers is checked" {
    cp -r "$GOLDEN/glm4_moe_lite/model" listed
    jq '.mlp_layer_types = ["dense", "linear"]' "$GOLDEN/glm4_moe_lite/model/config.json" > listed/config.json
    run -2 moe-convert listed -o x.moe
    [[ "$output" == *'mlp_layer_types: layer 1 is "linear"; supported are dense and sparse'* ]]
    jq '.mlp_layer_types = ["dense"]' "$GOLDEN/glm4_moe_lite/model/config.json" > listed/config.json
    run -2 moe-convert listed -o x.moe
    [[ "$output" == *'it must list 2 layers'* ]]
}

@test "a window bounds the keys and values that are counted" {
    # one of two layers sees 9 tokens: only the other one's 2 heads of 16 + 16 floats come to a token's bytes
    moe-decode -q -m gpt_oss.moe -n 12 --ignore-eos --stream w.moes -o /dev/null gpt_oss.jsonl
    moe-view --json w.moes | jq -s -e '[.[] | select(.type == "iter") | .bytes] as $b |
        ($b | length) == 11 and all(range(10); $b[. + 1] - $b[.] == 2 * 32 * 4)'
}

@test "numbers and words that mean another function are refused by name" {
    local family change message
    while IFS='#' read -r family change message; do
        rm -rf other
        cp -r "$GOLDEN/$family/model" other
        jq "$change" "$GOLDEN/$family/model/config.json" > other/config.json
        run -2 moe-convert other -o x.moe
        [ "$output" = "moe-convert: other: config.json: $message" ] || { echo "$family, $change: $output"; return 1; }
    done <<'END'
gpt_oss#.swiglu_limit = 0#swiglu_limit is 0; it must be above 0
gpt_oss#.swiglu_alpha = 0#swiglu_alpha is 0; it must be above 0
glm_moe_dsa#.index_n_heads = -3#index_n_heads is -3; it must be at least 1
nemotron_h#.mamba_hidden_act = "gelu"#mamba_hidden_act is "gelu"; only silu is supported
END
}
