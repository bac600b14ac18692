#!/usr/bin/env bats
# Experts in slots of memory: the same bytes for every number of slots, policy and number of threads; what records say of it;
# and what goes wrong ends in one line.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR" PYTHON
    PYTHON=$(python_with_numpy)
    cd "$WORK"
    cp "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    head -n 2 "$MOE_MODELS/pocket/heldout.jsonl" > prompts.jsonl
    moe-decode -q -m pocket.moe -n 16 prompts.jsonl > plain.txt
}

setup() { cd "$WORK"; }

decode() { moe-decode -q -m pocket.moe -n 16 "$@" prompts.jsonl; }

@test "neither slots nor policies, drafts or threads show in a text" {
    while read -r options; do
        decode $options > cached.txt
        cmp plain.txt cached.txt || { echo "differs with: $options"; return 1; }
    done <<'OPTIONS'
--cache-experts 300K -d ngram -K 6
--cache-experts 4.5% --cache-policy lfu -d ngram -K 6 -j 2
--cache-experts 17% --cache-policy utility -d model:file=draft.moe --tree dynamic:total=12,depth=4,topk=3
--cache-experts 50% --cache-policy lfu -j 3
--cache-experts 100% -d self:skip=0.3 -K 3
--cache-experts auto -d self:exit=3 -K 4 -j 2
OPTIONS
}

@test "devices with memory of their own: the same text from slots there" {
    for device in ref emu; do
        [ $device = ref ] || [ -e "${MOE_BIN%/bin}/lib/moekit/moe-emu.so" ] || continue
        for slots in "" "--cache-experts 100%" "--cache-experts 10%"; do
            moe-decode -q --device $device -m pocket.moe -n 3 -d ngram -K 2 $slots -p def > now.txt
            [ -z "$slots" ] && mv now.txt "$device.txt" || cmp "$device.txt" now.txt
        done
    done
}

@test "hits of lru are those that a list gives, which sees the routes alone" {
    moe-decode -q -m pocket.moe -n 24 --ignore-eos -p 'def add(a, b):' --cache-experts 25% --stream s.moes > o.txt
    moe-view --json s.moes > s.jsonl
    jq -e -s '[.[] | select(.type == "iter")] | length > 4 and
        all(.cache_hits + .cache_misses == .experts_loaded and .cache_prefetched_bytes == 0 and .cache_wasted_bytes == 0 and
            .cache_read_bytes == .cache_misses * 73728 and .cache_stall_us >= 0) and (map(.cache_hits) | add) > 0' s.jsonl
    moe-profile -q -m pocket.moe -n 24 --ignore-eos -p 'def add(a, b):' -o routes.moes
    moe-view --json routes.moes > routes.jsonl
    python3 - <<'RECOUNT'
import json
read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
recent, hits = [], []                       # of a cache of 192 / 4 experts, the latest last
for forward in read("routes.jsonl", "route"):
    hits.append(0)
    for layer in range(6):
        wanted = sorted({e for token in forward["experts"] for e in token[layer]})
        hits[-1] += sum((layer, e) in recent for e in wanted)
        recent = [key for key in recent if key not in {(layer, e) for e in wanted}] + [(layer, e) for e in wanted]
        recent = recent[-48:]
told = [i["cache_hits"] for i in read("s.jsonl", "iter")]
assert len(told) == 23 and told == hits[1:1 + len(told)], (told, hits)
RECOUNT
    moe-decode -q -m pocket.moe -n 24 -d ngram -K 3 -p 'def add(a, b):' --stream mapped.moes > /dev/null
    moe-view --json mapped.moes | jq -e -s 'all(has("cache_hits") | not)'
}

@test "reports have the figures of a cache, and another program finds the same" {
    for policy in lru lfu; do
        moe-decode -q -m pocket.moe -n 16 -d ngram -K 3 --cache-experts 50% --cache-policy $policy --stream $policy.moes \
            prompts.jsonl > /dev/null
        moe-bench report --json $policy.moes > report.jsonl
        moe-bench report --markdown $policy.moes > report.md
        "$PYTHON" "$BATS_TEST_DIRNAME/../bench/recompute.py" $policy.moes report.jsonl report.md
        jq -e -s '[.[] | select(.task)] | length > 0 and all(.cache_hits > 0 and .cache_hits < 1 and .cache_read_per_token > 0 and .cache_stall > 0)' report.jsonl
    done
}

@test "forced routes are read before they are wanted, and the text stays" {
    moe-decode -q -m pocket.moe -n 12 -d ngram -K 3 --record drafts --stream drafts.moes -p 'def add(a, b):' > /dev/null
    force="--force-routes drafts.moes --force-accept drafts.moes -d ngram -K 3 -n 12 -m pocket.moe -q -p"
    moe-decode $force 'def add(a, b):' > mapped.txt
    for way in none forced; do
        moe-decode $force 'def add(a, b):' --cache-experts 60% --prefetch $way --stream $way.moes > $way.txt
        cmp mapped.txt $way.txt
    done
    sum() { moe-view --json $1.moes | jq -s "[.[] | select(.type == \"iter\").$2] | add"; }
    [ "$(sum none cache_prefetched_bytes)" -eq 0 ]
    [ "$(sum forced cache_prefetched_bytes)" -gt 0 ]
}

@test "a copy that drafts says what the target will want" {
    moe-convert -q "$MOE_MODELS/pocket/model" --dtype q8 -o q8.moe
    decode -d self:experts=q8.moe -K 3 --cache-experts 30% --prefetch draft --stream draft.moes > draft.txt
    cmp plain.txt draft.txt
    moe-view --json draft.moes | jq -e -s '[.[] | select(.type == "iter")] | (map(.cache_prefetched_bytes) | add) > 0 and
        (map(.cache_wasted_bytes) | add) < (map(.cache_prefetched_bytes) | add)'
}

@test "where the kernel has no io_uring threads read, which -v tells" {
    moe-decode -v -m pocket.moe -n 1 --cache-experts 17% prompts.jsonl 2> said > /dev/null
    grep -qx 'moe-decode: experts are read by .*; memory holds 32 of 192' said
    [ -z "$MOE_SANITIZED" ] || skip "what is loaded in front would come before the sanitiser"
    fail=${MOE_BIN%/bin}/tests/torture/fail.so
    [ -e "$fail" ] || skip "the library that makes calls fail is not built"
    decode -v --cache-experts 17% 2> ring.err > ring.txt
    FAIL_CALL=ring FAIL_AT=1 LD_PRELOAD=$fail moe-decode -v -m pocket.moe -n 16 --cache-experts 17% prompts.jsonl 2> none.err > none.txt
    cmp plain.txt ring.txt
    cmp plain.txt none.txt
    grep -q 'read by [1-8] threads, as io_uring cannot be had: Function not implemented' none.err
}

@test "what cannot be is one line" {
    while IFS='|' read -r options said; do
        run moe-decode -q -m pocket.moe $options -p a
        assert_trouble moe-decode
        [[ $output == *"$said"* ]] || { echo "$output"; return 1; }
    done <<'LINES'
--cache-experts 100K|is room for 1 experts, and one token wants 4 in a layer; give at least 294912 bytes
--cache-experts 1%|is room for 1 experts
--cache-experts 101%|101 is not between 0 and 100
--cache-experts many|--cache-experts: 
--cache-experts %|--cache-experts: 
--cache-experts 50% --cache-policy best|--cache-policy: 'best' is not a policy here; there are lru, lfu, utility and utility-real
--cache-experts 50% --cache-policy belady|'belady' is not a policy here
--cache-experts 50% --cache-policy hot|'hot' is not a policy here
--cache-experts 50% --prefetch draft|no drafter is a copy of the model
--cache-experts 50% --prefetch draft -d ngram|no drafter is a copy of the model
--cache-experts 50% --prefetch forced|give --force-routes, too
--cache-policy lru|give --cache-experts, too
--prefetch draft|give --cache-experts, too
LINES
    ln draft.moe dense.moe
    run moe-decode -q -m dense.moe --cache-experts 50% -p a
    assert_trouble moe-decode
    [[ $output == *"dense.moe has no routed experts" ]]
    cp pocket.moe cut.moe
    truncate -s 3M cut.moe
    run moe-decode -q -m cut.moe --cache-experts 50% -p a
    assert_trouble moe-decode
}

@test "a file that shrinks while it is read is one line, and no signal" {
    for at in 4096 2000000; do
        cp pocket.moe shrinks.moe
        mkfifo pipe
        moe-decode -q -m shrinks.moe -n 4 --cache-experts 5% < pipe > /dev/null 2> said & pid=$!
        exec 7> pipe
        for i in $(seq 200); do grep -qs shrinks.moe /proc/$pid/maps || ls -l /proc/$pid/fd 2>/dev/null | grep -q shrinks && break; sleep 0.02; done
        sleep 0.5
        truncate -s $at shrinks.moe
        echo 'def add(a, b):' >&7
        exec 7>&-
        status=0
        wait $pid || status=$?
        rm pipe
        [ "$status" -eq 2 ] || { echo "status $status"; cat said; return 1; }
        [ "$(wc -l < said)" -eq 1 ]
        grep -q 'shrinks.moe: ends at byte [0-9]*, [0-9]* are needed: it was cut off while it was read' said
    done
}
