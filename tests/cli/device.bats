#!/usr/bin/env bats
# Devices by name: a missing GPU is one line and no silent fall-back; and every family on the emulated GPU (--device emu): the
# kernels of kernels/cuda through the real commands, close to transformers, with the same bits with drafts and trees, and with
# race detection.

load common

setup_file() {
    load common
    export GOLDEN="$BATS_TEST_DIRNAME/../golden/families" WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    # Sparse attention and feed-forward networks without gates have no kernels for GPUs yet.
    (cd "$GOLDEN" && grep -L -e '"index_topk"' -e '"relu2"' */model/config.json | cut -d/ -f1) > families
    (cd "$GOLDEN" && grep -l '"relu2"' */model/config.json | cut -d/ -f1) > ungated
    (cd "$GOLDEN" && grep -l '"index_topk"' */model/config.json | cut -d/ -f1) > sparse
    # The emulator is slow: in `make check` every eighth family, and one with a state, run the slow parts; under sanitisers
    # nothing else runs.
    if [ -n "$MOE_LONG" ]; then cp families some; else awk 'NR % 8 == 1 || /^kimi_linear$/' families > some; fi
    [ -z "$MOE_SANITIZED" ] || cp some families
    echo '[[0], [1], [0,0], [0,1], [1,0], [0,0,0]]' > tree.json
    local family count=${MOE_LONG:+20}
    count=${count:-7}
    for family in $(cat families ungated sparse); do
        moe-convert -q "$GOLDEN/$family/model" -o $family.moe
        jq -c '{id: "one", tokens: .prompt}' "$GOLDEN/$family/golden.json" > $family.jsonl
        # Texts of two runs are compared, which needs only a repetition and more tokens than the windows (9 and 13) have.
        jq -c ".tokens |= .[:$count] + .[:$count]" $family.jsonl > short-$family.jsonl
    done
}

setup() { cd "$WORK"; }

@test "a missing GPU is an error, and auto uses the host" {
    moe-decode -q -m pocket.moe --device cuda -p x -n 1 > /dev/null 2>&1 && skip "there is a GPU"
    for device in cuda cuda:0 cuda:7; do
        run moe-decode -q -m pocket.moe --device $device -p x -n 1
        assert_trouble moe-decode
        [[ $output == *"device $device"[:\;]" "* ]]
    done
    moe-decode -q -m pocket.moe --device auto -p x -n 1 -o text --stream auto.moes
    moe-view --json auto.moes | head -n 1 | jq -e '.device | startswith("host")'
}

@test "tests/gpu/all reports a missing driver in one line, and that it cannot judge" {
    [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] || skip "there is a driver"
    run "$BATS_TEST_DIRNAME/../gpu/all"
    [ "$status" = 125 ]
    [ "${#lines[@]}" = 1 ]
    [[ $output == "gpu-all: cannot judge: "*driver* ]]
    DEVICE=nothing run "$BATS_TEST_DIRNAME/../gpu/all"
    [ "$status" = 2 ]
}

@test "unknown device names and emulator devices that do not exist are refused" {
    for device in gpu cudax host:0 ref:1 emu:4 emu:x emu: emu-race:0x0; do
        run moe-decode -q -m pocket.moe --device "$device" -p x -n 1
        assert_trouble moe-decode
        [[ $output == *"device $device"[:\;]" "* ]]
    done
}

@test "the emulated GPU: every family gives the logits of transformers" {
    for family in $(cat families); do
        d=$(distance $family $family.moe --device emu)
        echo "$family: $d"
        jq -n -e --argjson d "$d" '$d < 2e-4'
    done
}

@test "sparse attention and networks without gates are refused by name" {
    [ -s ungated ] && [ -s sparse ]
    for family in $(cat sparse); do
        run moe-profile -q -m $family.moe --device emu $family.jsonl
        assert_trouble moe-profile
        [[ $output == *"does not support sparse attention, which $family.moe has; use --device host" ]]
    done
    for family in $(cat ungated); do
        run moe-profile -q -m $family.moe --device emu $family.jsonl
        assert_trouble moe-profile
        [[ $output == *"does not support feed-forward networks without gates, which $family.moe has; use --device host" ]]
    done
}

@test "a plug-in built from other sources is refused" {
    mkdir -p old/bin old/lib/moekit
    cp "$MOE_BIN/moe-decode" old/bin                    # not a link: plug-ins are searched for beside the program
    echo 'const void *moe_cuda_plugin(void) { static const unsigned long old[64] = {10}; return old; }' |
        gcc -shared -fPIC -x c -o old/lib/moekit/moe-emu.so -
    run old/bin/moe-decode -q -m pocket.moe --device emu -p x -n 1
    assert_trouble moe-decode
    [[ $output == "moe-decode: device emu: moe-emu.so and this command were built from different sources; build moekit again" ]]
}

# Prints the tokens: FAMILY, length, and options.
tokens() {
    local family=$1 n=$2
    shift 2
    moe-decode -q -m $family.moe -n $n --ignore-eos "$@" --json short-$family.jsonl | jq -c .tokens
}

@test "the emulated GPU: the same text without drafts, with chains and with trees, at temperature 0 and above" {
    local samplings number=0 n=${MOE_LONG:+10}
    n=${n:-6}
    for family in $(cat some); do
        samplings=('' '--temperature 0.8 --seed 3')
        [ -z "$MOE_SANITIZED" ] || samplings=('--temperature 0.8 --seed 3')
        # In `make check` alternately.
        [ -n "$MOE_LONG$MOE_SANITIZED" ] || samplings=("${samplings[number++ % 2]}")
        for sampling in "${samplings[@]}"; do
            echo "$family $sampling"
            tokens $family $n --device emu $sampling > none
            [ "$(jq length none)" = $n ]
            tokens $family $n --device emu $sampling -d ngram -K 3 | cmp - none
            # The model drafts for itself: one branch of each tree is right, the others are not.
            tokens $family $n --device emu $sampling -d model:file=$family.moe --tree static:file=tree.json | cmp - none
        done
    done
}

# A launch's variant depends on the number of processors: here, whether attention's chunks are blocks of their own.
@test "the emulated GPU: the same bits with 1, 4, 7 and 132 processors" {
    [ -z "$MOE_SANITIZED" ] || skip "takes minutes there"
    jq -nc '{id: "long", tokens: [range(100) | (. * 37 + . * . * 11) % 2000 + 5]}' > long.jsonl
    local layers='--layers 1'
    [ -z "$MOE_LONG" ] || layers=
    moe-convert synthetic -q --like "$MOE_MODELS/pocket/model/config.json" $layers -o shaped.moe
    for number in 0 ${MOE_LONG:+1 2} 3; do
        moe-profile -q -m shaped.moe --record logits -c 2048 --device emu:$number long.jsonl -o logits.moes
        moe-view --json logits.moes | jq -c 'select(.type == "route")' > $number
        jq -s -e 'map(.logits[]) | length == 100' $number
        cmp $number 0
    done
}

@test "the emulated GPU: budgets keep the same experts as on the host, with the same divergence" {
    [ -z "$MOE_SANITIZED" ] || skip "takes minutes there"
    local first=2
    for family in $(cat some); do
        ! grep -q '"zero_expert_num"' "$GOLDEN/$family/model/config.json" || continue       # they have no budgets
        moe-profile -q --device host -m $family.moe $family.jsonl | moe-coact rank-experts --by mass -o rank.moes || continue
        jq -c ".tokens |= .[:12] + .[:12]" $family.jsonl > twice.jsonl
        local kinds=('-B 3' '-B 4 --rank path -K 3' '-B 4 --rank rank.moes -K 2' '-B 3 --budget-mode truncate')
        # In `make check` each family uses two of the kinds, and the next family the other two.
        first=$((first + 2 & 3))
        [ -n "$MOE_LONG" ] || kinds=("${kinds[@]:first:2}")
        for options in "${kinds[@]}"; do
            echo "$family $options"
            for device in host emu; do
                moe-decode -q -m $family.moe -n 8 --ignore-eos --device $device -d ngram --reference self $options \
                    --stream iterations.moes -o text twice.jsonl
                moe-view --json iterations.moes | jq -c 'select(.type == "iter" or .type == "done") |
                    del(.t_us, .draft_us, .verify_us, .accept_us, .other_us, .overlap)' > $device
            done
            jq -c 'del(.divergence)' host > want
            jq -c 'del(.divergence)' emu | cmp - want
            jq -n -e --slurpfile a host --slurpfile b emu '[$a, $b | map(.divergence // []) | flatten] | transpose |
                all((.[0] - .[1] | fabs) <= 1e-5 * (1 + .[0]))'
            cat host >> budgets
        done
    done
    jq -s -e 'map(.divergence // []) | flatten | map(select(. > 1e-3)) | length > 10' budgets
}

@test "a nested make finds the same compilers" {
    run env -u CC -u CXX "${MAKE:-make}" -s -R -C "$top" CUDA=no --eval='compilers:; @echo $(CC) $(CXX)' compilers
    [ "$status" = 0 ]
    [ "$output" = 'gcc g++' ]
}

@test "the emulated GPU: no races, and the same bits with race detection" {
    [ -z "$MOE_SANITIZED" ] || skip "the kernels that look for races are in the build without sanitisers"
    for family in $(cat some); do
        echo "$family"
        tokens $family 3 --device emu > none
        tokens $family 3 --device emu-race -d model:file=$family.moe --tree static:file=tree.json | cmp - none
        tokens $family 3 --device emu-race -d ngram -K 2 | cmp - none           # iterations of the device's own loop
    done
}

@test "the emulated GPU: the pocket model's answer is the host's, drafted in chains and trees" {
    [ -z "$MOE_SANITIZED" ] || skip "takes minutes there"
    local n=${MOE_LONG:+8}
    if [ -n "$MOE_LONG" ]; then head -n 1 "$MOE_MODELS/pocket/heldout.jsonl"; else echo '{"prompt": "Noah has 25 pens. Noah has"}'; fi > one.jsonl
    for sampling in '' '--temperature 0.8 --seed 5'; do
        moe-decode -q -m pocket.moe -n ${n:-4} $sampling one.jsonl > host
        moe-decode -q -m pocket.moe -n ${n:-4} $sampling --device emu one.jsonl | cmp - host
        moe-decode -q -m pocket.moe -n ${n:-4} $sampling --device emu -d ngram --tree dynamic one.jsonl | cmp - host
    done
}

@test "the emulated GPU: a prompt with a slab of 1,024 tokens in it, answered alike with drafts" {
    [ -n "$MOE_LONG" ] || skip "takes a minute"
    [ -z "$MOE_SANITIZED" ] || skip "takes minutes there"
    echo '{"model_type": "qwen3_moe", "hidden_size": 32, "intermediate_size": 16, "moe_intermediate_size": 16,
           "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "num_experts": 4,
           "num_experts_per_tok": 2, "norm_topk_prob": true, "vocab_size": 64, "max_position_embeddings": 2048,
           "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false, "hidden_act": "silu"}' > slab.json
    moe-convert synthetic -q --like slab.json -l 1 --dtype bf16 -o slab.moe
    jq -nc '{id: "long", tokens: [range(1030) | (. * 37 + 11 * . * .) % 64]}' > slab.jsonl
    tokens slab 8 --device emu --temperature 0.9 --seed 3 > none
    [ "$(jq length none)" = 8 ]
    tokens slab 8 --device emu --temperature 0.9 --seed 3 -d ngram -K 3 | cmp - none
    tokens slab 8 --device emu --temperature 0.9 --seed 3 -d model:file=slab.moe --tree static:file=tree.json | cmp - none
}

# Prints the records of the iterations without times, and the text after them: FAMILY and options of moe-decode. The emulated
# GPU and 12 tokens, unless the options say otherwise.
records() {
    local family=$1 usual=()
    shift
    [[ " $*" == *" -n "* ]] || usual+=(-n 12)
    [[ " $*" == *" --device "* ]] || usual+=(--device emu)
    moe-decode -q -m $family.moe "${usual[@]}" --ignore-eos --stream iterations.moes -o text "$@" twice.jsonl
    moe-view --json iterations.moes | jq -c 'select(.type == "iter" or .type == "done") |
        del(.t_us, .draft_us, .verify_us, .accept_us, .other_us, .overlap)'
}

place() { moe-view --json iterations.moes | jq -r 'select(.type == "machine").loop'; }

@test "the emulated GPU iterates by itself, with the same records as the host's loop" {
    for family in ${MOE_LONG:+$(cat some)} deepseek; do
        jq -c '.prompt |= .[:12] | {id: "one", tokens: (.prompt + .prompt)}, {id: "two", tokens: .prompt}' "$GOLDEN/$family/golden.json" > twice.jsonl
        for options in '' '-d ngram -K 3' '-d ngram:n=2,min=2 -K 5 --temperature 0.8 --seed 3' '-n 1' '-n 2 -d ngram'; do
            echo "$family $options"
            records $family $options > device
            [ "$(place)" = device ]
            # Observers of forwards keep iterations on the host.
            look=--overlap
            [[ $options == *-d* ]] || look='--accept rejection -d none'
            records $family $options $look > host
            [[ $(place) == host:* ]]
            cmp device host
            cat device >> all
        done
        # Cascade's choices depend on times; the text does not.
        records $family -d ngram --policy cascade:baseline=1,trial=1,trials=2,set=2 | jq -c 'select(.type == "done").tokens' > device
        [ "$(place)" = device ]
        records $family | jq -c 'select(.type == "done").tokens' | cmp - device
    done
    [ "$(jq -s 'map(.nodes // 1 | . - 1) | add' all)" -gt 10 ]
}

@test "the emulated GPU iterates by itself in a suite: each setting names the device, with the host's texts" {
    family=$(head -n 1 some)
    cp short-$family.jsonl repeated.jsonl
    echo '{"model": "'$family.moe'", "prompts": "repeated.jsonl", "options": {"max-tokens": 6, "ignore-eos": true},
           "measure-seconds": 0, "warm-up": 0, "settings": [{"name": "none"}, {"name": "K3", "draft": "ngram", "draft-length": 3},
           {"name": "tree", "draft": "ngram", "tree": "dynamic"}]}' > places.json
    moe-bench run -q --device emu places.json -o places.moes
    [ "$(moe-view --json places.moes | jq -r 'select(.type == "setting").loop' | paste -sd '|')" = \
      'device|device|host: drafts are trees' ]
    [ "$(moe-view --json places.moes | jq -c 'select(.type == "done").tokens' | sort -u | wc -l)" = 1 ]
    moe-bench run -q places.json -o host.moes
    [ "$(moe-view --json host.moes | jq -r 'select(.type == "setting").loop' | sort -u)" = null ]
}

@test "the reason for iterations on the host is reported, unless the device has no loops" {
    family=$(head -n 1 families)
    cp short-$family.jsonl twice.jsonl
    records $family -n 2 -d model:file=$family.moe > /dev/null
    [ "$(place)" = 'host: drafter model' ]
    records $family -n 2 -d ngram --tree static:file=tree.json > /dev/null
    [ "$(place)" = 'host: drafts are trees' ]
    records $family -n 2 -d ngram --policy tiers > /dev/null
    [ "$(place)" = 'host: policy tiers' ]
    records $family -n 2 -d ngram -d ngram:n=2 > /dev/null
    [ "$(place)" = 'host: several drafters' ]
    records $family -n 2 -d ngram --accept rejection > /dev/null
    [ "$(place)" = 'host: acceptance is not coupled' ]
    records $family -n 2 --device host > /dev/null
    [ "$(place)" = null ]
    moe-decode -v -m $family.moe -n 2 --device emu -d ngram $family.jsonl -o text 2>&1 | grep -q ': iterations: device$'
    cp short-kimi_linear.jsonl twice.jsonl
    records kimi_linear -n 2 -d ngram > /dev/null
    [ "$(place)" = 'host: layers have a recurrent state' ]
}
