#!/usr/bin/env bats
# moe-convert head --export: a head file becomes its authors' published layout, tensor by tensor, and is imported again as the
# same head.

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
    rm -rf out-*
    written=()
}

# The heads that there_and_back has exported have the tensors of their sources.
check_written() {
    [ "$(printf '%s\n' out-* | wc -l)" = "$1" ]
    "$python" "$BATS_TEST_DIRNAME/head.py" exported "${written[@]}" > counts
    [ "$(wc -l < counts)" = "$1" ]
}

convert() { moe-convert head -q "$@" --target pocket.moe --name same; }

# Prints a head file's own description, without the files that it was made from.
said() { moe-view --json "$1" | jq -c 'del(.index_sha256, .sources)'; }

# there_and_back SOURCE PROGRAM FILE RENAMED: exports and imports a head; FILE is opened by the program's loader; RENAMED
# tensors
there_and_back() {
    convert "$1" -o one.moe
    out=out-$((${#written[@]} / 3 + 1))
    moe-convert head -q --export "$2" one.moe -o $out
    [ "$(ls $out | tr '\n' ' ')" = "config.json $3 " ]
    written+=("$1" $out "$4")
    convert $out -o two.moe
    [ "$4" ] || cmp <(said one.moe) <(said two.moe)
    # the same numbers under other names
    cmp <(moe-view --json --type tensor one.moe | jq -c '[.name, .digest]') \
        <(moe-view --json --type tensor two.moe | jq -c '[.name, .digest]')
}

refuses() {
    local words=$1
    shift
    run moe-convert head --export "$@"
    assert_trouble moe-convert
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
    [ -z "$(ls -d none* 2> /dev/null)" ]
}

@test "every published layout is exported as it was imported" {
    for kind in eagle1 eagle1_bias eagle3; do there_and_back $kind eagle pytorch_model.bin; done
    for kind in nvidia specforge speculators; do there_and_back $kind speculators model.safetensors; done
    for kind in medusa medusa_deep; do there_and_back $kind medusa medusa_lm_head.pt; done
    for kind in hydra hydra_prefix; do there_and_back $kind hydra hydra_lm_head.pt; done
    for kind in jakiro jakiro_star; do there_and_back $kind jakiro pytorch_model.bin; done
    there_and_back kangaroo kangaroo pytorch_model.bin
    # one.moe is Kangaroo's: the same tensors in the other form
    moe-convert head -q --export kangaroo --safetensors one.moe -o out-14
    [ "$(ls out-14 | tr '\n' ' ')" = "config.json model.safetensors " ]
    written+=($out out-14 '')
    check_written 14
    run moe-convert head --safetensors kangaroo --target pocket.moe -o none
    assert_trouble moe-convert
    [[ $output == *"--safetensors: what is converted becomes a head file"* ]]
}

@test "random and trained fixtures of another program are exported as they were imported" {
    for kind in eagle1 eagle1_nobias eagle3 eagle3_default jakiro jakiro_star kangaroo medusa hydra hydra_prefix; do
        mkdir -p golden/$kind
        tar xJf "$BATS_TEST_DIRNAME/../golden/heads/$kind/head.tar.xz" -C golden/$kind
        program=${kind%_*}
        case $program in medusa | hydra) file=${program}_lm_head.pt ;; *) file=pytorch_model.bin ;; esac
        there_and_back "$(dirname "$(find golden/$kind -name config.json)")" ${program%[13]} $file
    done
    for kind in eagle1 eagle3 jakiro kangaroo; do
        there_and_back "$MOE_MODELS/pocket/heads/$kind" ${kind%[13]} pytorch_model.bin
    done
    there_and_back "$MOE_MODELS/pocket/heads/eagle3" speculators model.safetensors midlayer=layers.0
    jq -e '.speculators_model_type == "eagle3" and .eagle_aux_hidden_state_layer_ids == [1, 3, 5] and
        .transformer_layer_config.num_key_value_heads == 2 and .norm_before_residual == false' $out/config.json
    check_written 15
}

@test "heads trained here are bit-identical after export and import" {
    head -n 4 "$MOE_MODELS/pocket/calib.jsonl" > texts.jsonl
    for arch in eagle1 eagle3 medusa hydra kangaroo jakiro jakiro_star; do
        case $arch in eagle*) program=eagle ;; jakiro*) program=jakiro ;; *) program=$arch ;; esac
        for dtype in f32 bf16; do
            moe-draft-train train -q -m pocket.moe --arch $arch --rate 0.004 --steps 1 --dtype $dtype texts.jsonl -o one.moe
            rm -rf out
            moe-convert head -q --export $program one.moe -o out
            convert out -o two.moe
            cmp <(moe-view --json --type tensor one.moe | jq -c '[.name, .digest]') \
                <(moe-view --json --type tensor two.moe | jq -c '[.name, .digest]')
        done
    done
    kinds() { moe-view --json --type head "$1" | jq -c '[.experts, .top_k, .second, .second_next, .scaled]'; }
    for options in "jakiro --experts 4 --second sum" "jakiro --experts-used 1 --ahead 1" "jakiro --experts 3 --second none" \
        "jakiro_star --scaled"; do
        moe-draft-train train -q -m pocket.moe --arch $options --steps 1 texts.jsonl -o one.moe
        rm -rf out
        moe-convert head -q --export jakiro one.moe -o out
        convert out -o two.moe
        cmp <(kinds one.moe) <(kinds two.moe)
    done
    moe-draft-train train -q -m pocket.moe --arch eagle1 --steps 1 --epsilon 1.23456e-5 --theta 12345.678 --kv-heads 2 --no-bias \
        texts.jsonl -o odd.moe
    moe-convert head -q --export eagle odd.moe -o odd
    convert odd -o again.moe
    shape() { moe-view --json --type head "$1" | jq -c '{kv_heads, rope_theta, norm_epsilon, inner, dense_inner, joint_bias}'; }
    cmp <(shape odd.moe) <(shape again.moe)
    for options in "jakiro --second sum --ahead 1 --experts 3 --experts-used 2" "jakiro --second none" "jakiro_star --scaled"; do
        moe-draft-train train -q -m pocket.moe --arch $options --steps 1 texts.jsonl -o odd.moe
        rm -rf odd
        moe-convert head --export jakiro odd.moe -o odd 2> note
        grep -q "Jakiro's own program has no such branches" note
        convert odd -o again.moe
        cmp <(moe-view --json --type head odd.moe | jq -c 'del(.name, .index_sha256, .source_sha256, .sources, .producer)') \
            <(moe-view --json --type head again.moe | jq -c 'del(.name, .index_sha256, .source_sha256, .sources, .producer)')
    done
    cmp <(moe-decode -q -m pocket.moe -n 20 --draft head:file=one.moe texts.jsonl) \
        <(moe-decode -q -m pocket.moe -n 20 --draft head:file=two.moe texts.jsonl)
}

@test "heads that a program cannot represent are refused, and existing folders are not overwritten" {
    convert eagle1 -o eagle1.moe
    convert eagle3 -o eagle3.moe
    convert nvidia -o nvidia.moe
    convert jakiro --dtype q8 -o q8.moe
    refuses "is a eagle1 head, which the format speculators does not support; export it for eagle" speculators eagle1.moe -o none
    refuses "is a eagle3 head, which the format medusa does not support; export it for eagle or speculators" medusa eagle3.moe -o none
    refuses "this head normalises its states before it joins them, which EAGLE's program does not support" eagle nvidia.moe -o none
    refuses "its weights are stored as q8" jakiro q8.moe -o none
    refuses "is a model, not a draft head" eagle pocket.moe -o none
    refuses "missing.moe" eagle missing.moe -o none
    refuses "--export" eagle9 eagle1.moe -o none
    refuses "--target: has no effect with --export" eagle eagle1.moe --target pocket.moe -o none
    refuses "--dtype: has no effect with --export" eagle eagle1.moe --dtype f32 -o none
    refuses "name the folder to write" eagle eagle1.moe
    refuses "missing/none" eagle eagle1.moe -o missing/none
    mkdir full
    echo mine > full/config.json
    refuses "already exists" eagle eagle1.moe -o full
    [ "$(cat full/config.json)" = mine ] && [ "$(ls -A full)" = config.json ]
    refuses "eagle1.moe" eagle eagle1.moe -o eagle1.moe
    [ -z "$(ls -d ./*.tmp.* 2> /dev/null)" ]
    mkdir empty
    moe-convert head -q --export eagle eagle1.moe -o empty/
    [ "$(ls empty | tr '\n' ' ')" = "config.json pytorch_model.bin " ]
}

@test "--dry-run lists the tensors, and notes settings that a program requires" {
    convert eagle3 -o eagle3.moe
    moe-convert head --export eagle eagle3.moe --dry-run > list
    grep -qx 'fc.weight F32 \[192\]\[576\]' list || grep -qx 'fc.weight [BF]*16 \[192\]\[576\]' list
    grep -qx 'd2t I64 \[128\]' list
    grep -qx 't2d BOOL \[2048\]' list
    convert "$MOE_MODELS/pocket/heads/eagle3" -o trained.moe
    moe-convert head --export eagle trained.moe -o said 2> note
    grep -q "^moe-convert: EAGLE's own program reads the states that its rule names" note
    # settings in config.json that a program does not read
    while read -r kind program words; do
        convert $kind -o one.moe
        moe-convert head --export $program one.moe --dry-run 2>&1 > list | grep -q "^moe-convert: .*$words" || { echo $kind; return 1; }
    done << 'END'
kangaroo kangaroo a base of 10000, whatever rope_theta says
jakiro_star jakiro a base of 10000, whatever rope_theta says
hydra_prefix hydra a base of 10000, whatever rope_theta says
medusa medusa makes 5 heads, whatever config.json says; here are 2$
medusa_deep medusa would take the last for each
END
    convert jakiro -o one.moe
    moe-convert head --export jakiro one.moe --dry-run 2>&1 > list | refute grep .
}
