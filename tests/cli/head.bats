# moe-convert head: published draft heads become head files with the same contents; others are refused by name.

load common

setup_file() {
    python=$(python_with_numpy) || skip "no python3 with msgpack and numpy"
    export python WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    moe-convert -q "$MOE_MODELS/pocket/model" --name pocket -o pocket.moe
    "$python" "$BATS_TEST_DIRNAME/head.py" make all .
}

setup() {
    cd "$WORK"
    said=() making=()
}

made() { "$python" "$BATS_TEST_DIRNAME/head.py" make "$@"; }
compared() { "$python" "$BATS_TEST_DIRNAME/head.py" compare "$@"; }
convert() { moe-convert head "$@" --target pocket.moe; }

# The conversion fails with one line that contains $1, and leaves no file.
refuses() {
    local words=$1
    shift
    run moe-convert head --target pocket.moe -o x.moe "$@"
    assert_trouble moe-convert
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
    [ -z "$(ls | grep '^x\.moe')" ] || { ls; return 1; }
}

# One head for made_are_refused: expected words, kind, and arguments of head.py.
refuses_made() {
    said+=("$1")
    making+=(-- "$2" "made-${#said[@]}" "${@:3}")
}

made_are_refused() {
    local i
    made "${making[@]}"
    for i in "${!said[@]}"; do refuses "${said[i]}" made-$((i + 1)); done
    [ "${#said[@]}" -gt 10 ]
    rm -r made-*
}

@test "every published layout is converted with its values and its description" {
    local kind pairs=()
    for kind in eagle1 eagle1_bias eagle3 nvidia specforge speculators kangaroo jakiro jakiro_star medusa medusa_deep hydra \
        hydra_prefix; do
        convert $kind -o $kind.moe
        moe-view --verify $kind.moe
        pairs+=($kind $kind.moe)
    done
    compared "${pairs[@]}"
}

@test "the trained heads of the pocket model convert, and moe-view shows what they are" {
    local kind pairs=()
    for kind in eagle1 eagle3 jakiro kangaroo; do
        convert "$MOE_MODELS/pocket/heads/$kind" -o trained-$kind.moe 2> said
        grep -q "^moe-convert: $kind: .*the target's" said
        pairs+=("$MOE_MODELS/pocket/heads/$kind" trained-$kind.moe)
    done
    compared "${pairs[@]}"
    moe-view trained-eagle3.moe | grep -q 'reads the states after layers 0, 2, 4'
    moe-view trained-eagle3.moe | grep -q 'draft vocabulary 1024, from id '
    moe-view trained-kangaroo.moe | grep -q 'reads the state after layer 1$'
    moe-view trained-jakiro.moe | grep -q '2 experts of inner width 192'
    local source=$(moe-view --json -t model pocket.moe | jq -r .source_sha256)
    moe-view --json --type head trained-eagle3.moe > shown
    jq -e --arg source $source '.kind == "eagle3" and .target_source_sha256 == $source and .target_layers == 6 and
        .states == [0, 2, 4] and (.target_ids | length) == 1024' shown
    run moe-view --type model trained-eagle3.moe
    assert_trouble moe-view
}

@test "with --dtype q8 values are close, and small tensors stay exact" {
    local kind pairs=()
    for kind in eagle1 specforge jakiro jakiro_star hydra_prefix; do
        convert $kind --dtype q8 -o $kind.q8.moe
        pairs+=($kind $kind.q8.moe)
    done
    compared "${pairs[@]}"
    [ "$(moe-view --json -t head jakiro.q8.moe | jq -r .dtype)" = q8 ]
}

@test "a folder, its one file, an archive and any number of threads give the same bytes" {
    local kind file
    made eagle3 eagle3_bin form=bin
    for file in eagle1/model.safetensors jakiro/pytorch_model.bin hydra_prefix/hydra_lm_head.pt eagle3_bin/pytorch_model.bin; do
        kind=${file%/*}
        convert $kind --name same -o folder.moe -j 1
        convert $file --name same -o file.moe -j 3
        cmp folder.moe file.moe
        tar cf - $kind | convert - --name same -o pipe.moe
        cmp folder.moe pipe.moe
    done
    mkdir alone
    cp medusa/medusa_lm_head.pt alone
    convert alone/medusa_lm_head.pt -o alone.moe
    compared alone/medusa_lm_head.pt alone.moe
    cp eagle1/model.safetensors eagle3_bin/golden.safetensors       # as goldens lie beside heads
    convert eagle3_bin --name same -o beside.moe
    tar cf - eagle3_bin | convert - --name same -o pipe.moe
    cmp beside.moe file.moe
    cmp beside.moe pipe.moe
}

@test "a kind can be named; EAGLE-2's heads are EAGLE-1's" {
    convert eagle1 --name same -o told.moe
    convert eagle1 --name same --kind eagle2 -o named.moe
    cmp told.moe named.moe
    refuses "in a draft head (medusa) it is the source of" eagle1 --kind medusa
    refuses "tensor layers.0.mlp_moe.gate.weight is missing; in a draft head (jakiro)" eagle1 --kind jakiro
}

@test "layer ids are outputs, except vLLM's, and --layer-ids overrides it" {
    states() { moe-view --json -t head "$1" | jq -c .states; }
    convert nvidia -o ids.moe
    [ "$(states ids.moe)" = "[1,3,4]" ]
    convert nvidia --layer-ids input -o ids.moe
    [ "$(states ids.moe)" = "[0,2,3]" ]
    convert speculators -o ids.moe
    [ "$(states ids.moe)" = "[0,2,5]" ]
    refuses "if the ids are counted differently, give --layer-ids" speculators --layer-ids output
    made eagle3 ids 'eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 4]}'
    refuses "has the states before layers 1 to 6" ids --layer-ids input
    refuses "--layer-ids: applies to eagle3 heads only, and this is a eagle1 head" eagle1 --layer-ids input
    refuses "--exit-layer: applies to kangaroo heads only, and this is a eagle1 head" eagle1 --exit-layer 2
}

@test "Kangaroo's exit layer comes from config.json or an option" {
    made kangaroo silent exit_layer=null
    refuses "give --exit-layer N" silent
    refuses "must be at least 1 and below the target" silent --exit-layer 6
    convert silent --exit-layer 3 -o silent.moe
    [ "$(moe-view --json -t head silent.moe | jq -c .states)" = "[2]" ]
}

@test "missing settings of Hydra's prefix layer are the target's" {
    made hydra_prefix bare num_attention_heads=null num_key_value_heads=null rms_norm_eps=null rope_theta=null
    run convert bare -o bare.moe
    local taken="num_attention_heads, num_key_value_heads, head_dim, rms_norm_eps, rope"
    [[ $output == *"$taken of the prefix layer are the target's"* ]]
    moe-view --json -t model pocket.moe | jq -c '{heads, kv_heads, head_dim, rope_theta, norm_epsilon}' > target
    moe-view --json -t head bare.moe | jq -c '{heads, kv_heads, head_dim, rope_theta, norm_epsilon}' | cmp - target
}

@test "a missing or extra tensor is named" {
    made eagle1 lacking drop=fc.weight
    refuses "tensor fc.weight is missing; in a draft head (eagle1) it is the source of joint" lacking --kind eagle1
    refuses_made "tensor fc.bias is missing" eagle1 bias=true
    refuses_made "tensor midlayer.hidden_norm.weight is missing" eagle3 drop=midlayer.hidden_norm.weight
    refuses_made "tensor lm_head.weight is missing" eagle3 drop=lm_head.weight
    refuses_made "tensor d2t is missing" eagle3 drop=d2t
    refuses_made "tensor input_norm.weight is missing" nvidia drop=input_norm.weight
    refuses_made "tensor fc_norm.2.weight is missing" specforge drop=fc_norm.2.weight
    refuses_made "tensor layers.0.mlp_moe.experts.1.up_proj.weight is missing" jakiro \
        drop=layers.0.mlp_moe.experts.1.up_proj.weight
    refuses_made "tensor 1.1.weight is missing" medusa drop=1.1.weight
    refuses_made "tensor 2.0.linear.weight is missing" medusa medusa_num_heads=3
    refuses_made "tensor hydra_mlp.1.0.res_connection.bias is missing" hydra drop=hydra_mlp.1.0.res_connection.bias
    refuses_made "tensor fc_norm.0.weight is not part of" specforge fc_norm=false
    refuses_made "tensor lm_head.weight is not part of a draft head of kind eagle1" eagle1 add=lm_head.weight
    refuses_made "tensor layers.0.mlp.gate_proj.weight is not part of a draft head of kind jakiro" jakiro \
        add=layers.0.mlp.gate_proj.weight
    made_are_refused
}

@test "files that claim to be EAGLE-3 are refused with the missing tensor" {
    made eagle1 fake draft_vocab_size=128 drop=fc.weight add=embed_tokens.weight
    refuses "tensor d2t is missing; it maps the 128 draft ids" fake
    made eagle1 fake 'architectures=["LlamaForCausalLMEagle3"]' drop=fc.weight
    refuses "tensor lm_head.weight is missing; in a draft head (eagle3) it is the source of head" fake
}

@test "a head of another target, an invalid token map and invalid numbers are refused" {
    refuses_made "hidden_size is 256; the target pocket has 192" eagle1 hidden_size=256
    refuses_made "vocab_size is 32000; the target pocket has 2048" jakiro vocab_size=32000
    refuses_made "tensor d2t: draft id 127 with offset 2048 is outside the target's vocabulary of 2048 tokens" eagle3 map=far
    refuses_made "the vocabulary map maps two draft ids to target id" eagle3 map=twice
    refuses_made "which tensor t2d does not mark" eagle3 map=other
    refuses_made "is not a finite number" eagle1 nan=layers.0.self_attn.k_proj.weight
    refuses_made "is not a finite number" medusa nan=1.0.linear.bias
    refuses_made "only heads of one layer are supported" eagle3 num_hidden_layers=2
    refuses_made "supported are mlp and prefix-mlp" hydra 'hydra_head_arch="eagle-attn"'
    refuses_made "from 2 to 64 are supported" jakiro num_local_experts=1
    refuses_made "it must be from 1 to the number of experts" jakiro num_experts_per_tok=3
    refuses_made "tensor layers.0.mlp_moe.gate.weight has shape [4][192], but config.json or the target requires [6][192]" \
        jakiro num_local_experts=3
    refuses_made "only 2 is supported" jakiro_star num_local_experts=4
    refuses_made "supported are contrast, sum and none" jakiro 'second_branch="both"'
    refuses_made "1 or 2 ahead" jakiro second_ahead=3
    made_are_refused
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    run moe-convert head medusa --target draft.moe -o x.moe
    assert_trouble moe-convert
    [[ $output == *"tensor 0.0.linear.weight has shape [192][192], but config.json or the target requires [96][96]"* ]]
    refuses "its tensors match no known kind of draft head" "$MOE_MODELS/pocket/model"
    [ ! -e x.moe ]
}

@test "a head is refused as a model and a model as a head, and inputs are not overwritten" {
    convert eagle1 -o h.moe
    run moe-decode -m h.moe -p 'a' -n 1
    assert_trouble moe-decode
    [[ $output == *"is a draft head (eagle1) for pocket, not a model"* ]]
    run moe-convert head medusa --target h.moe -o x.moe
    assert_trouble moe-convert
    run moe-convert inflate h.moe --expert-ffn 999 -o x.moe
    assert_trouble moe-convert
    run moe-convert head eagle1 --target pocket.moe -o pocket.moe
    assert_trouble moe-convert
    run moe-convert head eagle1 --target pocket.moe -o eagle1/model.safetensors
    assert_trouble moe-convert
    run moe-convert head eagle1 -o x.moe
    assert_trouble moe-convert
    [[ $output == *"no target is given"* ]]
}

@test "--dry-run prints the plan, also for an archive" {
    made eagle3 plain
    convert plain --dry-run > folder.txt 2> /dev/null
    grep -q '^draft head eagle3: 350976 parameters, 9 tensors' folder.txt
    (cd plain && tar cf ../plain.tar .)
    convert plain.tar --dry-run 2> /dev/null | cmp - folder.txt
}

@test "a head file with any part damaged is refused, in one line" {
    convert eagle3 -o whole.moe 2> /dev/null
    local size=$(stat -c %s whole.moe) at
    for at in 3 12 20 40 5000 $((size / 2)) $((size - 4000)) $((size - 9)); do
        cp whole.moe hurt.moe
        flip hurt.moe $at 255
        run moe-view --verify hurt.moe
        assert_trouble moe-view
    done
    head -c $((size - 1)) whole.moe > hurt.moe
    run moe-view hurt.moe
    assert_trouble moe-view
}

@test "random heads of every kind are made for a target, and heavier ones of those that can be" {
    local kind
    for kind in eagle1 eagle3 medusa hydra kangaroo jakiro jakiro_star; do
        moe-convert synthetic --head $kind --target pocket.moe --seed 3 -o $kind.moe
        moe-view --verify $kind.moe | grep -q ': whole: a draft head of'
        moe-view $kind.moe | grep -q "draft head $kind ($kind)"
    done
    moe-convert inflate eagle3.moe --dense-ffn 3000 -o wide.moe
    moe-view --verify wide.moe
    moe-convert inflate jakiro.moe --expert-ffn 3000 -o wide.moe
    moe-view --verify wide.moe
    run moe-convert inflate kangaroo.moe --dense-ffn 3000 -o x.moe
    assert_trouble moe-convert
    run moe-convert synthetic --head eagle1 -o x.moe
    assert_trouble moe-convert
    run moe-convert synthetic --target pocket.moe -o x.moe
    assert_trouble moe-convert
    run moe-convert synthetic --head eagle1 --target eagle1.moe -o x.moe
    assert_trouble moe-convert
}
