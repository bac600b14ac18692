#!/usr/bin/env bats
# GGUF files made from the tiny checkpoints of transformers (tests/golden/families): the logits are the same, from a file, a
# folder, archives and pipes, with weights kept and converted; an error in a file is one line.

load common

setup_file() {
    load common
    export GOLDEN="$BATS_TEST_DIRNAME/../golden/families" WORK="$BATS_FILE_TMPDIR" TO_GGUF="$BATS_TEST_DIRNAME/to-gguf.py"
    cd "$WORK"
    command -v python3 > /dev/null || return 0
    for family in llama mistral mixtral olmoe qwen2_moe qwen3_moe deepseek deepseek_v2-ranked deepseek_v3 gpt_oss glm4_moe granitemoe \
            minimax_m2 dots1-full ernie4_5_moe glm4_moe_lite hunyuan_v1_moe llama4_text qwen3_next qwen3_5_moe \
            granitemoehybrid granitemoehybrid-dense lfm2_moe nemotron_h kimi_linear deepseek_v32 glm_moe_dsa jamba; do
        python3 "$TO_GGUF" "$GOLDEN/$family/model" $family.gguf
        jq -c '{id: "one", tokens: .prompt}' "$GOLDEN/$family/golden.json" > $family.jsonl
    done
}

setup() {
    cd "$WORK"
    command -v python3 > /dev/null || skip "no python3"
}

@test "logits equal those of transformers" {
    for file in *.gguf; do
        family=${file%.gguf}
        moe-convert -q $file -o $family.moe
        echo "$family"
        within "$(distance $family $family.moe)" 2e-4
    done
}

@test "indexers of files with a whole kv_b are left out with a note, and the context ends where they would choose" {
    for family in deepseek_v32 glm_moe_dsa; do
        rm -rf short
        cp -r "$GOLDEN/$family/model" short
        jq '.index_topk = 60' "$GOLDEN/$family/model/config.json" > short/config.json
        python3 "$TO_GGUF" short short.gguf whole
        run -0 moe-convert short.gguf -o short-gguf.moe
        [[ "$output" == *' left out: indexers of GGUF files are not supported, so the context is at most top_k tokens'* ]]
        moe-convert -q short -o short-folder.moe
        moe-view --json short-gguf.moe | jq -s -e '.[0].max_positions == 60'
        for model in short-gguf short-folder; do
            moe-profile -q -m $model.moe --record logits $family.jsonl | moe-view --json | jq -c 'select(.type == "route") | .logits' > $model
        done
        cmp short-gguf short-folder
    done
}

@test "predictors and latents of Nemotron 3 are refused by name" {
    python3 "$TO_GGUF" "$GOLDEN/nemotron_h/model" refused-nemotron.gguf nextn_predict_layers=1
    run -2 moe-convert refused-nemotron.gguf -o x.moe
    [[ "$output" == *"nemotron_h_moe.nextn_predict_layers is 1, but layers for multi-token prediction are not supported in GGUF files of this architecture"* ]]
    python3 "$TO_GGUF" "$GOLDEN/nemotron_h/model" refused-nemotron.gguf moe_latent_size=8
    run -2 moe-convert refused-nemotron.gguf -o x.moe
    [[ "$output" == *"moe_latent_size is 8; this is not supported for nemotron_h"* ]]
    rm refused-nemotron.gguf
}

@test "keys and values of latents may be one tensor" {
    for family in deepseek_v3 deepseek_v2-ranked kimi_linear; do
        mkdir -p whole
        python3 "$TO_GGUF" "$GOLDEN/$family/model" whole/$family.gguf whole
        moe-convert -q whole/$family.gguf -o whole.moe
        within "$(distance $family whole.moe)" 2e-4
    done
}

@test "the first layout of Qwen3-Next is read, and which layers have a state is seen" {
    mkdir -p states
    python3 "$TO_GGUF" "$GOLDEN/qwen3_next/model" states/qwen3_next.gguf grouped untold
    moe-convert -q states/qwen3_next.gguf -o states.moe
    within "$(distance qwen3_next states.moe)" 2e-4
}

@test "predictors beside layers with a state draft what an independent program drafts" {
    local family
    for family in qwen3_next qwen3_5_moe; do
        with_predictor $family ahead-$family
        python3 "$TO_GGUF" ahead-$family ahead-$family/m.gguf
        moe-convert -q ahead-$family/m.gguf -o ahead.moe
        within "$(distance $family ahead.moe)" 2e-4
        drafts_as_golden $family ahead.moe
    done
}

@test "a file, a folder, archives and pipes give the same model" {
    mkdir -p folder
    cp qwen3_moe.gguf folder/m.gguf
    moe-convert -q --name m qwen3_moe.gguf -o file.moe
    moe-convert -q --name m folder -o folder.moe
    tar cf folder.tar folder
    moe-convert -q --name m folder.tar -o tar.moe
    gzip -c folder.tar | moe-convert -q --name m - -o tar-pipe.moe
    cat qwen3_moe.gguf | moe-convert -q --name m - -o pipe.moe
    gzip -c qwen3_moe.gguf > alone.gz
    moe-convert -q --name m alone.gz -o gz.moe
    cp qwen3_moe.gguf no-ending
    moe-convert -q --name m no-ending -o no-ending.moe
    # The index contains the name of the source, so it differs.
    shown() { moe-view --json $1.moe | jq -c 'del(.sources, .index_sha256)'; }
    shown file > want
    for one in folder tar tar-pipe pipe gz no-ending; do
        echo $one
        shown $one | cmp - want
        moe-view --verify $one.moe > /dev/null
        within "$(distance qwen3_moe $one.moe)" 2e-4
    done
}

@test "a plan of a pipe needs no room for data" {
    moe-convert --dry-run qwen3_moe.gguf > file
    cat qwen3_moe.gguf | moe-convert --dry-run - > pipe
    mkdir -p packed && cp qwen3_moe.gguf packed/m.gguf
    tar cf - packed | moe-convert --dry-run - > tar
    cmp file pipe
    cmp file tar
    grep -q 'layers.\*.experts' file
}

@test "a model in several files is read from any of them, and refused if one is missing" {
    rm -rf cut && mkdir cut
    python3 - qwen3_moe.gguf cut <<'PY'
import struct, sys
data = open(sys.argv[1], 'rb').read()
tensors, entries = struct.unpack_from('<QQ', data, 8)
at = 24
def string(at):
    size = struct.unpack_from('<Q', data, at)[0]
    return data[at + 8:at + 8 + size], at + 8 + size
size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
for _ in range(entries):
    key, at = string(at)
    kind = struct.unpack_from('<I', data, at)[0]
    at += 4
    count = 1
    if kind == 9:
        kind, count = struct.unpack_from('<IQ', data, at)
        at += 12
    for _ in range(count):
        at = string(at)[1] if kind == 8 else at + size[kind]
header, infos = data[24:at], []
for _ in range(tensors):
    begin = at
    name, at = string(at)
    dims = struct.unpack_from('<I', data, at)[0]
    at += 4 + 8 * dims + 4
    infos.append((data[begin:at], struct.unpack_from('<Q', data, at)[0]))
    at += 8
base = (at + 31) // 32 * 32
ends = [offset for _, offset in infos[1:]] + [len(data) - base]
def entry(key, kind, form, value):
    return struct.pack('<Q', len(key)) + key.encode() + struct.pack('<I', kind) + struct.pack(form, value)
cut = len(infos) // 2
for number, part in enumerate((range(cut), range(cut, len(infos)))):
    more = entry('split.no', 2, '<H', number) + entry('split.count', 2, '<H', 2)
    out = b'GGUF' + struct.pack('<IQQ', 3, len(part), (entries if number == 0 else 0) + 2) + (header if number == 0 else b'') + more
    content = b''
    for i in part:
        content += bytes(-len(content) % 32)
        out += infos[i][0] + struct.pack('<Q', len(content))
        content += data[base + infos[i][1]:base + ends[i]]
    with open(f'{sys.argv[2]}/m-{number + 1:05}-of-00002.gguf', 'wb') as file:
        file.write(out + bytes(-len(out) % 32) + content)
PY
    for source in cut/m-00001-of-00002.gguf cut/m-00002-of-00002.gguf cut; do
        moe-convert -q $source -o cut.moe
        within "$(distance qwen3_moe cut.moe)" 2e-4
    done
    tar cf - cut/m-00002-of-00002.gguf cut/m-00001-of-00002.gguf | moe-convert -q - -o cut.moe
    within "$(distance qwen3_moe cut.moe)" 2e-4
    run moe-convert - -o cut.moe < cut/m-00001-of-00002.gguf
    assert_trouble moe-convert
    [[ $output == *"is one of 2 files of a model, but the others are missing"* ]]
    rm cut/m-00002-of-00002.gguf
    run moe-convert cut -o cut.moe
    assert_trouble moe-convert
    [[ $output == *": m-00002-of-00002.gguf is missing, although m-00001-of-00002.gguf names it; download it, too" ]]
}

@test "block types are kept or converted" {
    python3 "$TO_GGUF" "$GOLDEN/qwen3_moe/model" quantised.gguf.q8 q8
    moe-convert --dry-run quantised.gguf.q8 | grep 'embed.* q8 '
    moe-convert -q quantised.gguf.q8 -o kept.moe
    moe-convert -q quantised.gguf.q8 --dtype f32 -o wide.moe
    [ "$(stat -c %s kept.moe)" -lt "$(stat -c %s wide.moe)" ]
    moe-decode -q -m wide.moe -n 4 --json qwen3_moe.jsonl > /dev/null
    moe-decode -q -m kept.moe -n 4 --json qwen3_moe.jsonl > /dev/null
}

@test "mixtures of block types keep their size, and drafts keep the text" {
    for mix in Q4_K_M Q5_K_M IQ4_XS IQ4_NL Q3_K_M Q2_K IQ3_XXS IQ2_XS IQ2_M NVFP4; do
        python3 "$BATS_TEST_DIRNAME/mixed-gguf.py" $mix $mix.gguf
        moe-convert $mix.gguf -o $mix.moe 2> notes
        if grep 'stored as f32' notes; then return 1; fi
        # 31 tensors and experts begin at pages, and two routers of 4 rows are padded to 32
        [ "$(stat -c %s $mix.moe)" -le $(($(stat -c %s $mix.gguf) + 31 * 4096 + 2 * 28 * 1024)) ] || { ls -l $mix.*; return 1; }
        moe-decode -q -m $mix.moe -n 12 --json -p 'ABCABCABC' -d ngram > drafted
        [ "$(jq '.tokens | length' drafted)" -eq 12 ]
        case $mix in Q5_K_M | IQ4_XS | Q2_K | IQ2_M | NVFP4) ;; *) continue ;; esac
        moe-decode -q -m $mix.moe -n 12 --json -p 'ABCABCABC' --device ref > plain
        [ "$(jq -c .tokens plain)" = "$(jq -c .tokens drafted)" ]
    done
}

@test "requant stores a model as a conversion of its source would" {
    python3 "$BATS_TEST_DIRNAME/mixed-gguf.py" Q5_K_M again.gguf
    moe-convert -q again.gguf -o first.moe
    for dtype in q8 bf16; do
        moe-convert -q again.gguf --dtype $dtype -o direct.moe
        moe-convert requant -q first.moe --dtype $dtype -o second.moe
        cmp direct.moe second.moe
    done
    moe-convert -q again.gguf --expert-dtype q4 -o direct.moe
    moe-convert requant -q first.moe --expert-dtype q4 -j 2 -o second.moe
    cmp direct.moe second.moe
    moe-convert requant --dry-run first.moe --dtype q8 | grep 'experts.* q8 '
    run moe-convert requant first.moe -o x.moe
    assert_trouble moe-convert
    [[ $output == *"no weights would change format; choose a format other than keep for --dtype or --expert-dtype" ]]
    run moe-convert requant first.moe --dtype q8 -o first.moe
    assert_trouble moe-convert
}

@test "the tokenizer and the chat template are converted" {
    moe-convert -q qwen3_moe.gguf -o with.moe
    run moe-decode -q -m with.moe -n 2 --json -p 'ab a'
    [ "$status" -eq 0 ]
    echo '{"messages": [{"role": "user", "content": "ab"}]}' > chat.jsonl
    moe-decode -q -m with.moe -n 2 --json chat.jsonl | jq -e '.tokens | length == 2'
}

@test "damaged, truncated and foreign files are reported in one line" {
    head -c 3000 qwen3_moe.gguf > short.gguf
    run moe-convert short.gguf -o x.moe
    assert_trouble moe-convert
    printf 'GGUF\1\0\0\0' > old.gguf
    run moe-convert old.gguf -o x.moe
    assert_trouble moe-convert
    [[ $output == *"has GGUF version 1; versions 2 and 3 are supported"* ]]
    mkdir -p two && cp qwen3_moe.gguf two/a.gguf && cp qwen3_moe.gguf two/b.gguf
    run moe-convert two -o x.moe
    assert_trouble moe-convert
    [[ $output == *"contains 2 GGUF models; name the file of one"* ]]
    head -c 3000 qwen3_moe.gguf > piped
    run moe-convert - -o x.moe < piped
    assert_trouble moe-convert
    [ ! -e x.moe ]
}
