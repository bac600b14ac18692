#!/bin/sh
# Measures whether `-d auto` is as fast as the best fixed setting, and the gain of trimmed drafts. `make bench-auto` calls it with PARTS:
#
#     bf16, q4    live, the pocket model with 2.1 GB of experts: none, each drafter with several lengths, and -d auto, over all
#                 four tasks in turns (about 4 minutes each on a quiet machine)
#     dense       live, random weights of a dense shape with forced acceptance, as in bench-cas-spec.sh (about 3 minutes)
#     sweep       replay at the costs of a quiet machine: every drafter with 1 to 64 tokens, and -d auto, by task; recording takes
#                 some minutes
#     replay      costs in bytes, not times: fixed drafts, evict, evict-experts and policies that know the truth; routes as
#                 recorded, and with the locality of Qwen3-30B-A3B and of OLMoE (tests/bench/reroute.py)
#     calibration calibration error of estimates per drafter and task, of static drafts of 640 prompts at temperature 0 and twice at
#                 .8 (tests/bench/reliability.py; about 10 minutes)
#
# Live parts print a row for each task: the fastest setting without auto, -d auto, and their ratio (goal: .99), then a row for all
# tasks together (goal: 1.10 over the best fixed setting of the whole stream). MOE_BENCH_PROMPTS is the number of prompts a task (6),
# MOE_BENCH_WIDTH the inner width of bf16 experts (9216), MOE_BENCH_LIKE (mistral-7b) and MOE_BENCH_LAYERS (8) the dense shape.
# Complete results are kept; to measure again, remove the file in build/bench. To try all live parts in a minute:
# MOE_BENCH_PROMPTS=1 MOE_BENCH_WIDTH=1024 MOE_BENCH_LAYERS=4
# shellcheck source=tests/bench/common.sh
. "$(dirname "$0")/bench/common.sh"
parts "bf16 q4 dense sweep replay calibration" "$@"
prompts=${MOE_BENCH_PROMPTS:-6}
width=${MOE_BENCH_WIDTH:-9216}
at=$out/auto-$width-$prompts
mkdir -p "$at"
for python in python3 /usr/bin/python3; do
    ! "$python" -c 'import msgpack, numpy' 2> "$at/no-python" || break
done

once "$out/pocket.moe" moe-convert "$pocket/model"
once "$out/draft.moe" moe-convert "$pocket/draft"

# Prompts of all tasks in turns, so that the stream is mixed.
jq -c -s --argjson n "$prompts" '[.[] | del(.answer)] | group_by(.task) | map(.[:$n]) | transpose | add | .[]' \
    "$pocket/heldout.jsonl" > "$at/prompts.jsonl"

# compare STREAM: prints -d auto beside the best other setting, for each task and over all.
compare() {
    moe-bench report --json "$1" | jq -r -s '
        def two: . * 1000 | round / 1000;
        [.[] | select(.type == "row")] | group_by(.task) | map(
            (map(select(.setting == "auto"))[0]) as $auto | (map(select(.setting != "auto")) | max_by(.tokens_per_s)) as $best |
            (map(select(.setting == "none"))[0]) as $none |
            "| \($auto.task // "all") | \($none.tokens_per_s * 10 | round / 10) | \($best.setting) | " +
            "\($best.tokens_per_s / $none.tokens_per_s | two) | \($auto.tokens_per_s / $none.tokens_per_s | two) | " +
            "\($auto.tokens_per_s / $best.tokens_per_s | two) |") | .[]'
}

# live FORMAT WIDTH
live() {
    say "$1, experts of inner width $2"
    once "$at/thin-$1.moe" moe-convert -q "$pocket/model" --expert-dtype "$1"
    once "$at/$1.moe" moe-convert inflate -q "$at/thin-$1.moe" --expert-ffn "$2"
    once "$at/draft-$1.moe" moe-convert inflate -q "$out/draft.moe" --step 5% --of "$at/$1.moe"
    once "$at/head-$1.moe" moe-convert head -q "$pocket/heads/eagle3" --target "$at/$1.moe"
    jq -n --arg model "$(realpath "$at/$1.moe")" --arg prompts "$(realpath "$at/prompts.jsonl")" \
        --arg head "head:file=$(realpath "$at/head-$1.moe")" --arg draft "model:file=$(realpath "$at/draft-$1.moe")" '
        {models: {target: $model}, prompts: $prompts, settings: (
            [{name: "none"}] +
            [(2, 4, 8, 16, 32, 48) | {name: "draft model, K=\(.)", draft: $draft, "draft-length": .}] +
            [{name: "draft model, tree of 16", draft: $draft, tree: "dynamic:total=17,depth=5,topk=3"}] +
            [(2, 4) | {name: "EAGLE-3, K=\(.)", draft: $head, "draft-length": .}] +
            [(1, 2, 4, 8) | {name: "prompt lookup, K=\(.)", draft: "ngram", "draft-length": .}] +
            [(4) | {name: "suffix, K=\(.)", draft: "suffix", "draft-length": ., tree: "chain"}] +
            [{name: "self, K=3", draft: "self", "draft-length": 3}] +
            [{name: "auto", draft: [$draft, $head, "auto"]}])}' > "$at/$1.json"
    [ -e "$at/$1.moes" ] || moe-bench run -q --resume "$at/$1.moes" $threads "$at/$1.json"
    compare "$at/$1.moes"
}

# record NAME OPTION...: records what drafters draft at every position of texts of the pocket model.
record() {
    name=$1
    shift
    [ -e "$at/$name.moes" ] || {
        moe-decode -q $threads -m "$out/pocket.moe" -n 64 --record drafts "$@" --stream "$at/$name.new" -o "$at/text" \
            "$at/prompts.jsonl" && mv "$at/$name.new" "$at/$name.moes"
    }
}

# Drafts cost what they cost on the dense shape, and are accepted as on the pocket model.
dense() {
    say "dense, with forced acceptance"
    like=${MOE_BENCH_LIKE:-mistral-7b} layers=${MOE_BENCH_LAYERS:-8}
    shape=$(basename "$like" .json)-$layers
    model=$out/$shape.moe
    once "$model" moe-convert synthetic -q --like "$like" -l "$layers" --dtype q4
    words=$(moe-view --json "$model" | jq 'select(.type == "model").vocab')
    jq --argjson words "$words" '.vocab_size = $words | del(.layer_types)' "$pocket/draft/config.json" > "$at/draft-$shape.json"
    once "$at/draft-$shape-thin.moe" moe-convert synthetic -q --like "$at/draft-$shape.json"
    once "$at/draft-$shape.moe" moe-convert inflate -q "$at/draft-$shape-thin.moe" --step 5% --of "$model"
    record model -d "model:file=$out/draft.moe" -K 8
    record self -d self:skip=0.4 -K 8
    record pld -d pld -K 8
    record several-64 --record-length 64 -d "model:file=$out/draft.moe" -d self:skip=0.4 -d pld
    moe-view --json "$at/pld.moes" | jq -c 'select(.type == "begin") | {id, task, tokens: .prompt}' > "$at/ids.jsonl"
    jq -n --arg model "$(realpath "$model")" --arg prompts "$(realpath "$at/ids.jsonl")" --arg at "$(realpath "$at")" \
        --arg draft "model:file=$(realpath "$at/draft-$shape.moe")" '
        {models: {target: $model}, prompts: $prompts, limits: {"max-tokens": 64}, settings: (
            [{name: "none", draft: "none", "force-accept": "pld"}] +
            [(2, 4, 8) | {name: "draft model, K=\(.)", draft: $draft, "draft-length": ., "force-accept": "model"}] +
            [(1, 3) | {name: "self, K=\(.)", draft: "self:skip=0.4", "draft-length": ., "force-accept": "self"}] +
            [(2, 8) | {name: "prompt lookup, K=\(.)", draft: "pld", "draft-length": ., "force-accept": "pld"}] +
            [{name: "auto", draft: [$draft, "self:skip=0.4", "pld"], policy: "dytc-verify", "force-accept": "several-64"}])} |
        .settings[]["force-accept"] |= "\($at)/\(.).moes"' > "$at/$shape.json"
    [ -e "$at/$shape.moes" ] || moe-bench run -q --resume "$at/$shape.moes" $threads "$at/$shape.json"
    compare "$at/$shape.moes"
}

sweep() {
    once "$at/head.moe" moe-convert head -q "$pocket/heads/eagle3" --target "$out/pocket.moe"
    [ -e "$at/sweep.moes" ] || {
        moe-decode -q $threads -m "$out/pocket.moe" -n 256 --record drafts --record-length 64 -d "model:file=$out/draft.moe" \
            -d "head:file=$at/head.moe" -d self -d suffix -d ngram --stream "$at/sweep.new" -o "$at/text" "$at/prompts.jsonl" &&
            mv "$at/sweep.new" "$at/sweep.moes"
    }
    for machine in bf16 q4 dense; do
        say "sweep, $machine"
        "$python" tests/bench/auto_sweep.py "$at/sweep.moes" $machine
    done
}

# row NAME RECORDING TREE DRAFTER: records 15 prompts a task (6 for trees), makes copies with other routes, and prints table rows.
row() {
    texts=$at/replay${3:+-tree}.jsonl
    jq -c -s --argjson n "$([ -n "$3" ] && echo 6 || echo 15)" 'group_by(.task) | map(.[:$n]) | transpose | add | .[]' \
        "$pocket/heldout.jsonl" > "$texts"
    [ -e "$at/recorded-$2.moes" ] || {
        moe-decode -q $threads -m "$out/pocket.moe" -n 96 --record drafts -d "$4" ${3:+--tree "$3"} $([ -n "$3" ] || echo -K 8) \
            --stream "$at/$2.new" -o "$at/text" "$texts" && mv "$at/$2.new" "$at/recorded-$2.moes"
    }
    for skew in local local-olmoe; do
        [ -e "$at/$skew-$2.moes" ] || "$python" tests/bench/reroute.py "$at/recorded-$2.moes" "$at/$skew-$2.moes" $skew > "$at/shared"
    done
    for routes in recorded local local-olmoe; do
        "$python" tests/bench/trimmed.py "$1" "$at/$routes-$2.moes" ${3:+"$3"} >> "$at/table-$routes" 2>> "$at/truth-$routes"
    done
}

replay() {
    say "replay, cost in bytes"
    head="head:file=$at/head.moe"
    once "$at/head.moe" moe-convert head -q "$pocket/heads/eagle3" --target "$out/pocket.moe"
    rm -f "$at"/table-* "$at"/truth-*
    row "prompt lookup" ngram "" ngram
    row "draft model" model "" "model:file=$out/draft.moe"
    row "EAGLE-3 head" head "" "$head"
    row "prompt lookup, tree of 32" ngram-tree dynamic:total=33,depth=6,topk=4 ngram
    row "draft model, tree of 32" model-tree dynamic:total=33,depth=6,topk=4 "model:file=$out/draft.moe"
    row "EAGLE-3 head, tree of 63" head-tree dynamic:total=64,depth=6,topk=6 "$head"
    for routes in recorded local local-olmoe; do
        printf '\nRoutes: %s\n\n' $routes
        echo "| drafts | best fixed | evict | calibrated | evict-experts | calibrated | cascade-cost | dytc-verify |" \
            "evict / fixed | evict-experts / evict |"
        echo "|---|---|---|---|---|---|---|---|---|---|"
        cat "$at/table-$routes"
        echo
        echo "| drafts | evict-experts | true experts | true acceptance | both | oracle | first / second |"
        echo "|---|---|---|---|---|---|---|"
        cat "$at/truth-$routes"
    done
}

# reliability NAME LENGTH DRAFTER: records static drafts of all prompts in a random order, and prints a line for each task.
reliability() {
    for pass in "0 --temperature 0" "1 --temperature 0.8 --seed 41"; do
        to=$at/reliability-$1-${pass%% *}
        [ -e "$to.moes" ] || {
            moe-decode -q $threads -m "$out/pocket.moe" -n 96 -d "$3" -K "$2" --record route ${pass#* } --stream "$to.new" \
                -o "$at/text" "$at/all-${pass%% *}.jsonl" && mv "$to.new" "$to.moes"
        }
    done
    say "calibration, $1"
    "$python" tests/bench/reliability.py "$at/reliability-$1-0.moes" "$at/reliability-$1-1.moes"
}

calibration() {
    once "$at/head.moe" moe-convert head -q "$pocket/heads/eagle3" --target "$out/pocket.moe"
    jq -c 'del(.answer)' "$pocket/heldout.jsonl" "$pocket/calib.jsonl" |
        shuf --random-source="$pocket/heldout.jsonl" > "$at/all-0.jsonl"
    cat "$at/all-0.jsonl" "$at/all-0.jsonl" > "$at/all-1.jsonl"
    reliability ngram 8 ngram
    reliability pld 8 pld
    reliability suffix 8 suffix
    reliability head 5 "head:file=$at/head.moe"
    reliability model 8 "model:file=$out/draft.moe"
}

# shellcheck disable=SC2086
{
    ! wants bf16 || live bf16 "$width"
    ! wants q4 || live q4 $((width * 18432 / 5120))
    ! wants dense || dense
    ! wants sweep || sweep
    ! wants replay || replay
    ! wants calibration || calibration
}
