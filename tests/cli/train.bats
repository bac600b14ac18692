#!/usr/bin/env bats
# moe-draft-train train from the command line: heads that draft, the same bytes with any threads and after any interruption, and
# bad input.

load common

setup_file() {
    export WORK="$BATS_FILE_TMPDIR"
    ln -s "$MOE_POCKET" "$WORK/pocket.moe"
    cd "$WORK"
    head -n 24 "$MOE_MODELS/pocket/calib.jsonl" > texts.jsonl
}

setup() { cd "$WORK"; }

train() { moe-draft-train train -q -m pocket.moe "$@"; }

# Prints the loss at a step of a train stream.
loss() { moe-view --json --type step "$1" | jq -s "(.[$2:] | map(.loss) | add / length)"; }

# The command fails with one line that contains $1, and writes no head.
refuses() {
    local words=$1
    shift
    run moe-draft-train train -q "$@" -o no.moe
    assert_trouble moe-draft-train
    [[ $output == *"$words"* ]] || { echo "'$output' does not say: $words"; return 1; }
    [ ! -e no.moe ]
}

@test "a head is trained, written as a head file, and its drafts are accepted" {
    moe-draft-train train -m pocket.moe --arch eagle1 --steps 1 texts.jsonl -o one.moe 2> said
    grep -qx 'moe-draft-train: training finished: 1 step, loss of the last step [0-9.]*' said
    train --arch eagle1 --rate 0.004 --epochs 3 texts.jsonl -o one.moe --stream one.moes
    moe-view --verify one.moe
    moe-view --verify one.moes
    [ "$(moe-view --json --type run one.moes | jq -r .arch)" = eagle1 ]
    [ "$(moe-view --json --type step one.moes | jq -s length)" = 18 ]
    jq -en "$(loss one.moes -4) < 0.8 * $(moe-view --json --type step one.moes | jq -s '.[0].loss')"
    [ ! -e one.moe.checkpoint ]
    # its drafts change nothing, and some are accepted
    tail -n 2 "$MOE_MODELS/pocket/calib.jsonl" > asked.jsonl
    moe-decode -q -m pocket.moe -n 40 asked.jsonl > plain.txt
    moe-decode -q -m pocket.moe -n 40 --draft head:file=one.moe asked.jsonl --stream run.moes > drafted.txt
    cmp plain.txt drafted.txt
    [ "$(moe-view --json --type iter run.moes | jq -s 'map(.accepted) | add')" -gt 0 ]
}

@test "each kind of head is trained, and can be opened" {
    for arch in eagle3 medusa hydra kangaroo jakiro jakiro_star; do
        train --arch $arch --steps 2 texts.jsonl -o kind.moe
        moe-view --verify kind.moe
        moe-view kind.moe | head -n 1 | grep "($arch)"
        train --from kind.moe --steps 1 texts.jsonl -o again.moe
        refute cmp -s kind.moe again.moe
    done
    [ "$(moe-view --json kind.moe | jq -rn 'input | .name')" = jakiro_star ]
    train --arch hydra --prefix --blocks 2 --guesses 2 --dtype bf16 --steps 1 --name mine texts.jsonl -o kind.moe
    moe-view --verify kind.moe
    [ "$(moe-view --json kind.moe | jq -rn 'input | .name')" = mine ]
}

@test "Jakiro's experts and branches are trained as requested, recorded, and draft" {
    tail -n 1 "$MOE_MODELS/pocket/calib.jsonl" > asked.jsonl
    moe-decode -q -m pocket.moe -n 12 asked.jsonl > plain.txt
    while read -r options said; do
        train --arch jakiro${options//_/ } --steps 1 texts.jsonl -o kind.moe
        moe-view kind.moe | grep -q "$said" || { echo "$options: no '$said'"; return 1; }
        train --from kind.moe --steps 1 texts.jsonl -o again.moe
        moe-view again.moe | grep -q "$said"
        moe-decode -q -m pocket.moe -n 12 --tree dynamic:total=12,depth=4,topk=3 --draft head:file=kind.moe asked.jsonl | cmp plain.txt -
    done << 'END'
_--experts_4 4 experts of inner width 192, of which a token uses 2
_--experts_3_--experts-used_1 3 experts of inner width 192, of which a token uses 1
_--second_sum a second branch, the sum of two, guesses the token after the next
_--ahead_1 a second branch, the contrast of two, guesses the token that comes next
END
    train --arch jakiro --second none --steps 1 texts.jsonl -o none.moe
    refute grep -q "second branch" <(moe-view none.moe)
    train --arch jakiro_star --scaled --steps 1 texts.jsonl -o star.moe
    moe-view star.moe | grep -q "equation 4"
    for words in "none.moe,contrast=1 was_trained_without_one" "again.moe,parallel=1 one_forward_cannot_draft" \
        "star.moe,contrast=1 applies_to_draft_heads_of_kind_jakiro_only" "again.moe,scaled=1 scaled:_applies_to_draft_heads"; do
        run moe-decode -q -m pocket.moe -n 1 --draft "head:file=${words% *}" asked.jsonl
        assert_trouble moe-decode
        said=${words#* }
        [[ $output == *"${said//_/ }"* ]]
    done
}

@test "a feature stream, from a file or a pipe, gives the same head as its texts" {
    options="--arch eagle3 --ttt-steps 2 --draft-vocab 300 --steps 2 --rate 0.004 --micro-batch 3"
    train $options texts.jsonl -o texts.moe
    moe-profile features -q -m pocket.moe --layers eagle3 --dtype f32 texts.jsonl -o states.moes
    train $options states.moes -o file.moe
    train $options -o pipe.moe < states.moes
    moe-profile features -q -m pocket.moe --layers eagle3 --dtype f32 texts.jsonl | train $options - -o stream.moe
    cmp texts.moe file.moe
    cmp texts.moe pipe.moe
    cmp texts.moe stream.moe
    # shards do, too, each a file
    moe-profile features -q -m pocket.moe --layers eagle3 --dtype f32 -o first.moes <(head -n 7 texts.jsonl)
    moe-profile features -q -m pocket.moe --layers eagle3 --dtype f32 -o second.moes <(tail -n +8 texts.jsonl)
    train $options first.moes second.moes -o shards.moe
    cmp texts.moe shards.moe
    refuses "lacks the states after layer" -m pocket.moe --arch kangaroo --exit 4 states.moes
    refuses "states.moes is a feature stream and cannot be combined with texts.jsonl" -m pocket.moe --arch eagle1 states.moes texts.jsonl
    refuses "is a feature stream and cannot be combined with" -m pocket.moe --arch eagle1 states.moes - < states.moes
    head -c 20000 states.moes > cut.moes
    refuses "cut.moes" -m pocket.moe --arch eagle1 cut.moes
}

@test "training on an emulated device gives the host's losses, and the same bytes each time" {
    for i in 1 2; do
        jq -cn "{id: \"$i\", prompt: \"Tom has $i apples.\", answer: \"He eats $i of them and is happy.\"}"
    done > two.jsonl
    moe-profile features -q -m pocket.moe --dtype f32 two.jsonl -o two.moes
    for arch in ${MOE_LONG:+jakiro} jakiro_star; do             # unit/trainer has other kinds
        for on in host emu; do                                  # a stream has the model's states: the model is not needed
            MOE_EMU_MEMORY=32000000 moe-draft-train train -v -m pocket.moe --device $on --arch $arch --rate 0.002 --batch 1 \
                --cut 16 --steps 2 two.moes -o $on.moe --stream $on.moes 2> said
            moe-view --json --type step $on.moes | jq -s 'map(.loss)' > $on.losses
        done
        jq -es 'transpose | length == 2 and all((.[1] / .[0] - 1 | fabs) < 1e-4)' host.losses emu.losses
    done
    grep -q "training runs on emu.*computed by cuBLAS" said
    [ -n "$MOE_LONG" ] || return 0
    train --device emu --arch jakiro_star --rate 0.002 --batch 1 --cut 16 --steps 2 two.moes -o again.moe
    cmp emu.moe again.moe
}

@test "a text cut by --cut is the same in a stream" {
    moe-profile features -q -m pocket.moe --dtype f32 texts.jsonl -o long.moes
    options="--arch eagle1 --steps 4 --noise 0.2 --cut 40"
    train $options texts.jsonl -o texts.moe
    moe-draft-train train -m pocket.moe $options long.moes -o stream.moe 2> said
    cmp texts.moe stream.moe
    grep -qx 'moe-draft-train: long.moes: [0-9]* texts have no answer within the first 40 tokens; such texts are left out' said
    refuses "there are no texts with answers to train on" -m pocket.moe --arch eagle1 --cut 5 long.moes
}

@test "one, two and three threads give the same bytes" {
    for arch in 'eagle3 --ttt-steps 2' jakiro hydra; do
        for threads in 1 2 3; do
            train --arch $arch --steps 2 --batch 3 --micro-batch 2 -j $threads texts.jsonl -o threads-$threads.moe
        done
        cmp threads-1.moe threads-2.moe
        cmp threads-1.moe threads-3.moe
    done
    # in parts the sum is another one, of the same gradient
    train --arch hydra --steps 3 --batch 3 texts.jsonl -o whole.moe --stream whole.moes
    train --arch hydra --steps 3 --batch 3 --micro-batch 1 texts.jsonl -o parts.moe --stream parts.moes
    refute cmp -s whole.moe parts.moe
    jq -en "$(loss whole.moes 0) as \$a | $(loss parts.moes 0) as \$b | (\$a - \$b) / \$a | fabs < 1e-5"
}

@test "a training killed at any moment resumes to the same bytes and the same best head" {
    # At this rate the best head is not the last one.
    options="--arch eagle1 --rate 0.02 --warmup 0 --steps 20 --noise 0.2 --micro-batch 3 --validation 0.2 --validate-every 8 --every 0.0005"
    train $options texts.jsonl -o whole.moe --stream whole.moes
    moe-view --json --type eval whole.moes | jq -se 'min_by(.loss) | .step == 8'
    rm -f part.moe* part.best.moe said
    # killed after it has resumed and written at least one checkpoint; the last time one with a best head
    kills=${MOE_LONG:+20}
    for ((kill = ${kills:-3}; kill > 0; kill--)); do
        touch mark
        moe-draft-train train -m pocket.moe $options texts.jsonl --resume -o part.moe --stream part.moes 2>> said 3>&- & child=$!
        until { [ part.moe.checkpoint -nt mark ] && { [ $kill != 1 ] || { [ -e part.best.moe ] && [ part.moe.checkpoint -nt part.best.moe ]; }; }; } ||
            ! kill -0 $child 2> /dev/null; do sleep 0.01; done
        sleep "0.$((RANDOM % 2))$((RANDOM % 10))"
        kill -KILL $child 2> /dev/null || true
        wait $child || true
    done
    [ -e part.moe ] || moe-draft-train train -m pocket.moe $options texts.jsonl --resume -o part.moe --stream part.moes 2>> said
    grep 'continues after step [1-9]' said
    cmp whole.moe part.moe
    cmp whole.best.moe part.best.moe
    [ ! -e part.moe.checkpoint ]
    # its stream has the whole training, each step once, and no other file is left
    for type in step eval; do
        cmp <(moe-view --json --type $type whole.moes | jq -c 'del(.i, .seconds)') \
            <(moe-view --json --type $type part.moes | jq -c 'del(.i, .seconds)')
    done
    moe-view --json --type step part.moes | jq -se 'map(.seconds) | . == sort'
    refute compgen -G 'part.*.part*'
}

@test "the head is validated on texts that it does not learn from, and the best is kept" {
    options="--arch eagle1 --steps 7 --rate 0.02 --warmup 0 --schedule constant --seed 3"
    moe-draft-train train -m pocket.moe $options --validation 0.2 --validate-every 3 texts.jsonl -o judged.moe \
        --stream judged.moes 2> said
    moe-view --json --type eval judged.moes > evals
    [ "$(jq -sc 'map(.step)' evals)" = "[3,6,7]" ]
    # the best head is the one after so many steps: a run of that length has these bytes
    best=$(jq -s 'min_by(.loss) | .step' evals)
    jq -se 'map(.best) as $b | [foreach .[].loss as $l (1e9; [., $l] | min; . == $l)] == $b' evals
    grep "judged.best.moe: the best head, from step $best, with a validation loss of" said
    train --arch eagle1 --steps "$best" --rate 0.02 --warmup 0 --schedule constant --seed 3 --validation 0.2 texts.jsonl -o best.moe
    cmp best.moe judged.best.moe
    # validation texts are not learnt: which texts they are changes nothing, and their loss equals that of a step on them
    moe-profile features -q -m pocket.moe --dtype f32 --validation 0.2 texts.jsonl -o split.moes
    train $options --validate-every 3 split.moes -o stream.moe --best kept.moe --stream stream.moes
    cmp judged.moe stream.moe
    cmp judged.best.moe kept.moe
    [ ! -e stream.best.moe ]
    moe-view --json --type begin split.moes | jq -r 'select(.validation | not) | .id' > learnt
    jq -c --slurpfile ids <(jq -R . learnt) 'select(.id as $i | $ids | index($i))' texts.jsonl > only.jsonl
    train $options only.jsonl -o only.moe
    cmp judged.moe only.moe
    jq -c --slurpfile ids <(jq -R . learnt) 'select(.id as $i | $ids | index($i) | not)' texts.jsonl > apart.jsonl
    count=$(wc -l < apart.jsonl)
    [ "$(jq -s '.[0].texts' evals)" = "$count" ]
    train --from judged.moe --steps 1 --batch "$count" apart.jsonl -o step.moe --stream step.moes
    train --from judged.moe --rate 0 --steps 1 --batch "$count" --validation 0.2 texts.jsonl -o same.moe --stream same.moes
    jq -en "$(moe-view --json --type eval same.moes | jq .loss) as \$a | $(loss step.moes 0) as \$b | (\$a - \$b) | fabs < 1e-5 * \$b"
    # requests without effect are refused
    refuses "--validation 1e-09: selects none of the 24 texts" -m pocket.moe --arch eagle1 --validation 1e-9 texts.jsonl
    refuses "--validation selects all texts with answers, so" -m pocket.moe --arch eagle1 --validation 1 texts.jsonl
    refuses "--best: there are no validation texts" -m pocket.moe --arch eagle1 --best b.moe texts.jsonl
    refuses "--validation: applies to files of texts, and split.moes is a feature stream" -m pocket.moe --arch eagle1 --validation 0.2 split.moes
    cp only.moe no.best.moe
    refuses "no.best.moe" -m pocket.moe --from no.best.moe --validation 0.2 texts.jsonl
    cmp only.moe no.best.moe
    rm no.best.moe
}

@test "the model answers prompts first, as for a feature stream" {
    head -n 8 texts.jsonl > asked.jsonl
    answer="-n 12 --validation 0.3 --temperature 0.7 --seed 4"
    options="--arch medusa --steps 2 --rate 0.01"
    train $options $answer asked.jsonl -o answered.moe
    moe-profile features -q -m pocket.moe --dtype f32 $answer asked.jsonl | train $options --seed 4 -o stream.moe
    cmp answered.moe stream.moe
    cmp answered.best.moe stream.best.moe
    train $options $answer --draft ngram -K 3 asked.jsonl -o drafted.moe
    cmp answered.moe drafted.moe
    train $options --seed 4 --validation 0.3 asked.jsonl -o given.moe
    refute cmp -s answered.moe given.moe
    refuses "--temperature: no answers are generated; add --max-tokens" -m pocket.moe --arch eagle1 --temperature 1 asked.jsonl
    refuses "--draft-length: no answers are generated" -m pocket.moe --arch eagle1 -K 3 asked.jsonl
    moe-profile features -q -m pocket.moe asked.jsonl -o asked.moes
    refuses "--max-tokens: applies to files of texts, and asked.moes is" -m pocket.moe --arch eagle1 -n 3 asked.moes
    refuses "--cache-experts: applies to files of texts" -m pocket.moe --arch eagle1 --cache-experts 50% asked.moes
    refuses "--prefetch draft: needs a drafter with the model" -m pocket.moe --arch eagle1 --cache-experts 50% --prefetch draft asked.jsonl
    run moe-profile features -q -m pocket.moe --cache-experts 50% --prefetch draft asked.jsonl -o refused.moes
    assert_trouble moe-profile
}

# Waits until process $1 has used $2 hundredths of a second of processor time, or has ended.
await_work() {
    local stat
    while read -r -a stat < "/proc/$1/stat" && [ "${stat[2]}" != Z ] && [ $((stat[13] + stat[14])) -lt "$2" ]; do sleep 0.05; done
}

@test "SIGTERM leaves a checkpoint, which only the same options resume" {
    options="--arch kangaroo --epochs 3000 texts.jsonl"
    moe-draft-train train -q -m pocket.moe $options -o early.moe --stream early.moes 3>&- & child=$!
    await_work $child 60
    kill -TERM $child
    wait $child && false || [ $? -eq 143 ]
    [ ! -e early.moe ]
    [ -s early.moe.checkpoint ]
    moe-view --json --type step early.moes 2> /dev/null | jq -se 'length > 0'
    steps=$(moe-view --json --type step early.moes 2> /dev/null | wc -l)
    moe-draft-train train -q -m pocket.moe $options --resume -o early.moe --stream early.moes 3>&- & child=$!
    await_work $child 60
    kill -TERM $child
    wait $child && false || [ $? -eq 143 ]
    moe-view --json --type step early.moes 2> /dev/null | jq -se --argjson n "$steps" 'length > $n and map(.step) == [range(length)]'
    run moe-draft-train train -q -m pocket.moe $options -o early.moe
    assert_trouble moe-draft-train
    [[ $output == *"a checkpoint of an earlier training exists"* ]]
    run moe-draft-train train -q -m pocket.moe --rate 0.1 $options --resume -o early.moe
    assert_trouble moe-draft-train
    [[ $output == *"made with other options or texts: rate 5e-05, not 0.1; give the same, or remove it to start over" ]]
    # the same texts, but with rounded states
    moe-profile features -q -m pocket.moe --layers kangaroo texts.jsonl -o rounded.moes
    run moe-draft-train train -q -m pocket.moe --arch kangaroo --epochs 3000 rounded.moes --resume -o early.moe
    assert_trouble moe-draft-train
    [[ $output == *"made with other options or texts: "*"states-in f32, not bf16; give the same, or remove it to start over" ]]
    # answers of the model's own are other texts, and another shape is another head
    run moe-draft-train train -q -m pocket.moe $options -n 5 --noise 0.2 --kv-heads 3 --resume -o early.moe
    assert_trouble moe-draft-train
    [[ $output == *": kv-heads 6, not 3; other texts; noise 0, not 0.2; give"* ]] || { echo "$output"; false; }
    size=$(stat -c %s early.moe.checkpoint)
    flip early.moe.checkpoint $((size / 2))
    run moe-draft-train train -q -m pocket.moe $options --resume -o early.moe
    assert_trouble moe-draft-train
    [[ $output == *"is damaged"* ]]
    head -c $((size / 2)) early.moe.checkpoint > cut && mv cut early.moe.checkpoint
    run moe-draft-train train -q -m pocket.moe $options --resume -o early.moe
    assert_trouble moe-draft-train
    [[ $output == *"is truncated, or belongs to another head; remove it to start over" ]]
}

# Prints the peak of a command's memory, in MiB, pages of mapped files included.
peak() {
    python3 -c 'import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(code)' "$@"
}

@test "a large vocabulary takes no more than 256 MiB besides the head" {
    jq -n '{architectures: ["OlmoeForCausalLM"], model_type: "olmoe", hidden_size: 256, intermediate_size: 64,
        num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 4, num_experts: 4, num_experts_per_tok: 2,
        vocab_size: 150000, max_position_embeddings: 512, rms_norm_eps: 1e-5, rope_theta: 10000, eos_token_id: 1}' > wide.json
    moe-convert synthetic -q --like wide.json -o wide.moe           # its output head takes 147 MiB in f32
    jq -cn '{tokens: [range(9)], answer_tokens: [range(110) * 1361 + 7]}' > wide.jsonl
    moe-profile features -q -m wide.moe wide.jsonl -o wide.moes
    taken=$(peak moe-draft-train train -q -j 1 -m wide.moe --arch eagle1 --steps 1 wide.moes -o wide-head.moe)
    echo "$taken MiB"
    [ "$taken" -lt $((256 + 4 * $(stat -c %s wide-head.moe) / 1048576)) ]
    rm wide*
}

@test "a loss that is not finite ends the training and names the texts" {
    train --arch eagle1 --steps 1 texts.jsonl -o wrong.moe
    printf '\xff\xff\xff\x7f' | dd of=wrong.moe bs=1 seek=4096 conv=notrunc status=none
    refuses "step 0, texts texts.jsonl:" -m pocket.moe --from wrong.moe texts.jsonl
    [[ $output == *"not a finite number"* ]]
    [ ! -e no.moe.checkpoint ]
}

@test "unwritable outputs are reported before the first step, and later ones lose no step" {
    for output in missing/head.moe . /dev/null -; do
        run moe-draft-train train -m pocket.moe --arch eagle1 --steps 1 texts.jsonl -o "$output"
        assert_trouble moe-draft-train
        refute grep "step" <<< "$output"
    done
    refuses "missing/state" -m pocket.moe --arch eagle1 --checkpoint missing/state texts.jsonl
    refuses "is named twice" -m pocket.moe --arch eagle1 --checkpoint no.moe texts.jsonl
    refuses "--clip: has no effect with --clipping none" -m pocket.moe --arch eagle1 --clip 1 --clipping none texts.jsonl
    refuses "is named twice, by stream and by the checkpoint" -m pocket.moe --arch eagle1 --stream no.moe.checkpoint texts.jsonl
    refuses "is named twice, by draft and by the best head" -m pocket.moe --arch eagle1 -n 2 -d model:file=no.best.moe texts.jsonl
    [ -w /dev/full ] || skip "no /dev/full"
    options="--arch eagle1 --batch 1 --steps 16 texts.jsonl"
    run moe-draft-train train -q -m pocket.moe $options -o full.moe --stream /dev/full
    assert_trouble moe-draft-train
    [[ $output == *"No space left on device; --resume continues after step "* ]]
    train $options -o whole.moe
    rm full.moe
    moe-draft-train train -m pocket.moe $options -o full.moe --resume 2> said
    grep -qx 'moe-draft-train: continues after step [1-9][0-9]*' said
    cmp whole.moe full.moe
}

@test "an option that does not apply to the kind of head is refused" {
    for words in "eagle1 ttt-steps 3" "eagle1 draft-vocab 30" "jakiro_star const-token 2" "eagle3 exit 1" "medusa inner 30" \
        "medusa prefix" "kangaroo inner 30" "hydra heads 2" "eagle3 no-bias" "kangaroo guesses 2" \
        "eagle1 experts 3" "kangaroo experts-used 1" "eagle1 second sum" "medusa ahead 1" "jakiro scaled" "jakiro inner 30"; do
        set -- $words
        refuses "--$2: does not apply to $1 heads" -m pocket.moe --arch "$1" "--$2" $3 texts.jsonl
    done
    train --arch hydra --prefix --heads 2 --steps 1 texts.jsonl -o two.moe
    refuses "--guesses: sets the shape of a new head, but two.moe is an existing head" -m pocket.moe --from two.moe --guesses 2 texts.jsonl
    refuses "--exit: does not apply to hydra heads" -m pocket.moe --from two.moe --exit 1 texts.jsonl
}

@test "bad input is reported in one line" {
    refuses "no model is given" --arch eagle1 texts.jsonl
    refuses "no head is given" -m pocket.moe texts.jsonl
    refuses "--arch and --from exclude each other" -m pocket.moe --arch eagle1 --from one.moe texts.jsonl
    refuses "missing.jsonl" -m pocket.moe --arch eagle1 missing.jsonl
    echo '{"prompt": "no answer"}' > bare.jsonl
    refuses "answer" -m pocket.moe --arch eagle1 bare.jsonl
    refuses "moe-profile features with -n N" -m pocket.moe --arch eagle1 bare.jsonl
    refuses "a model file or a draft head" -m pocket.moe --arch eagle1 pocket.moe
    refuses "draft head" -m pocket.moe --from pocket.moe texts.jsonl
    refuses "layers" -m pocket.moe --arch eagle3 --layers 0,x texts.jsonl
    refuses "layer" -m pocket.moe --arch eagle3 --layers 0,2,77 texts.jsonl
    refuses "--ahead: configures the second branch, but --second none leaves that branch out" -m pocket.moe --arch jakiro --second none --ahead 1 texts.jsonl
    refuses "must be at least 1 and below the target" -m pocket.moe --arch kangaroo --exit 9 texts.jsonl
    refuses "head" -m pocket.moe --arch eagle1 --heads 7 texts.jsonl
    refuses "--micro-batch 5: is larger than the batch of 4 texts" -m pocket.moe --arch eagle1 --micro-batch 5 texts.jsonl
    run moe-draft-train train -q -m pocket.moe --arch eagle1 texts.jsonl
    assert_trouble moe-draft-train
}
