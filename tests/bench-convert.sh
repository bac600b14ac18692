#!/bin/bash
# Measures conversion of checkpoints relative to copying them: weights that keep their dtype, from the page cache.
#
# usage: tests/bench-convert.sh [PAIRS [FOLDER...]]    needs moe-convert in PATH; `make bench-convert` calls it
#
# Makes checkpoints of random weights in bf16, f16 (1.1 GB) and f32 (2.2 GB), an OLMoE of one layer, in build/bench. Alternates
# PAIRS times (10) in each FOLDER (build/bench and /dev/shm): cp of the weights, sync of the copy, moe-convert. Prints medians:
# seconds, processor seconds (user and system), and cp's time divided by moe-convert's within a pair, without and with sync.
# moe-convert syncs its output, so on a disk the ratio with sync is the fair one.
set -e
export LC_ALL=C
cd "$(dirname "$0")/.."
pairs=${1:-10}
shift || true
[ $# -gt 0 ] || set -- build/bench /dev/shm
work=build/bench/convert
mkdir -p "$work"

# Writes a header, then as many random bytes as it announces, none of which makes an exponent of ones.
checkpoint() {
    local folder=$1 dtype=$2 size=$3 length i
    mkdir -p "$folder"
    echo '{"model_type":"olmoe","hidden_size":2048,"intermediate_size":1024,"num_hidden_layers":1,"num_attention_heads":16,
        "num_key_value_heads":16,"num_experts":64,"num_experts_per_tok":8,"norm_topk_prob":false,"rms_norm_eps":1e-5,
        "rope_theta":10000.0,"max_position_embeddings":64,"vocab_size":32000,"eos_token_id":1,"tie_word_embeddings":false}' \
        > "$folder/config.json"
    awk -v dtype="$dtype" -v size="$size" -v all="$work/bytes" '
        function add(name, rows, columns) {
            bytes = rows * (columns ? columns : 1) * size
            printf "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d%s],\"data_offsets\":[%.0f,%.0f]}", (at ? "," : "{"), name, dtype,
                rows, (columns ? "," columns : ""), at, at + bytes
            at += bytes
        }
        BEGIN {
            add("model.embed_tokens.weight", 32000, 2048); add("lm_head.weight", 32000, 2048); add("model.norm.weight", 2048)
            layer = "model.layers.0."
            split("q k v o", parts, " ")
            for (i = 1; i <= 4; i++) add(layer "self_attn." parts[i] "_proj.weight", 2048, 2048)
            add(layer "self_attn.q_norm.weight", 2048); add(layer "self_attn.k_norm.weight", 2048)
            add(layer "input_layernorm.weight", 2048); add(layer "post_attention_layernorm.weight", 2048)
            add(layer "mlp.gate.weight", 64, 2048)
            for (e = 0; e < 64; e++) {
                expert = layer "mlp.experts." e "."
                add(expert "gate_proj.weight", 1024, 2048); add(expert "up_proj.weight", 1024, 2048)
                add(expert "down_proj.weight", 2048, 1024)
            }
            printf "}"
            printf "%.0f", at > all
        }' > "$work/header"
    length=$(wc -c < "$work/header")
    for ((i = 0; i < 8; i++)); do printf '%b' "\\x$(printf %x $((length >> 8 * i & 255)))"; done > "$folder/model.safetensors"
    cat "$work/header" >> "$folder/model.safetensors"
    head -c "$(cat "$work/bytes")" /dev/urandom | tr '\174-\177\374-\377' '\74-\77\274-\277' >> "$folder/model.safetensors"
}

# Prints seconds and processor seconds of a command.
timed() {
    local TIMEFORMAT='%R %U %S'
    { time "$@" > "$work/said" 2>&1; } 2>&1 | awk '{ print $1, $2 + $3 }'
}

median() { sort -n | awk '{ value[NR] = $1 } END { print (value[int((NR + 1) / 2)] + value[int(NR / 2) + 1]) / 2 }'; }

printf '%-5s %-14s %8s %8s %8s %9s %9s %7s %9s\n' dtype into 'cp s' 'cp cpu' 'sync s' 'convert s' 'conv. cpu' ratio 'with sync'
for dtype in BF16 F16 F32; do
    source=$work/$dtype
    [ -e "$source/model.safetensors" ] || checkpoint "$source" $dtype "$([ $dtype = F32 ] && echo 4 || echo 2)"
    cat "$source/model.safetensors" > /dev/null                 # into the page cache
    for folder; do
        : > "$work/times"
        for ((i = 0; i < pairs; i++)); do
            copied=$(timed cp "$source/model.safetensors" "$folder/moe-bench-convert.bin")
            synced=$(timed sync "$folder/moe-bench-convert.bin")
            rm -f "$folder/moe-bench-convert.bin"
            made=$(timed moe-convert -q "$source" -o "$folder/moe-bench-convert.moe")
            [ -s "$folder/moe-bench-convert.moe" ] || { cat "$work/said"; exit 1; }
            rm -f "$folder/moe-bench-convert.moe"
            echo "$copied $synced $made" >> "$work/times"
        done
        column() { awk "{ print $1 }" "$work/times" | median; }
        printf '%-5s %-14s %8.2f %8.2f %8.2f %9.2f %9.2f %7.2f %9.2f\n' $dtype "$folder" "$(column '$1')" "$(column '$2')" \
            "$(column '$3')" "$(column '$5')" "$(column '$6')" "$(column '$1 / $5')" "$(column '($1 + $3) / $5')"
    done
    rm -f "$source/model.safetensors" "$work/said"
done
