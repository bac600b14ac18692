# moe-convert: checkpoints in every form give the same bytes; a failed conversion leaves no file.

load common

setup() {
    cd "$BATS_TEST_TMPDIR"
    pocket=$MOE_MODELS/pocket/model
    cp -R "$pocket" pocket
}

# The command fails with one line that contains $1, and leaves neither x.moe nor a part of it.
refuses() {
    local words=$1
    shift
    run "$@"
    assert_trouble moe-convert
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
    [ -z "$(ls | grep '^x\.moe')" ] || { ls; return 1; }
}

# The model file's own object has all these keys and values.
shows() {
    local file=$1 pair
    shift
    run moe-view --json --type model "$file"
    for pair in "$@"; do
        [[ $output == *"$pair"* ]] || { echo "$file does not show $pair: $output"; return 1; }
    done
}

# Prints one value of a tensor.
of_tensor() { moe-view --json --type tensor "$1" | grep "\"name\": \"$2\"," | grep -o "\"$3\": \"[^\"]*\""; }

@test "a folder, archives and a pipe give the same bytes" {
    moe-convert pocket -o folder.moe
    tar cf p.tar pocket
    gzip -1 < p.tar > p.tar.gz
    (cd pocket && tar cf - tokenizer.json model.safetensors config.json tokenizer_config.json generation_config.json) > flat.tar
    moe-convert build p.tar -o tar.moe
    moe-convert p.tar.gz -o gz.moe -j 1
    moe-convert - -o pipe.moe < p.tar.gz
    cat p.tar | moe-convert -o pipe2.moe -
    moe-convert flat.tar --name pocket -o flat.moe
    for file in tar gz pipe pipe2 flat; do cmp folder.moe $file.moe; done
    [ "$(ls | grep -c '\.moe')" -eq 6 ]
}

@test "zip gives the same bytes, from a file and from a pipe" {
    python3 - <<'PYTHON' || skip "no python3"
import os, zipfile
with zipfile.ZipFile("p.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
    for name in sorted(os.listdir("pocket")):
        z.write("pocket/" + name)
PYTHON
    moe-convert pocket -o folder.moe
    moe-convert p.zip -o zip.moe
    cat p.zip | moe-convert - -o pipe.moe
    cmp folder.moe zip.moe
    cmp folder.moe pipe.moe
}

@test "numbers beyond 64 bits in a checkpoint's texts are no obstacle" {
    local file long='"long": 1000000000000000019884624838656,'
    moe-convert pocket -o plain.moe
    for file in config.json generation_config.json tokenizer.json; do
        sed -i "0,/{/s//{$long/" pocket/$file
    done
    sed -i 's/"model_max_length": 2048/"model_max_length": 1000000000000000019884624838656/' pocket/tokenizer_config.json
    moe-convert pocket -o long.moe
    shows long.moe '"experts": 32,'
    moe-decode -q -m plain.moe -p 'The sum of 2 and 3' -n 8 > plain
    moe-decode -q -m long.moe -p 'The sum of 2 and 3' -n 8 | cmp plain -
}

@test "a bos that only tokenizer_config.json requests is prepended" {
    jq '.bos_token = "<|endoftext|>" | .add_bos_token = true' pocket/tokenizer_config.json > made
    jq -e '[.added_tokens[].content] | index("<|endoftext|>")' pocket/tokenizer.json > place
    moe-convert pocket -o plain.moe
    mv made pocket/tokenizer_config.json
    moe-convert pocket -o bos.moe
    moe-profile -q -m plain.moe -p 'a sum' | moe-view --json | jq -c 'select(.type == "route") | .tokens' > plain
    moe-profile -q -m bos.moe -p 'a sum' | moe-view --json | jq -c 'select(.type == "route") | .tokens' > bos
    [ "$(jq -c '.[1:]' bos)" = "$(cat plain)" ]
    [ "$(jq '.[0]' bos)" = "$(jq '.added_tokens[] | select(.content == "<|endoftext|>").id' pocket/tokenizer.json)" ]
}

@test "an empty tokenizer is an error, not a checkpoint without one" {
    for name in tokenizer.json tokenizer.model tiktoken.model tokenizer_config.json generation_config.json; do
        [ ! -e pocket/$name ] || cp pocket/$name kept
        : > pocket/$name
        tar cf empty.tar pocket
        for source in pocket pocket/model.safetensors empty.tar; do
            run moe-convert $source -o empty.moe
            assert_trouble moe-convert
            [[ $output == *"$name is empty; download it again, or remove it if the checkpoint has none" ]]
        done
        [ ! -e empty.moe ]
        rm pocket/$name
        [ ! -e kept ] || mv kept pocket/$name
    done
    printf ' \n' > pocket/tokenizer.json
    run moe-convert pocket -o empty.moe
    assert_trouble moe-convert
    [[ $output == *"tokenizer.json"* ]]
}

@test "a checkpoint without a tokenizer converts with a note" {
    rm pocket/tokenizer.json
    run moe-convert pocket -o mute.moe
    [ "$status" -eq 0 ]
    [[ $output == *"no tokenizer.json, tokenizer.model or tiktoken.model was found"* ]]
    [ "$(moe-convert "$pocket" -o model.moe 2>&1)" = "" ]
    cp "$MOE_MODELS/../golden/tokenizer/tiktoken.model" pocket
    run moe-convert pocket -o other.moe
    assert_trouble moe-convert
    [[ $output == *"tiktoken.model: tokenizer_config.json has the tokenizer_class"*"TikTokenTokenizer only"* ]]
    sed -i 's/PreTrainedTokenizerFast/TikTokenTokenizer/' pocket/tokenizer_config.json
    [ "$(moe-convert pocket -o ranks.moe 2>&1)" = "" ]
    moe-view ranks.moe | grep -q 'from tiktoken.model, '
}

@test "both pocket models convert to the expected files" {
    moe-convert "$pocket" -o m.moe
    moe-view --verify m.moe
    shows m.moe '"name": "model"' '"dtype": "bf16"' '"experts": 32,' '"top_k": 4,' '"synthetic": false'
    moe-convert "$MOE_MODELS/pocket/draft" --name draft --dtype f32 -o d.moe
    moe-view --verify d.moe
    shows d.moe '"name": "draft"' '"dtype": "f32"' '"moe_layers": 0,' '"tied": true'
}

@test "a single weights file uses the texts of its folder" {
    moe-convert pocket -o folder.moe
    moe-convert pocket/model.safetensors --name pocket -o file.moe
    cmp folder.moe file.moe
}

@test "NVFP4 with scales of matrices is kept, and means the same as in f32" {
    command -v python3 > /dev/null || skip "no python3"
    python3 "$BATS_TEST_DIRNAME/nvfp4.py" pocket codes
    moe-convert codes -o kept.moe
    moe-convert codes --name kept --dtype f32 -o f32.moe
    shows kept.moe '"dtype": "bf16, experts nvfp4_s"'
    [ "$(of_tensor kept.moe layers.5.experts format)" = '"format": "nvfp4_s"' ]
    moe-view --verify kept.moe
    [ "$(stat -c %s kept.moe)" -lt 8000000 ]
    echo '{"id": "one", "tokens": [1, 2, 3, 500, 2000, 7, 8, 9, 10, 11, 12, 13]}' > one.jsonl
    for model in kept f32; do
        moe-profile -q -m $model.moe --activations f32 --record logits one.jsonl | moe-view --json |
            jq -c 'select(.type == "route") | .logits' > $model
    done
    [ -s kept ]
    cmp kept f32
}

@test "experts can have their own dtype" {
    moe-convert pocket --dtype f32 --expert-dtype f16 -o a.moe
    shows a.moe '"dtype": "f32, experts f16"'
    [ "$(of_tensor a.moe layers.0.router format)" = '"format": "f32"' ]
    [ "$(of_tensor a.moe layers.5.experts format)" = '"format": "f16"' ]
    moe-convert pocket --expert-dtype q8 -o a.moe
    shows a.moe '"dtype": "bf16, experts q8"'
    [ "$(of_tensor a.moe layers.5.experts format)" = '"format": "q8"' ]
    moe-convert pocket --expert-dtype fp8 -o a.moe
    shows a.moe '"dtype": "bf16, experts fp8"'
    moe-convert pocket --dtype q4 -o a.moe
    moe-view --verify a.moe
    shows a.moe '"dtype": "q4"'
    [ "$(of_tensor a.moe head format)" = '"format": "q4"' ]
    [ "$(of_tensor a.moe layers.0.attention.qkv format)" = '"format": "q4"' ]
    [ "$(of_tensor a.moe layers.0.router format)" = '"format": "bf16"' ]
    [ "$(of_tensor a.moe embed format)" = '"format": "bf16"' ]
    refuses "did you mean bf16?" moe-convert pocket --dtype bf61 -o x.moe
}

@test "a dry run prints the tensors and writes nothing" {
    tar cf p.tar pocket
    run moe-convert --dry-run pocket
    [ "$status" -eq 0 ]
    [[ ${lines[10]} =~ ^" "+6" "+"layers.*.experts "+"bf16 "+"32 x 3 x [64][192] "+14155776$ ]]
    [ "${lines[11]}" = "olmoe: 6 layers, 8495040 parameters, 51 tensors, 16998144 bytes" ]
    moe-convert --dry-run pocket > folder.txt
    moe-convert --dry-run - < p.tar | cmp - folder.txt
    [ -z "$(ls | grep '\.moe')" ]
}

@test "random weights do not depend on threads, only on the seed" {
    moe-convert synthetic --like olmoe-1b-7b --layers 1 -j 1 --expert-dtype f16 --dry-run | tail -n 1 > plan
    grep -q "^olmoe: 1 layers, " plan
    cat > c.json <<'JSON'
{"model_type": "olmoe", "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
 "num_experts": 8, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "vocab_size": 100}
JSON
    moe-convert synthetic --like c.json -j 1 -o a.moe
    moe-convert synthetic --like ./c.json -j 3 -o b.moe --seed 0
    cmp a.moe b.moe
    moe-convert synthetic --like c.json --seed 1 -o c.moe
    run cmp a.moe c.moe
    [ "$status" -eq 1 ]
    moe-convert synthetic --like c.json --layers 5 -o d.moe
    shows d.moe '"synthetic": true' '"layers": 5,' '"tokenizer": false'
    # With room for bytes it takes and gives texts.
    sed 's/"vocab_size": 100/"vocab_size": 400/' c.json > words.json
    moe-convert synthetic --like words.json -o e.moe
    shows e.moe '"synthetic": true' '"tokenizer": true'
    [ "$(moe-decode -m e.moe -n 4 --json -p 'Hé "\' | jq -c '[.prompt_tokens, (.text | length > 0)]')" = '[6,true]' ]
    refuses "unknown shape" moe-convert synthetic --like olmo -o x.moe
    refuses "no shape is given" moe-convert synthetic -o x.moe
    refuses "missing.json" moe-convert synthetic --like missing.json -o x.moe
}

@test "every listed shape can be planned, every listed family is real" {
    moe-convert list > list
    for name in $(awk '/^shapes/ { on = 1; next } on { print $1 }' list); do
        moe-convert synthetic --like "$name" --dry-run > /dev/null
    done
    [ "$(awk '/^shapes/ { on = 1; next } on' list | wc -l)" -ge 3 ]
    for family in olmoe llama qwen3; do grep -q "^  $family " list; done
}

@test "the table of supported families in the docs is the one of --list-families" {
    moe-convert --list-families > table
    sed -n '/^| model_type/,/^$/p' "$BATS_TEST_DIRNAME/../../docs/families.md" | grep . | diff - table
    grep -q '^| dots1 | dots.llm1 |$' table
    refuses "SOURCE is missing" moe-convert -o x.moe
}

@test "inflating changes only the experts' width" {
    moe-convert pocket -o m.moe
    moe-convert inflate m.moe --expert-ffn 80 -o l.moe
    moe-view --verify l.moe
    shows l.moe '"inflated_from": 64' '"expert_inner": 80'
    for name in embed layers.3.attention.qkv layers.5.router; do
        of_tensor m.moe $name digest > a
        of_tensor l.moe $name digest > b
        [ -s a ]
        cmp a b
    done
    refuses "is already 64; give a larger width" moe-convert inflate m.moe --expert-ffn 64 -o x.moe
    refuses "no width is given" moe-convert inflate m.moe -o x.moe
    refuses "not a model file" moe-convert inflate pocket/config.json --expert-ffn 80 -o x.moe
    moe-convert "$MOE_MODELS/pocket/draft" -o d.moe
    refuses "has no experts to inflate" moe-convert inflate d.moe --expert-ffn 80 -o x.moe
}

@test "a draft model without experts is inflated, too, to a share of what a token of the target reads" {
    moe-convert pocket -o m.moe
    moe-convert "$MOE_MODELS/pocket/draft" -o d.moe
    moe-convert inflate d.moe --dense-ffn 300 -o w.moe
    moe-view --verify w.moe
    shows w.moe '"inflated_from": 256' '"dense_inner": 300'
    moe-view w.moe > lines
    grep -q "inflated: 256 to 300" lines
    for name in embed layers.1.attention.qkv final_norm; do
        of_tensor d.moe $name digest > a
        of_tensor w.moe $name digest > b
        [ -s a ]
        cmp a b
    done
    head -n 3 "$MOE_MODELS/pocket/heldout.jsonl" > p.jsonl
    for model in d w; do moe-decode -m $model.moe -n 24 p.jsonl > $model.text 2> /dev/null; done
    [ -s d.text ]
    cmp d.text w.text
    for share in 30 75; do
        moe-convert inflate d.moe --step $share% --of m.moe -o s.moe
        python3 - $share <<'END'
import json, subprocess, sys
read = lambda name: sum(json.loads(subprocess.run(["moe-view", "--json", "-t", "model", name], capture_output=True, check=True)
                                   .stdout.splitlines()[0])["step_bytes"].values())
share = read("s.moe") / read("m.moe")
assert abs(share * 100 - int(sys.argv[1])) < 0.3, share
END
    done
    refuses "bytes; give a larger --step" moe-convert inflate d.moe --step 1% --of m.moe -o x.moe
    refuses "is already 256; give a larger width" moe-convert inflate d.moe --dense-ffn 256 -o x.moe
    refuses "has experts, and only those can be inflated" moe-convert inflate m.moe --dense-ffn 300 -o x.moe
    refuses "give one of them" moe-convert inflate d.moe --dense-ffn 300 --expert-ffn 300 -o x.moe
    refuses "--step: it is a share of another model's bytes; add --of" moe-convert inflate d.moe --step 3% -o x.moe
    refuses "; add --step" moe-convert inflate d.moe --of m.moe --dense-ffn 300 -o x.moe
    refuses "--step: 130 is not between" moe-convert inflate d.moe --step 130% --of m.moe -o x.moe
}

@test "outputs that are not files are refused" {
    moe-convert pocket -o m.moe
    refuses "is a model file already" moe-convert m.moe -o x.moe
    moe-decode -q -m m.moe -n 1 -p a --stream s.moes > /dev/null
    refuses "s.moes: is a stream, not a checkpoint" moe-convert s.moes -o x.moe
    refuses "no output is given" moe-convert pocket
    refuses "a model file cannot be written to standard output, because it must be mapped" moe-convert pocket -o -
    refuses "name a file on disk" moe-convert pocket -o /dev/full
    refuses "name a file on disk" moe-convert - -o /dev/full < pocket/config.json
    refuses "files cannot be written to the folder of this output" moe-convert pocket -o nowhere/x.moe
    refuses "is a folder" moe-convert pocket -o pocket
    if [ "$(id -u)" -ne 0 ]; then
        mkdir locked
        chmod a-w locked
        refuses "files cannot be written to the folder of this output" moe-convert pocket -o locked/x.moe
    fi
}

@test "sources that are not model checkpoints are identified, with a remedy" {
    cp -R "$MOE_MODELS/pocket/heads/eagle1" head
    refuses './head: is a draft head (eagle1), not a model; `moe-convert head --target MODEL.moe ./head` converts it' \
        moe-convert ./head -o x.moe
    refuses "pocket/config.json: is a text file of a checkpoint; name its folder: pocket" moe-convert pocket/config.json -o x.moe
    echo '{"prompt": "a"}' > p.jsonl
    refuses "p.jsonl: is a text file, not a checkpoint" moe-convert p.jsonl -o x.moe
    refuses "--dtype: unknown value 'q4_k'; did you mean q4? Choose one of keep, f32, f16, bf16, fp8, q8, q4" \
        moe-convert pocket --dtype q4_k -o x.moe
    refuses "unexpected argument 'x.moe'; name the output with -o x.moe" moe-convert pocket x.moe
    refuses "unexpected argument 'p.jsonl'; see --help" moe-convert pocket p.jsonl
    for ending in gguf safetensors bin; do
        refuses "-o x.$ending: moe-convert writes a model file, not a .$ending file; name it x.moe" \
            moe-convert pocket -o x.$ending
    done
    run moe-decode -m pocket -p x
    assert_trouble moe-decode
    [[ $output == *'pocket: is a folder, not a model file; convert the checkpoint with `moe-convert pocket -o FILE`'* ]]
    run moe-decode -m none.moe -p x
    assert_trouble moe-decode
    [[ $output == *'none.moe: No such file or directory; name an existing model file, or make one with `moe-convert CHECKPOINT -o FILE`' ]]
}

# Makes a cache of the Hugging Face hub, as `hf download` does: $1 with snapshots of the pocket model.
make_cache() {
    local repository=$1/models--Qwen--Pocket-3x
    mkdir -p $repository/refs $repository/blobs $repository/snapshots/0123abc $repository/snapshots/777
    for file in "$pocket"/*; do
        cp "$file" $repository/blobs/$(basename "$file").blob
        ln -s ../../blobs/$(basename "$file").blob $repository/snapshots/0123abc/$(basename "$file")
    done
    printf 0123abc > $repository/refs/main
    cp "$MOE_MODELS/pocket/draft"/* $repository/snapshots/777
    mkdir -p $1/models--yuhuili--EAGLE-x/snapshots/5
    cp "$MOE_MODELS/pocket/heads/eagle1"/* $1/models--yuhuili--EAGLE-x/snapshots/5
}

@test "a repository is found in the cache of Hugging Face, and else its download is named" {
    unset HF_HUB_CACHE HF_HOME XDG_CACHE_HOME
    export HOME=$PWD/home
    local name
    for name in Qwen/Qwen3-30B-A3B hf:Qwen/Qwen3-30B-A3B https://huggingface.co/Qwen/Qwen3-30B-A3B \
        'https://huggingface.co/Qwen/Qwen3-30B-A3B/tree/main?x=1'; do
        refuses '`hf download Qwen/Qwen3-30B-A3B' moe-convert "$name" -o x.moe
        [[ $output == *"$HOME/.cache/huggingface/hub; "*'then repeat this command' ]]
        refuses '`hf download Qwen/Qwen3-30B-A3B' moe-convert "$name"
    done
    refuses '`hf download Qwen/Q a/model.gguf --revision v1`' \
        moe-convert https://huggingface.co/Qwen/Q/resolve/v1/a/model.gguf -o x.moe
    refuses '`curl -LO https://example.org/m.tar.gz` for a file' moe-convert https://example.org/m.tar.gz -o x.moe
    refuses "missing/model.gguf/x: cannot be read" moe-convert missing/model.gguf/x -o x.moe
    moe-convert pocket --name Pocket-3x -o folder.moe
    make_cache home/.cache/huggingface/hub
    for name in Qwen/Pocket-3x hf:Qwen/Pocket-3x@0123abc https://hf.co/Qwen/Pocket-3x/tree/main \
        https://huggingface.co/Qwen/Pocket-3x/blob/main/model.safetensors; do
        moe-convert "$name" -o found.moe 2> said
        cmp folder.moe found.moe
        grep -q "^moe-convert: $name: found as .*/snapshots/0123abc" said
    done
    moe-convert hf:Qwen/Pocket-3x@777 -o draft.moe 2> said
    moe-view draft.moe | head -n 1 | grep -q Pocket-3x
    refute cmp -s folder.moe draft.moe
    refuses '`hf download Qwen/Pocket-3x --revision 778`' moe-convert hf:Qwen/Pocket-3x@778 -o x.moe
    # the folders themselves, the variables by precedence, and heads
    for name in snapshots/0123abc ''; do
        moe-convert home/.cache/huggingface/hub/models--Qwen--Pocket-3x/$name -o found.moe 2> said
        cmp folder.moe found.moe
    done
    moe-convert head yuhuili/EAGLE-x --target folder.moe -o head.moe 2> said
    mv home/.cache/huggingface/hub hub
    HF_HUB_CACHE=$PWD/hub moe-convert Qwen/Pocket-3x -o found.moe 2> said
    mkdir home/hf home/xdg home/xdg/huggingface
    mv hub home/hf
    HF_HOME=$PWD/home/hf moe-convert Qwen/Pocket-3x -o found.moe 2> said
    mv home/hf/hub home/xdg/huggingface
    XDG_CACHE_HOME=$PWD/home/xdg moe-convert Qwen/Pocket-3x -o found.moe 2> said
    cmp folder.moe found.moe
    # local files take precedence
    mkdir -p Qwen
    cp -R "$MOE_MODELS/pocket/draft" Qwen/Pocket-3x
    XDG_CACHE_HOME=$PWD/home/xdg moe-convert Qwen/Pocket-3x -o here.moe 2> said
    [ ! -s said ]
    refute cmp -s folder.moe here.moe
}

@test "shards without an index are joined by their names" {
    moe-convert pocket -o whole.moe
    PYTHON=$(python_with_numpy) || skip "no python3 with numpy"
    "$PYTHON" - <<'PYTHON'
import json, struct
data = open("pocket/model.safetensors", "rb").read()
size, = struct.unpack("<Q", data[:8])
tensors = {k: v for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
names = sorted(tensors)
for number in range(3):
    header, body = {}, b""
    for name in names[number::3]:
        first, last = tensors[name]["data_offsets"]
        header[name] = dict(tensors[name], data_offsets=[len(body), len(body) + last - first])
        body += data[8 + size + first:8 + size + last]
    text = json.dumps(header).encode()
    with open(f"pocket/model-{number + 1:05}-of-00003.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
PYTHON
    rm pocket/model.safetensors
    digests() { moe-view --json --type tensor "$1" | jq -c '[.name, .digest]'; }
    moe-convert pocket -o x.moe
    cmp <(digests whole.moe) <(digests x.moe)
    cp x.moe joined.moe
    moe-convert pocket/model-00002-of-00003.safetensors --name pocket -o joined2.moe
    cmp joined.moe joined2.moe
    tar cf p.tar pocket
    moe-convert p.tar -o joined2.moe
    cmp joined.moe joined2.moe
    rm x.moe
    cp pocket/model-00001-of-00003.safetensors pocket/model-00001-of-00002.safetensors
    refuses "has 4 .safetensors files, but no model.safetensors.index.json that lists their tensors; name one of the files, or add the list" moe-convert pocket -o x.moe
    rm pocket/model-00001-of-00002.safetensors pocket/model-00002-of-00003.safetensors
    local said="model-00002-of-00003.safetensors is missing, although model-0000"
    refuses "$said" moe-convert pocket -o x.moe
    refuses "$said" moe-convert pocket/model-00001-of-00003.safetensors -o x.moe
    tar cf p.tar pocket
    refuses "$said" moe-convert p.tar -o x.moe
}

@test "a Git LFS pointer is not accepted as a checkpoint's file" {
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 16998144\n' 7 > pointer
    local said='is a Git LFS pointer, not the file itself; `git lfs pull` in its folder downloads the file' name
    for name in model.safetensors tokenizer.json config.json; do
        cp pointer pocket/$name
        refuses "$name" moe-convert pocket -o x.moe
        [[ $output == *"$said" ]]
        tar cf p.tar pocket
        refuses "$name" moe-convert p.tar -o x.moe
        [[ $output == *"$said" ]]
        cp "$pocket/$name" pocket
    done
    mv pointer pointer.gguf
    refuses "pointer.gguf: $said" moe-convert pointer.gguf -o x.moe
    run moe-decode -m pointer.gguf -p x
    assert_trouble moe-decode
    [[ $output == *"$said" ]]
}

@test "a pipe in place of a model is refused at once" {
    mkfifo pipe
    ln -s "$MOE_POCKET" pocket.moe
    echo '{"prompt": "a", "answer": "b"}' > p.jsonl
    echo '{"model": "pipe", "prompts": "p.jsonl", "settings": [{"name": "none"}]}' > suite.json
    local command bound=10
    while read -r command; do
        run $command
        [ "$status" = 2 ] && [ "${#lines[@]}" = 1 ] || { echo "$command: $status: $output"; return 1; }
        [[ $output == *"pipe: is a pipe, not a regular file"* ]] || { echo "$command: $output"; return 1; }
        [ "$(ls -d x* 2> /dev/null)" = "" ]
    done << 'END'
moe-decode -m pipe -p a
moe-decode -m pipe -p a --cache-experts 50%
moe-decode -m pocket.moe -d model:file=pipe -p a
moe-decode -m pocket.moe -d head:file=pipe -p a
moe-profile -m pipe p.jsonl -o x
moe-profile features -m pipe p.jsonl -o x
moe-draft-train train -m pipe --arch eagle1 p.jsonl -o x
moe-draft-train eval -m pipe p.jsonl pocket.moe -o x
moe-bench run suite.json -o x
moe-convert inflate pipe --expert-ffn 80 -o x.moe
moe-convert head pocket --target pipe -o x.moe
moe-convert synthetic --head eagle1 --target pipe -o x.moe
END
    rm pocket/model.safetensors
    mkfifo pocket/model.safetensors
    refuses "model.safetensors: is not a regular file" moe-convert pocket -o x.moe
}

@test "a disk without room for the model is refused before the work" {
    unshare -rm true 2> /dev/null || skip "no mounts for users here"
    ln -s "$MOE_POCKET" pocket.moe
    mkdir small
    while read -r command; do
        run unshare -rm bash -c "mount -t tmpfs -o size=10m none small && $command; status=\$?; ls -A small; exit \$status"
        assert_trouble moe-convert
        [[ $output == *"small/x.moe: needs "*" MB, but its disk has only 10."*" MB free; free some space, or name "* ]]
    done << 'END'
moe-convert pocket -o small/x.moe
moe-convert inflate pocket.moe --expert-ffn 90 -o small/x.moe
moe-convert synthetic --like olmoe-1b-7b -o small/x.moe
END
    tar cf pocket.tar pocket
    run unshare -rm bash -c "mount -t tmpfs -o size=10m none small && moe-convert pocket.tar -o small/x.moe; status=\$?; ls -A small; exit \$status"
    assert_trouble moe-convert
    [[ $output == *"the disk of the output is full: it also stores the archive"* ]]
    run unshare -rm bash -c "mount -t tmpfs -o size=10m none small && XDG_CACHE_HOME=$PWD/small moe-decode -q --convert -m pocket -p NAME"
    assert_trouble moe-decode
    [[ $output == *"; --convert writes the model below XDG_CACHE_HOME, so set that to another folder" ]]
}

@test "a limit on the size of files ends a command as a full disk does, and leaves nothing" {
    moe-convert pocket -o m.moe
    mkdir limited
    cd limited
    run bash -c 'ulimit -f 100; moe-convert -q ../pocket -o x.moe'
    assert_trouble moe-convert
    [[ $output == *"File too large" ]]
    run bash -c 'ulimit -f 8; moe-profile features -q -m ../m.moe --mask all -p "$(seq 300)" -o x.moes'
    assert_trouble moe-profile
    [[ $output == *"File too large" ]]
    [ -z "$(ls -A)" ]
}

@test "bad sources are reported in one line and leave no file" {
    refuses "missing: cannot be read" moe-convert missing -o x.moe
    refuses "SOURCE" moe-convert -o x.moe
    mkdir empty
    refuses "has no .safetensors, pytorch_model.bin or .gguf file" moe-convert empty -o x.moe
    tar cf p.tar pocket
    head -c 3000000 p.tar > cut.tar
    refuses "damaged, truncated" moe-convert cut.tar -o x.moe
    refuses "damaged, truncated" moe-convert - -o x.moe < cut.tar
    refuses "archive" moe-convert /dev/null -o x.moe
    head -c 3000000 pocket/model.safetensors > short
    mv short pocket/model.safetensors
    refuses "model.safetensors: its header declares" moe-convert pocket -o x.moe
    printf '\200\0\0\0\0\0\0\0{' > pocket/model.safetensors
    refuses "it is truncated" moe-convert pocket -o x.moe
    rm pocket/config.json
    cp "$pocket/model.safetensors" pocket
    refuses "has no config.json" moe-convert pocket -o x.moe
    : > pocket/config.json
    refuses "pocket: config.json is empty; download it again" moe-convert pocket -o x.moe
    sed 's/"hidden_size": 192/"hidden_size": -5/' "$pocket/config.json" > pocket/config.json
    refuses "config.json: hidden_size is -5; it must be at least 1" moe-convert pocket -o x.moe
    for name in model.safetensors.part model-00001-of-00002.safetensors.incomplete; do
        mv pocket/model.safetensors pocket/$name
        refuses "pocket: $name is a download that has not ended, and no other weights are here; end it" moe-convert pocket -o x.moe
        mv pocket/$name pocket/model.safetensors
    done
    sed 's/"olmoe"/"gpt2"/' "$pocket/config.json" > pocket/config.json
    refuses 'config.json: model_type is "gpt2"; this family is not supported; moe-convert --list-families prints' moe-convert pocket -o x.moe
    sed 's/"num_hidden_layers": 6/"num_hidden_layers": 7/' "$pocket/config.json" > pocket/config.json
    refuses "model.layers.6.input_layernorm.weight is missing" moe-convert pocket -o x.moe
    sed 's/"num_hidden_layers": 6/"num_hidden_layers": 5/' "$pocket/config.json" > pocket/config.json
    refuses "is not part of a model with 5 layers of family olmoe" moe-convert pocket -o x.moe
}

@test "an interrupted conversion leaves nothing" {
    mkfifo pipe
    tar cf p.tar pocket
    moe-convert - -o x.moe < pipe &
    job=$!
    exec 7> pipe
    head -c 3000000 p.tar >&7
    sleep 0.3
    kill -TERM $job
    exec 7>&-
    wait $job && false || [ $? -eq 143 ]
    [ -z "$(ls -A | grep -e '^x\.moe' -e '^\.moe-')" ]
}

@test "an archive with an excessive compression ratio is refused" {
    [ -n "$MOE_LONG" ] || skip "only in the long check"
    mkdir big
    cp pocket/config.json big
    truncate -s 3G big/model.safetensors
    tar cf - big | gzip -1 > big.tar.gz
    refuses "unpacks to more than 200 times its size" moe-convert big.tar.gz -o x.moe
}

# Writes FOLDER/model.safetensors of BF16 zeros, which take no room on the disk; standard input has a line per tensor: its name,
# rows, and columns if it has some.
zero_weights() {
    awk '{
            bytes = $2 * (NF > 2 ? $3 : 1) * 2
            printf "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d%s],\"data_offsets\":[%.0f,%.0f]}", (NR > 1 ? "," : "{"), $1, $2,
                (NF > 2 ? "," $3 : ""), at, at + bytes
            at += bytes
        }
        END { printf "}"; printf "%.0f", at > "data-bytes" }' > header
    local length=$(wc -c < header) i
    for ((i = 0; i < 8; i++)); do printf "\\x$(printf %x $((length >> 8 * i & 255)))"; done > "$1/model.safetensors"
    cat header >> "$1/model.safetensors"
    truncate -s $((8 + length + $(cat data-bytes))) "$1/model.safetensors"
}

# Makes a folder `huge`: an OLMoE of 8 layers and 64 experts in bf16, 6.6 GiB.
huge_checkpoint() {
    mkdir huge
    echo '{"model_type":"olmoe","hidden_size":2048,"intermediate_size":1024,"num_hidden_layers":8,"num_attention_heads":16,
        "num_key_value_heads":16,"num_experts":64,"num_experts_per_tok":2,"norm_topk_prob":false,"rms_norm_eps":1e-5,
        "rope_theta":10000.0,"max_position_embeddings":64,"vocab_size":32000,"eos_token_id":1,"tie_word_embeddings":false,
        "torch_dtype":"bfloat16"}' > huge/config.json
    awk 'BEGIN {
            print "model.embed_tokens.weight 32000 2048\nlm_head.weight 32000 2048\nmodel.norm.weight 2048"
            for (l = 0; l < 8; l++) {
                layer = "model.layers." l "."
                split("q k v o", parts, " ")
                for (i = 1; i <= 4; i++) print layer "self_attn." parts[i] "_proj.weight 2048 2048"
                print layer "self_attn.q_norm.weight 2048\n" layer "self_attn.k_norm.weight 2048"
                print layer "input_layernorm.weight 2048\n" layer "post_attention_layernorm.weight 2048"
                print layer "mlp.gate.weight 64 2048"
                for (e = 0; e < 64; e++) {
                    expert = layer "mlp.experts." e "."
                    print expert "gate_proj.weight 1024 2048\n" expert "up_proj.weight 1024 2048"
                    print expert "down_proj.weight 2048 1024"
                }
            }
        }' | zero_weights huge
}

@test "a checkpoint of more than 6 GiB converts within 1 GiB of memory" {
    [ -n "$MOE_LONG" ] && [ -z "$MOE_SANITIZED" ] || skip "only in the long check"
    huge_checkpoint
    [ $(($(wc -c < huge/model.safetensors) >> 30)) -ge 6 ]
    (ulimit -d $((1 << 20)) && moe-convert -q huge -o kept.moe)
    [ $(($(wc -c < kept.moe) >> 30)) -ge 6 ]
    rm kept.moe
    # The largest tensor has 125 MiB: with 256 MiB more, and the threads' reserves, half of that suffices; 64 MiB does not.
    (ulimit -d $((512 << 10)) && moe-convert -q -j 2 --dtype q4 huge -o small.moe)
    if (ulimit -d $((64 << 10)) && moe-convert -q -j 2 --dtype q4 huge -o small.moe) 2> said; then return 1; fi
    grep "memory" said
}

@test "a vocabulary of 2^20 tokens takes twice its size and 64 MiB" {
    [ -z "$MOE_SANITIZED" ] || skip "a sanitised build needs more"
    mkdir words
    echo '{"model_type":"llama","hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":1,
        "num_key_value_heads":1,"rms_norm_eps":1e-5,"max_position_embeddings":64,"vocab_size":1048576,"eos_token_id":1,
        "tie_word_embeddings":true,"torch_dtype":"bfloat16"}' > words/config.json
    awk 'BEGIN {
            print "model.embed_tokens.weight 1048576 8\nmodel.norm.weight 8"
            print "model.layers.0.input_layernorm.weight 8\nmodel.layers.0.post_attention_layernorm.weight 8"
            split("self_attn.q self_attn.k self_attn.v self_attn.o mlp.gate mlp.up mlp.down", parts, " ")
            for (i = 1; i <= 7; i++) print "model.layers.0." parts[i] "_proj.weight 8 8"
        }' | zero_weights words
    # Tokens of one to four letters; each longer one is a merge.
    awk 'function tokens(before, length_, pass, i) {
            for (i = 1; i <= 64 && count < 1048576; i++)
                if (length_ == 1) {
                    if (pass == 0) printf "%s\"%s%s\":%d", count ? "," : "", before, letter[i], count
                    else if (before != "") printf "%s\"%s %s\"", merges++ ? "," : "", before, letter[i]
                    count++
                } else
                    tokens(before letter[i], length_ - 1, pass)
        }
        BEGIN {
            for (i = 1; i <= 64; i++)
                letter[i] = substr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", i, 1)
            printf "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"
            for (l = 1; l <= 4; l++) tokens("", l, 0)
            printf "},\"merges\":["
            count = 0
            for (l = 1; l <= 4; l++) tokens("", l, 1)
            print "]}}"
        }' > words/tokenizer.json
    [ "$(wc -c < words/tokenizer.json)" -gt 20000000 ]
    local limit=$((2 * $(wc -c < words/tokenizer.json) / 1024 + (64 << 10)))
    (ulimit -d $limit && moe-convert --dry-run words > plan)
    grep "1048576" plan
    if (ulimit -d $((limit / 2)) && moe-convert --dry-run words > plan) 2> said; then return 1; fi
    grep "memory" said
}

# TEXT REPEATED TIMES
many() { awk -v text="$1" -v times="$2" 'BEGIN { for (i = 0; i < times; i++) printf "%s", text }'; }

@test "texts of a checkpoint take twice their size and 64 MiB, whatever they hold" {
    [ -z "$MOE_SANITIZED" ] || skip "a sanitised build needs more"
    # FILE and the expected message, with standard input as the file
    holds() {
        rm -rf texts
        cp -R pocket texts
        cat > "texts/$1"
        local limit=$((2 * $(wc -c < "texts/$1") / 1024 + (64 << 10)))
        status=0
        (ulimit -d $limit && ulimit -t 20 && moe-convert --dry-run texts > plan) 2> said || status=$?
        [ -z "$2" ] && [ $status = 0 ] || { [ $status = 2 ] && grep -F "$2" said && [ "$(wc -l < said)" = 1 ]; }
    }
    local config=$(jq -c . pocket/config.json)
    { echo "${config%?},\"x\":["; many '{},' 1300000; echo '1]}'; } | holds config.json "too many values"
    { echo "${config%?},\"x\":["; many '1,' 1900000; echo '1]}'; } | holds config.json "too many values"
    { echo "${config%?},\"x\":\""; } | tr -d '\n' > start
    { cat start; many 'aaaaaaaa' 500000; echo '"}'; } | holds config.json
    { many '[' 2000000; } | holds config.json "depth"
    { echo '{"x":['; many '{},' 2700000; echo '1]}'; } | holds tokenizer_config.json "too many values"
    { echo '{"x":['; many '1,' 4000000; echo '1]}'; } | holds tokenizer_config.json "too many values"
    { echo '{'; many '"a":1,' 1300000; echo '"a":1}'; } | holds tokenizer_config.json "duplicate object key"
    { awk 'BEGIN { printf "{\"added_tokens_decoder\":{"
            for (i = 0; i < 6400; i++)
                printf "%s\"%d\":{\"content\":\"<unused%d>\",\"lstrip\":false,\"normalized\":false,\"rstrip\":false," \
                    "\"single_word\":false,\"special\":true}", i ? "," : "", i, i
            print "}}" }'; } | holds tokenizer_config.json
    { echo '{"x":['; many '{},' 340000; echo '1]}'; } | holds generation_config.json "too many values"
    { awk 'BEGIN { printf "{\"weight_map\":{"
            for (i = 0; i < 1000000; i++) printf "%s\"layers.%d.weight\":\"model.safetensors\"", i ? "," : "", i
            print "}}" }'; } | holds model.safetensors.index.json "tensor layers.0.weight should be in model.safetensors"
}

@test "moe-decode converts a checkpoint when asked, once, and again when it has changed" {
    export XDG_CACHE_HOME=$PWD/cache
    cp -r "$pocket" ck
    chmod -R u+w ck
    run moe-decode -m ck -p NAME -n 4
    assert_trouble moe-decode
    [ "$output" = "moe-decode: ck: is a folder, not a model file; convert the checkpoint with \`moe-convert ck -o FILE\`, or add --convert" ]
    [ ! -e cache ]
    moe-convert -q ck -o m.moe
    moe-decode -q -m m.moe -p NAME -n 4 > want
    moe-decode --convert -m ck -p NAME -n 4 2> note | cmp - want
    kept=$(ls cache/moekit/ck-*.moe)
    [ "$(cat note)" = "moe-decode: ck: is being converted to $PWD/$kept; later runs reuse that file" ]
    cmp m.moe "$kept"
    [ "$(moe-decode --convert -m ck -p NAME -n 4 2>&1)" = "$(cat want)" ]
    moe-decode -q --convert -m m.moe -p NAME -n 4 | cmp - want
    # Weights with another date, text or name give another file each.
    touch -d '2020-01-01' ck/model.safetensors
    moe-decode -q --convert -m ck -p NAME -n 4 | cmp - want
    sed -i 's/"temperature"/"temperatures"/; s/}$/ }/' ck/generation_config.json
    moe-decode -q --convert -m ck -p NAME -n 4 > /dev/null
    moe-decode -q --convert -m ck/model.safetensors -p NAME -n 4 > /dev/null
    [ "$(ls cache/moekit | wc -l)" = 4 ]
    env -u XDG_CACHE_HOME HOME=$PWD/home moe-decode -q --convert -m ck -p NAME -n 4 > /dev/null
    ls home/.cache/moekit/ck-*.moe
    tar cf ck.tar ck
    while IFS='|' read -r words part; do
        run $words -p NAME -n 4
        assert_trouble moe-decode
        [[ $output == *"$part"* ]] || { echo "$words: $output"; false; }
    done <<WRONG
moe-decode --convert -m ck.tar|--convert: ck.tar is not a folder, .safetensors, .gguf or pytorch_model.bin file; convert archives
moe-decode --convert -m missing|missing: No such file or directory
moe-decode --convert -m cache|cache: has no .safetensors
moe-decode --convert -m ck -o ck/model.safetensors|an output needs a file of its own
moe-decode --convert|no model is given; name one with -m FILE
moe-decode -m ck/model.safetensors|ck/model.safetensors: is a file of weights, not a model file; convert the checkpoint with \`moe-convert ck/model.safetensors -o FILE\`
moe-decode -m org/name|org/name: No such file or directory; if it is a repository of the Hugging Face hub, --convert finds it in the local cache
env -u HOME -u XDG_CACHE_HOME moe-decode --convert -m ck|neither XDG_CACHE_HOME nor HOME names a folder
env XDG_CACHE_HOME=$PWD/m.moe moe-decode --convert -m ck|--convert: $PWD/m.moe/moekit: the folder for the converted model cannot be made: Not a directory; set XDG_CACHE_HOME to another folder, or run \`moe-convert ck
WRONG
    cmp ck/model.safetensors "$pocket/model.safetensors"
}
