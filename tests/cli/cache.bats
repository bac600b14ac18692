#!/usr/bin/env bats
# Experts in slots of memory: the same bytes for every number of slots, policy and number of threads; what records contain; and
# errors in one line.

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

@test "texts do not depend on slots, cache policies, drafts or threads" {
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

@test "devices with their own memory give the same text from cached experts" {
    for device in ref emu emu:1; do
        [ $device = ref ] || [ -e "${MOE_BIN%/bin}/lib/moekit/moe-emu.so" ] || continue
        for slots in "" "--cache-experts 10% --host-experts 100% --cache-policy lfu" \
            "--cache-experts 10% --host-experts 30% --prefetch next-layer --cache-policy ahead"; do
            moe-decode -q --device $device -m pocket.moe -n 3 -d ngram -K 2 $slots -p def > now.txt
            [ -z "$slots" ] && mv now.txt "$device.txt" || cmp "$device.txt" now.txt
        done
    done
}

@test "a static split gives the same text with any drafts, and refuses invalid settings" {
    moe-decode -q --device ref -m pocket.moe -n 6 -p def --split static:share=40 -d self:skip=0.3 -K 3 --reference self \
        --stream s.moes > one.txt
    moe-view --json s.moes > s.jsonl
    jq -e -s '.[0].labels["two processors"] | test("split between ref and host .* \\(static\\): bits may differ")' s.jsonl
    # The verification's experts, not those of the reference after it, which are split alike.
    jq -e -s '[.[] | select(.type == "iter")] | length > 1 and all(.split.name == "static" and .split_host_us > 0 and
        (.split_device_pairs + .split_host_pairs | add) == 24 * .nodes and (.divergence | add) == 0) and
        any(.emitted < .nodes) and (map(.split_host_pairs | add) | add) > 0' s.jsonl
    for options in "" "-d ngram -K 5 -j 2" "-d model:file=draft.moe --tree dynamic:total=8,depth=3,topk=3"; do
        moe-decode -q --device ref -m pocket.moe -n 6 -p def --split static:share=40 $options > now.txt
        cmp one.txt now.txt || { echo "differs with $options"; return 1; }
    done
    run moe-decode -q --device host -m pocket.moe -n 2 -p def --split static:share=40
    [ $status -eq 2 ] && [[ $output == *"is the host itself, so there is no second processor to share experts with; choose a --device with its own memory" ]]
    run moe-decode -q --device ref -m pocket.moe -n 2 -p def --split balance
    [ $status -eq 2 ] && [[ $output == *"--split: balance: this rule needs the utility levels of a cache"* ]]
    run moe-decode -q --device ref -m pocket.moe -p def -d ngram --split resident --record drafts --stream none.moes
    [ $status -eq 2 ] && [[ $output == *"--record drafts: the text must not depend on drafts, but with --split resident it does; choose static" ]]
    echo '{"model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "none"}, {"name": "n", "draft": "ngram"}]}' > two.json
    run moe-bench identity -q --device ref --split resident two.json
    [ $status -eq 2 ] && [[ $output == *"--split resident: texts depend on the draft under this rule, so settings cannot be compared; choose static" ]]
    run moe-decode -q --device ref -m draft.moe -n 2 -p def --split static:share=40
    [ $status -eq 2 ] && [[ $output == *"are in the host's memory; add --host-experts" ]]
}

@test "experts that a static split leaves to the host are never prefetched to the device" {
    for what in "--cache-policy lru --prefetch popular" "--cache-policy utility" "--cache-policy ahead --prefetch popular --host-experts 15%"; do
        for share in 0 50; do
            moe-decode -q --device ref -m pocket.moe -n 8 --ignore-eos -p 'def add(a, b):' --cache-experts 12% $what \
                --split static:share=$share -d ngram -K 3 --stream s.moes > now.txt
            moe-view --json s.moes | jq -c 'select(.type == "iter") | [.cache_copied_early_bytes, .cache_prefetched_bytes, .cache_copied_bytes]' > early
            case "$share $what" in
            "0 "*host-experts*) jq -e -s 'all(.[0] == 0 and .[2] == 0) and (map(.[1]) | add) > 0' early ;;
            "0 "*) jq -e -s 'length > 2 and all(.[0] == 0 and .[2] == 0)' early ;;
            *) jq -e -s '(map(.[0]) | add) > 0' early ;;
            esac || { echo "with $what, $share %"; cat early; return 1; }
        done
    done
}

@test "initial experts are loaded even if they exceed the host's buffers" {
    [ -e "${MOE_BIN%/bin}/lib/moekit/moe-emu.so" ] || skip
    decode --cache-experts 100% --hot-set whole.json > /dev/null
    jq -e '.experts | length > 128' whole.json
    moe-decode -q --device emu:2 -m pocket.moe -n 3 --ignore-eos -p d --cache-experts 100% --hot-set whole.json --stream s.moes > /dev/null
    moe-view --json s.moes | jq -e -s 'map(select(.type == "iter")) | length > 0 and all(.cache_misses == 0 and .cache_hits > 0)'
}

@test "two tiers: hits, reads and copies equal those of two simulated lists" {
    moe-profile -q --device ref -m pocket.moe -n 12 --ignore-eos -p 'def add(a, b):' -o routes.moes
    moe-view --json routes.moes > routes.jsonl
    for policy in lru lfu; do
        moe-decode -q --device ref -m pocket.moe -n 12 --ignore-eos -p 'def add(a, b):' --cache-experts 20% --host-experts 50% \
            --cache-policy $policy --stream $policy.moes > /dev/null
        moe-view --json $policy.moes > $policy.jsonl
        moe-bench simulate --cache-policy $policy --cached 0.2 --host-cached 0.5 --iterations --json routes.moes > told.jsonl
        jq -c 'select(.type == "iter") | [.cache_hits, .cache_host_hits, .cache_misses]' $policy.jsonl > want
        jq -c 'select(.type == "forward" and (.prompt | not)) | [.hits, .host_hits, .misses]' told.jsonl | diff - want
    done
    echo '{"prompt": "one two three one two three one"}' > counts.jsonl
    text="-q --device ref -m pocket.moe -n 12 --ignore-eos -d ngram -K 5 counts.jsonl"
    moe-profile $text -o drafted.moes
    moe-decode $text --cache-experts 20% --host-experts 50% --cache-policy utility:prefetch=no --stream u.moes > /dev/null
    moe-view --json u.moes > u.jsonl
    moe-bench simulate --cache-policy utility --cached 0.2 --host-cached 0.5 -K 5 --iterations --json drafted.moes > told.jsonl
    "$PYTHON" "$BATS_TEST_DIRNAME/../bench/stepped.py" tiers drafted.moes 5 38 96 told.jsonl u.jsonl
    moe-bench simulate --cache-policy lru --cached 0.2 --host-cached 0.5 routes.moes | grep -q 'caches of 38 of 192 experts, with 96 on the host'
    PYTHONPATH="$BATS_TEST_DIRNAME/../bench" "$PYTHON" - <<'RECOUNT'
import json
read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
from stepped import Cache, Lru
device, host, want = Cache(38, Lru()), Cache(96, Lru()), []
for forward in read("routes.jsonl", "route"):
    want.append([0, 0, 0])
    for layer in range(6):
        wanted = sorted({e for token in forward["experts"] for e in token[layer]})
        missed = [(layer, e) for e in wanted if (layer, e) not in device.slot]
        there = sum(key in host.slot for key in missed)
        want[-1] = [sum(x) for x in zip(want[-1], (len(wanted) - len(missed), there, len(missed) - there))]
        for cache in device, host:
            cache.want(layer, dict.fromkeys(wanted, 1))
        device.bring([(layer, e) for e in wanted])
        host.bring(missed)                              # copied through the host, where they then reside, too
told = read("lru.jsonl", "iter")
assert len(told) == 11 and [[i["cache_hits"], i["cache_host_hits"], i["cache_misses"] - i["cache_host_hits"]] for i in told] == want[1:12]
assert all(i["cache_read_bytes"] == 73728 * w[2] and i["cache_copied_bytes"] == 73728 * (w[1] + w[2]) and
           i["cache_copied_early_bytes"] == i["cache_copied_wasted_bytes"] == 0 and
           0 <= i["cache_stall_copies_us"] <= i["cache_stall_us"] for i, w in zip(told, want[1:]))
assert sum(i["cache_host_hits"] for i in told) > 0
RECOUNT
}

@test "the simulator repeats the requests of a run split between device and host" {
    one="-q --device ref -m pocket.moe -n 6 --ignore-eos -d ngram -K 3"
    moe-decode $one --record drafts --stream drafts.moes -p 'def add(a, b):' > /dev/null
    moe-profile $one -p 'def add(a, b):' -o split-routes.moes
    moe-decode $one --cache-experts 20% --host-experts 100% --cache-policy utility --split balance:warm-up=2 \
        --force-routes drafts.moes --force-accept drafts.moes --stream split.moes -p 'def add(a, b):' > /dev/null
    moe-bench simulate --cache-policy utility --cached 0.2 --host-cached 1 --split split.moes -K 3 --iterations --json \
        split-routes.moes > told.jsonl
    # Reads complete in any order, so only requests are compared here; tests/unit/test_second.c compares the rest.
    moe-view --json split.moes | jq -c 'select(.type == "iter") | [.cache_hits + .cache_misses, (.split_device_experts | length)]' > want
    jq -c 'select(.type == "forward" and (.prompt | not)) | [.hits + .misses, (.device_experts | length)]' told.jsonl | diff - want
    jq -e -s 'map(select(.device_experts)) | length > 2 and (map(.device_experts | add) | add) > 0 and (map(.copied_early) | add) > 0' told.jsonl
    run moe-bench simulate --cache-policy lru --cached 0.2 --host-cached 1 --split split.moes split-routes.moes
    [ $status -eq 2 ] && [[ $output == *"--split: the cache policy lru has no utility levels; choose utility"* ]]
    run moe-bench simulate --cache-policy utility --cached 0.2 --host-cached 1 --split drafts.moes split-routes.moes
    [ $status -eq 2 ] && [[ $output == *"drafts.moes: iteration 0 has no split thresholds; record the run with --split balance" ]]
    moe-decode ${one/-n 6/-n 3} --cache-experts 20% --host-experts 100% --cache-policy utility --split balance --stream short.moes \
        -p 'def add(a, b):' > /dev/null
    run moe-bench simulate --cache-policy utility --cached 0.2 --host-cached 1 --split short.moes split-routes.moes
    [ $status -eq 2 ] && [[ $output == *"short.moes: the run has "*" iterations, but the routes have "*" verifications; record both with the"* ]]
    head -c 2000 split.moes > cut.moes
    run moe-bench simulate --cache-policy utility --cached 0.2 --host-cached 1 --split cut.moes split-routes.moes
    [ $status -eq 2 ] && [[ $output == "moe-bench: cut.moes: is truncated at byte 2000"* ]]
    run moe-bench simulate --cache-policy utility --cached 0.2 --split split.moes split-routes.moes
    [ $status -eq 2 ] && [[ $output == *"--split: the host computes the experts in its memory; add --host-cached" ]]
}

@test "slots are limited by the device's memory, and slots of the host by the host's" {
    [ -e "${MOE_BIN%/bin}/lib/moekit/moe-emu.so" ] || skip
    export MOE_EMU_MEMORY=20000000
    small="-m pocket.moe --device emu -c 128 -n 1 -p a"
    run moe-decode -q $small --cache-experts 90%
    assert_trouble moe-decode
    [[ $output == *"--cache-experts 90%: needs 12 MiB for 172 experts, but only "[4-9]" MiB are free on emu emulated; give less, or auto" ]]
    run moe-decode -q $small --cache-experts 10% --host-experts 1000000G
    [ "$status" -eq 0 ]
    moe-decode -v $small --cache-experts auto --host-experts auto 2> said > /dev/null
    grep -q 'memory holds [1-9][0-9] of 192, and that of the host 192$' said
    MOE_EMU_MEMORY=4000000 run moe-decode -q $small --cache-experts auto
    assert_trouble moe-decode
}

@test "hits of lru equal those of a list computed from the routes" {
    moe-decode -q -m pocket.moe -n 24 --ignore-eos -p 'def add(a, b):' --cache-experts 25% --stream s.moes > o.txt
    moe-view --json s.moes > s.jsonl
    jq -e -s '[.[] | select(.type == "iter")] | length > 4 and
        all(.cache_hits + .cache_misses == .experts_loaded and .cache_prefetched_bytes == 0 and .cache_wasted_bytes == 0 and
            .cache_read_bytes == .cache_misses * 73728 and .cache_stall_us >= 0) and (map(.cache_hits) | add) > 0' s.jsonl
    moe-profile -q -m pocket.moe -n 24 --ignore-eos -p 'def add(a, b):' -o routes.moes
    moe-view --json routes.moes > routes.jsonl
    PYTHONPATH="$BATS_TEST_DIRNAME/../bench" "$PYTHON" - <<'RECOUNT'
import json
read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
from stepped import Cache, Lru
cache, hits = Cache(48, Lru()), []          # 192 / 4 experts
for forward in read("routes.jsonl", "route"):
    hits.append(0)
    for layer in range(6):
        wanted = sorted({e for token in forward["experts"] for e in token[layer]})
        hits[-1] += cache.want(layer, dict.fromkeys(wanted, 1))
        cache.bring([(layer, e) for e in wanted])
told = [i["cache_hits"] for i in read("s.jsonl", "iter")]
assert len(told) == 23 and told == hits[1:1 + len(told)], (told, hits)
RECOUNT
    moe-decode -q -m pocket.moe -n 24 -d ngram -K 3 -p 'def add(a, b):' --stream mapped.moes > /dev/null
    moe-view --json mapped.moes | jq -e -s 'all(has("cache_hits") | not)'
}

# The forwards of the text as in routes.jsonl, each with the requests of its layers; and the hits of iterations.
recount() {
    moe-profile -q -m pocket.moe -n 24 --ignore-eos -p 'def add(a, b):' -o routes.moes
    moe-view --json routes.moes > routes.jsonl
    "$PYTHON" - "$@"
}
READ='
import json, sys
read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
forwards = [[sorted({(layer, e) for token in f["experts"] for e in token[layer]}) for layer in range(6)]
            for f in read("routes.jsonl", "route")]
told = lambda name: [i["cache_hits"] for i in read(name, "iter")]
'

@test "a hot set has the wanted experts, is kept between runs, and is loaded first" {
    text="-q -m pocket.moe -n 24 --ignore-eos --cache-experts 25%"
    moe-decode $text -p 'def add(a, b):' --hot-set hot.json --stream first.moes > first.txt
    cp hot.json once.json
    moe-decode $text -p 'def add(a, b):' --hot-set hot.json --cache-policy hot:half=1000 --stream second.moes > second.txt
    moe-decode $text -p 'def add(a, b):' --hot-set hot.json --cache-policy static --stream third.moes > third.txt
    cmp first.txt second.txt && cmp first.txt third.txt
    for run in first second third; do moe-view --json $run.moes > $run.jsonl; done
    recount <<PYTHON
$READ
def decode(heat, one=1.0, slots=48):
    """Hits by forward where the least hot goes, and the heat after it all."""
    first = sorted(heat, key=lambda key: (-heat[key], key))[:slots]
    slot, hits = first + [None] * (slots - len(first)), []
    for forward in forwards:
        one *= 2 ** (1 / 1000)
        hits.append(0)
        for wanted in forward:
            for key in wanted:
                heat[key] = heat.get(key, 0) + one
            held = {key for key in wanted if key in slot}
            hits[-1] += len(held)
            for key in wanted:
                if key in slot:
                    continue
                at = slot.index(None) if None in slot else min(
                    (i for i in range(slots) if slot[i] not in held), key=lambda i: (heat[slot[i]], i))
                slot[at] = key
                held.add(key)
    return hits, {key: h / one for key, h in heat.items()}
def same(path, heat):
    kept = json.load(open(path))["experts"]
    assert len(kept) == len(heat), (len(kept), len(heat))
    for layer, e, weight in kept:
        assert abs(weight - heat[layer, e]) < 1e-6 * weight, (layer, e, weight, heat[layer, e])
    return {(layer, e): weight for layer, e, weight in kept}
hits, heat = decode({})
assert told("first.jsonl") == hits[1:], (told("first.jsonl"), hits)
again, twice = decode(same("once.json", heat))
assert told("second.jsonl") == again[1:], (told("second.jsonl"), again)
assert sum(again) > sum(hits)
hot = same("hot.json", twice)
# static: the hottest 24 stay, the other 24 slots are LRU; it measures no heat, so the file is unchanged.
pins = set(sorted(hot, key=lambda key: (-hot[key], key))[:24])
recent, hits = [], []
for forward in forwards:
    hits.append(0)
    for wanted in forward:
        hits[-1] += sum(key in pins or key in recent for key in wanted)
        recent = ([key for key in recent if key not in wanted] + [key for key in wanted if key not in pins])[-24:]
assert told("third.jsonl") == hits[1:], (told("third.jsonl"), hits)
PYTHON
}

@test "profiles and benchmarks also read and write a hot set" {
    moe-profile -q -m pocket.moe --cache-experts 25% --hot-set handed.json -p 'def add(a, b):' -o h.moes
    jq -e '.experts | length > 20' handed.json
    cp handed.json before.json
    moe-bench run -q -m pocket.moe -d none -n 4 --measure-seconds 0 --cache-experts 25% --hot-set handed.json -o b.moes prompts.jsonl
    jq -e --slurpfile b before.json '(.experts | map(.[2]) | add) > ($b[0].experts | map(.[2]) | add)' handed.json
    run moe-bench run -q -m pocket.moe -m draft.moe -d none -n 4 --cache-experts 25% --hot-set handed.json -o b.moes prompts.jsonl
    assert_trouble moe-bench
    [[ $output == *"--hot-set: a hot set belongs to one model, but the suite has 2 models; leave it out, or use a suite with one model" ]]
}

@test "the first experts of a ranking stay resident" {
    moe-profile -q -m pocket.moe -n 20 prompts.jsonl | moe-coact rank-experts > rank.moes
    moe-view --json rank.moes > rank.jsonl
    moe-decode -q -m pocket.moe -n 24 --ignore-eos -p 'def add(a, b):' --cache-experts 25% \
        --cache-policy static:rank=rank.moes,reserve=10 --stream s.moes > s.txt
    moe-view --json s.moes > s.jsonl
    recount <<PYTHON
$READ
ranked = [(-score, at, (r["layer"], e)) for r in read("rank.jsonl", "rank") for at, (e, score) in enumerate(zip(r["order"], r["score"]))]
pins = {key for *_, key in sorted(ranked)[:38]}
recent, hits = [], []
for forward in forwards:
    hits.append(0)
    for wanted in forward:
        hits[-1] += sum(key in pins or key in recent for key in wanted)
        recent = ([key for key in recent if key not in wanted] + [key for key in wanted if key not in pins])[-10:]
assert told("s.jsonl") == hits[1:], (told("s.jsonl"), hits)
PYTHON
}

@test "reports have the figures of a cache, equal to those recomputed" {
    for policy in lru lfu; do
        tiers=$([ $policy = lru ] || echo "--device ref --host-experts 70% --prefetch last --split static:share=80 -n 8")
        moe-decode -q -m pocket.moe ${tiers:--n 16} -d ngram -K 3 --cache-experts 50% --cache-policy $policy --stream $policy.moes \
            prompts.jsonl > /dev/null
        moe-bench report --json $policy.moes > report.jsonl
        moe-bench report --markdown $policy.moes > report.md
        "$PYTHON" "$BATS_TEST_DIRNAME/../bench/recompute.py" $policy.moes report.jsonl report.md
        jq -e -s '[.[] | select(.task)] | length > 0 and all(.cache_hits > 0 and .cache_hits < 1 and .cache_read_per_token > 0 and .cache_stall > 0)' report.jsonl
        [ $policy = lru ] || jq -e -s '[.[] | select(.task)] | all(.cache_host_hits > 0 and .cache_copied_per_token > 0 and
            .cache_copied_early > 0 and .cache_copied_wasted >= 0 and .cache_stall_copies >= 0 and .split_host > 0 and
            .split_host < 1 and .split_wait > 0)' report.jsonl
    done
}

@test "experts of forced routes are prefetched, and the text is unchanged" {
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

@test "a copy of the model that drafts forecasts the target's experts" {
    moe-convert -q "$MOE_MODELS/pocket/model" --dtype q8 -o q8.moe
    decode -d self:experts=q8.moe -K 3 --cache-experts 30% --prefetch draft --stream draft.moes > draft.txt
    cmp plain.txt draft.txt
    moe-view --json draft.moes | jq -e -s '[.[] | select(.type == "iter")] | (map(.cache_prefetched_bytes) | add) > 0 and
        (map(.cache_wasted_bytes) | add) < (map(.cache_prefetched_bytes) | add)'
}

# All sizes, policies and forecasts in the long check; otherwise every second pair of the latter two, with alternating sizes.
@test "texts do not depend on cache size, policy or prefetching" {
    moe-profile -q -m pocket.moe -n 12 prompts.jsonl -o routes.moes
    moe-coact rank-experts routes.moes > rank.moes
    moe-decode -q -m pocket.moe -n 7 -p 'def add(a, b):' > want.txt
    turn=0
    for policy in lru lfu hot static:rank=rank.moes ahead utility utility-real; do
        for way in none draft next-layer popular last table table:file=routes.moes,max=3 utility; do
            turn=$((turn + 1))
            sizes=(300K 4.5% 17% 50% 100%)
            [ -n "$MOE_LONG" ] || sizes=(${sizes[turn / 2 % 5]})
            [ -n "$MOE_LONG" ] || [ $(((turn + turn / 8) % 2)) -eq 0 ] || continue
            for size in ${sizes[*]}; do
                moe-decode -q -m pocket.moe -n 7 -p 'def add(a, b):' -d self:skip=0.3 -K 3 --cache-experts $size \
                    --cache-policy $policy --prefetch $way > now.txt
                cmp want.txt now.txt || { echo "differs with $size, $policy and $way"; return 1; }
            done
        done
    done
}

@test "texts do not depend on the sizes of two tiers, policies, prefetching or a static split" {
    [ -n "$MOE_LONG" ] || skip "the long check has them all; some are above"
    moe-profile -q -m pocket.moe -n 12 prompts.jsonl -o routes.moes
    moe-coact rank-experts routes.moes > rank.moes
    tiers() { moe-decode -q --device ref -m pocket.moe -n 7 -p 'def add(a, b):' "$@"; }
    tiers > none.txt
    tiers --split static:share=40 > static.txt
    for policy in lru lfu hot static:rank=rank.moes ahead utility utility-real; do
        for way in none draft next-layer popular last table table:file=routes.moes,max=3 utility; do
            for size in 300K 17% 50% 100%; do
                for host in 300K 10% 40% 100%; do
                    for split in none static:share=40; do
                        tiers -d self:skip=0.3 -K 3 --cache-experts $size --host-experts $host --cache-policy $policy \
                            --prefetch $way --split $split > now.txt
                        cmp ${split%:*}.txt now.txt || { echo "differs with $size, $host, $policy, $way and $split"; return 1; }
                    done
                done
            done
        done
    done
}

# Prints sums over the iterations of a stream.
sums() { moe-view --json $1 | jq -c -s '[.[] | select(.type == "iter")] | [(map(.cache_named) | add), (map(.cache_right) | add), (map(.cache_scored) | add)]'; }

@test "forecasts of the next forward equal those of the simulation over the same routes" {
    cat > machine.json <<'MACHINE'
{"machine": "none", "source": "made up", "cached": 0.3,
 "model": {"name": "pocket", "layers": 6, "experts": 32, "top_k": 4, "expert_bytes": 1e6},
 "draft": {"length": 5, "token_us": 300, "acceptance": 0.7}, "fast": {"expert_us": 9}, "link": {"bytes_per_second": 20e9}}
MACHINE
    moe-profile -q -m pocket.moe -n 30 -d ngram -K 5 prompts.jsonl -o drafted.moes
    moe-bench simulate --machine machine.json --forecasts drafted.moes --json > told.jsonl
    for source in popular last table utility; do
        moe-decode -q -m pocket.moe -n 30 -d ngram -K 5 prompts.jsonl --cache-experts 50% --prefetch $source --stream s.moes > /dev/null
        jq -c "select(.source == \"$source\" and .most == 8) | [.named, .right, .wanted]" told.jsonl > want
        sums s.moes | diff want - || { echo "of $source"; return 1; }
    done
    moe-bench report --json s.moes > report.jsonl
    moe-bench report --markdown s.moes > report.md
    "$PYTHON" "$BATS_TEST_DIRNAME/../bench/recompute.py" s.moes report.jsonl report.md
    jq -e -s '[.[] | select(.task)] | length > 0 and all(.cache_recall > 0 and .cache_recall < 1 and .cache_right > 0)' report.jsonl
    # A file of earlier routes: its contents are known from the start.
    moe-decode -q -m pocket.moe -n 30 -d ngram -K 5 prompts.jsonl --cache-experts 50% --prefetch table --stream live.moes > /dev/null
    moe-decode -q -m pocket.moe -n 30 -d ngram -K 5 prompts.jsonl --cache-experts 50% --prefetch table:file=drafted.moes --stream filed.moes > /dev/null
    [ "$(sums filed.moes | jq '.[1] / .[2] > 0.5')" = true ]
    [ "$(jq -n "$(sums filed.moes) as \$a | $(sums live.moes) as \$b | \$a[1] > \$b[1]")" = true ]
}

# A model whose attention and experts add nothing: all its layers see the embedding, so each next router can run early.
make_still() {
    [ ! -e still.moe ] || return 0
    mkdir still
    cp "$MOE_MODELS"/pocket/model/* still
    "$PYTHON" - <<'PYTHON'
import json, struct
name = "still/model.safetensors"
data = bytearray(open(name, "rb").read())
size, = struct.unpack("<Q", data[:8])
for tensor, about in json.loads(data[8:8 + size]).items():
    if tensor.endswith(("o_proj.weight", "down_proj.weight")):
        first, last = about["data_offsets"]
        data[8 + size + first:8 + size + last] = bytes(last - first)
open(name, "wb").write(data)
PYTHON
    moe-convert -q still -o still.moe
}

@test "the next layer's router forecasts the next layer's experts" {
    make_still
    for drafts in "" "-d ngram -K 4" "-d self:exit=2 -K 3"; do
        moe-decode -q -m still.moe -n 12 --ignore-eos -p 'def add(a, b):' $drafts --cache-experts 50% --prefetch next-layer \
            --record route --stream s.moes > /dev/null
        # All experts but the first layer's, because no router precedes it; of rows that stopped before, the target computes the
        # rest.
        moe-view --json s.moes | jq -e -s '[.[] | select(.type == "iter")] | length > 2 and all(.cache_named == .cache_right) and
            all(.cache_scored > .cache_right and .cache_right > 0)'
        [ -n "$drafts" ] || moe-view --json s.moes | jq -e -s '[.[] | select(.type == "iter")] |
            all(.cache_scored - .cache_right == .experts_loaded_layer[0] and .cache_scored == .experts_loaded)'
    done
    moe-decode -q -m pocket.moe -n 24 -p 'def add(a, b):' --cache-experts 50% --prefetch next-layer --stream s.moes > /dev/null
    [ "$(sums s.moes | jq '.[1] / .[2] > 0.5')" = true ]
}

# Steps Algorithm 1 of MoE-SpAc over recorded routes in another program; real: boundaries are not rounded down.
@test "the levels in the records are those of Algorithm 1 over the same routes" {
    text="-q -m pocket.moe -n 40 --ignore-eos -d ngram -K 6 prompts.jsonl"
    moe-profile $text -o r.moes
    moe-view --json r.moes > r.jsonl
    while read -r policy; do
        moe-decode $text --cache-experts 30% --cache-policy $policy --record route --stream s.moes > /dev/null
        moe-view --json s.moes > s.jsonl
        "$PYTHON" - $policy <<'PYTHON'
import json, math, sys
from fractions import Fraction
read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
name, _, given = sys.argv[1].partition(":")
setting = dict(s.split("=") for s in given.split(",") if s)
gamma, K, real = 6, int(setting.get("K", 4)), name == "utility-real"
rate = Fraction(setting.get("lambda", "0.1"))
start = int(setting.get("start", gamma // 2))
state = {(layer, e): [0, 0, start, start] for layer in range(6) for e in range(32)}      # level, f before, up, down
iters, moved = iter(read("s.jsonl", "iter")), set()
for forward in read("r.jsonl", "route"):
    if forward["phase"] == "prompt":
        continue
    often = {}
    for token in forward["experts"]:
        for layer in range(6):
            for e in token[layer]:
                often[layer, e] = often.get((layer, e), 0) + 1
    for key, (level, before, up, down) in state.items():
        f = often.get(key, 0)
        delta = f - before
        level = min(K, level + 1) if delta >= math.floor(up) else max(0, level - 1) if -delta >= math.floor(down) else level
        to = lambda boundary, size: (1 - (float(rate) if real else rate)) * boundary + (float(rate) if real else rate) * size
        if delta > 0:
            up = to(up, delta) if real else math.floor(to(up, delta))
        if delta < 0:
            down = to(down, -delta) if real else math.floor(to(down, -delta))
        state[key] = [level, f, up, down]
        moved.add(level)
    told = next(iters)
    for layer in range(6):
        for e in range(32):
            level, _, up, down = state[layer, e]
            assert told["cache_levels"][layer][e] == level, (layer, e, level)
            assert abs(told["cache_up"][layer][e] - up) < 1e-9 and abs(told["cache_down"][layer][e] - down) < 1e-9, (layer, e)
    assert told["cache"]["name"] == name
    for level in range(K + 1):
        assert told["cache"]["level%d" % level] == sum(s[0] == level for s in state.values())
    assert abs(told["cache"]["up"] - sum(s[2] for s in state.values()) / len(state)) < 1e-9
assert next(iters, None) is None and len(moved) > 2, moved
PYTHON
    done <<'POLICIES'
utility
utility-real
utility:K=2,lambda=0.37,start=1,prefetch=no
POLICIES
}

@test "simulation decides over the same routes as the store did" {
    text="-q -m pocket.moe -n 24 -d ngram -K 5 prompts.jsonl"
    moe-profile $text -o r.moes
    while read -r live alone; do
        moe-decode $text --cache-experts 30% --cache-policy $live --stream s.moes > /dev/null
        moe-view --json s.moes | jq -c 'select(.type == "iter") | [.cache_hits, .cache_misses, (.cache | del(.name))]' > want
        moe-bench simulate --cache-policy $alone --cached 0.2968 -K 5 --iterations --json r.moes > told.jsonl
        jq -c 'select(.type == "forward" and (.prompt | not)) | [.hits, .misses, (.cache | del(.name))]' told.jsonl | diff - want
        [ "$(wc -l < want)" -gt 20 ]
        [ "$(jq -s 'map(.[0]) | add' want)" = "$(jq 'select(.type == "cache").hits' told.jsonl)" ]
    done <<'POLICIES'
lru lru
lru-global lru-global
lfu lfu
hot:half=20 hot:half=20
ahead lru
utility:prefetch=no utility
utility-real:prefetch=no utility-real
POLICIES
    moe-bench simulate --cache-policy lru --cache-policy belady --cached 0.3 r.moes | grep '^SIMULATED: caches of 58 of 192 experts'
    moe-bench simulate --cache-policy lru --cache-policy belady --cached 0.3 --json r.moes | jq -e -s '.[1].hits > .[0].hits and .[0].wanted == .[1].wanted'
    while IFS='|' read -r options said; do
        run moe-bench simulate $options
        assert_trouble moe-bench
        [[ $output == *"$said"* ]] || { echo "$output"; return 1; }
    done <<'LINES'
--cache-policy lru --cached 0.3|--cache-policy: no routes to simulate
--cache-policy lru r.moes|add --cached SHARE
--cache-policy lru --cached 0.3 --iterations r.moes|its output is JSON lines; add --json
--cache-policy lru --cached 0.3 --forecasts r.moes|leave out this option or --forecasts
--cache-policy static --cached 0.3 r.moes|static: no experts to pin are given
--cache-policy lru --cached 0.001 r.moes|--cached 0.001: fast memory would hold 0 of 192 experts, but one token uses 4; give at least 0.021
--cache-policy lru --cached 0.3 --host-cached 0 r.moes|--host-cached 0: fast memory would hold 0 of 192 experts
--iterations r.moes|applies to cache policies; add --cache-policy
LINES
}

@test "drafts on the model's own routes forecast those of all tokens that they went through" {
    make_still
    moe-decode -q -m still.moe -n 1 -p a --stream s.moes > /dev/null
    moe-view --json s.moes | jq -s '.[0].model | {skip: 1, model: {name, index: .index_sha256, source: .source_sha256,
        tokenizer: .tokenizer_sha256, layers}, attention: [1, 3], ffn: [], matchness: 1, window: 50}' > skip.json
    # A copy's experts are mapped; the model's own are in slots that drafting fills, too. Here attention adds nothing.
    while read -r model drafts; do
        moe-profile -q -m $model -n 24 --ignore-eos -p 'def add(a, b):' -d $drafts -K 3 -o r.moes
        moe-view --json r.moes > r.jsonl
        for policy in lru ahead; do
            moe-decode -q -m $model -n 24 --ignore-eos -p 'def add(a, b):' -d $drafts -K 3 --cache-experts 17% \
                --cache-policy $policy --prefetch draft --stream s.moes > /dev/null
            moe-view --json s.moes > s.jsonl
            "$PYTHON" - <<'PYTHON'
import json
read = lambda name, kind: [r for r in map(json.loads, open(name)) if r["type"] == kind]
told = [[i["cache_named"], i["cache_right"], i["cache_scored"]] for i in read("s.jsonl", "iter")]
want = []
for forward in read("r.jsonl", "route"):
    if forward["phase"] == "prompt":
        continue
    rows, union = forward["experts"], lambda rows: {(layer, e) for row in rows for layer in range(6) for e in row[layer]}
    want.append([len(union(rows[:-1])), len(union(rows[:-1])), len(union(rows))])
assert len(told) > 4 and told == want, (told, want)
PYTHON
        done
    done <<'DRAFTS'
pocket.moe self:experts=pocket.moe
still.moe self:skip=skip.json
DRAFTS
}

@test "without io_uring threads read, and -v reports it" {
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

@test "invalid settings are refused in one line" {
    while IFS='|' read -r options said; do
        run moe-decode -q -m pocket.moe $options -p a
        assert_trouble moe-decode
        [[ $output == *"$said"* ]] || { echo "$output"; return 1; }
    done <<'LINES'
--cache-experts 100K|--cache-experts 100K: has room for 1 of 192 experts, but one token uses 4 in a layer; give at least 294912 bytes
--cache-experts 1%|has room for 1 of 192 experts, but one token uses 4
--cache-experts 101%|'101%' is not a share; give one from 0% to 100%
--cache-experts many|--cache-experts: 
--cache-experts %|--cache-experts: 
--cache-experts 50% --cache-policy best|--cache-policy: 'best' is not a policy here; there are static, hot, lru, lru-global, lfu, ahead, utility, utility-released and utility-real
--cache-experts 50% --cache-policy belady|'belady' is not a policy here
--cache-experts 50% --cache-policy static|no experts to keep are given; write static:rank=FILE, or add --hot-set FILE
--cache-experts 50% --cache-policy static:rank=plain.txt|plain.txt: 
--cache-experts 50% --cache-policy static:rank=none|none: 
--cache-experts 50% --cache-policy static:rank=plain.txt --hot-set h|leave one of the two out
--cache-experts 50% --cache-policy lru --hot-set h|lru does not use --hot-set; choose hot or static
--cache-experts 50% --hot-set plain.txt|expected a hot set
--cache-experts 50% --hot-set -|--hot-set: standard input cannot be used, because the file is read and written
--hot-set h|--hot-set: no experts are cached; add --cache-experts
--cache-experts 50% --prefetch draft|--prefetch draft: needs a drafter with the model's own router
--cache-experts 50% --prefetch draft -d ngram|--prefetch draft: needs a drafter with the model's own router
--cache-experts 50% --prefetch next|--prefetch: 'next' is not a source of prefetching; did you mean
--cache-experts 50% --prefetch popular:file=x|--prefetch: popular: unknown setting file
--cache-experts 50% --prefetch table:file=none|none: 
--cache-experts 50% --prefetch table:file=plain.txt|plain.txt: 
--cache-experts 50% --prefetch forced|--prefetch forced: needs routes that are known in advance
--cache-policy lru|no experts are cached; add --cache-experts
--host-experts 50%|no experts are cached; add --cache-experts
--cache-experts 50% --host-experts 50%|computes in the host's memory, so --cache-experts sets the experts there
--device ref --cache-experts 50% --host-experts 100K|--host-experts 100K: has room for 1 of 192 experts
--device ref --cache-experts 50% --host-experts some|--host-experts: 
--prefetch draft|no experts are cached; add --cache-experts
LINES
    moe-decode -q -m pocket.moe -n 2 --cache-experts 50% --hot-set hot.json -p a > /dev/null
    jq '.model.experts = 64' hot.json > wider.json
    jq '.model.source = "00"' hot.json > other.json
    for set in wider other; do
        cp $set.json before.json
        run moe-decode -q -m pocket.moe --cache-experts 50% --hot-set $set.json -p a
        assert_trouble moe-decode
        [[ $output == *"$set.json: this hot set is for "* ]]
        cmp before.json $set.json
    done
    ln draft.moe dense.moe
    run moe-decode -q -m dense.moe --cache-experts 50% -p a
    assert_trouble moe-decode
    [[ $output == *"dense.moe has no routed experts to keep in memory"* ]]
    cp pocket.moe cut.moe
    truncate -s 3M cut.moe
    run moe-decode -q -m cut.moe --cache-experts 50% -p a
    assert_trouble moe-decode
}

@test "a file that shrinks while it is read is reported in one line, without a signal" {
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
        grep -q 'shrinks.moe: ends at byte [0-9]*, but [0-9]* bytes are needed: the file was truncated while it was read' said
    done
}

@test "two processors: each tau of the balancer equals that of a search over the records" {
    moe-decode -q --device ref -m pocket.moe -n 12 --ignore-eos -d self:exit=2 -K 3 -p 'def add(a, b):' --cache-experts 30% \
        --cache-policy utility --split balance:warm-up=3 --stream s.moes --record route > /dev/null
    moe-view --json s.moes > s.jsonl
    jq -e -s '.[0].labels["not lossless"] == "balance split of experts"' s.jsonl
    "$PYTHON" - <<'END'
import json
lines = [json.loads(line) for line in open("s.jsonl")]
model, iters = lines[0]["model"], [line for line in lines if line["type"] == "iter"]
flat = lambda x: [z for y in x for z in flat(y)] if isinstance(x, list) else [x]
assert len(iters) > 5 and all(t == 1 for i in iters[:3] for t in i["split_tau"])
pairs = [sum(i["split_host_pairs"]) for i in iters], [sum(i["split_device_pairs"]) for i in iters]
assert sum(pairs[0]) and sum(pairs[1]), pairs
# Residency decides: the device computes its resident experts, except those that are still being read.
shares = [(sum(i["split_device_experts"]), i["cache_hits"]) for i in iters]
assert all(device <= hits for device, hits in shares) and sum(d for d, _ in shares) > .8 * sum(h for _, h in shares), shares
seen = set()
for i, after in zip(iters[3:], iters[4:]):
    levels, unit = i["split_levels"], i["split"]
    assert not unit["warms_up"] and unit["pair_us"] > 0 and unit["copy_us"] > 0 and unit["draft_us"] > 0
    fetches, r_c, r_g = flat(i["split_fetches"]), flat(i["split_host_share"]), flat(i["split_device_share"])
    for layer in range(model["moe_layers"]):
        at = lambda a, tau: a[layer * levels + tau]
        wanted = i["split_device_experts"][layer] + i["split_host_experts"][layer]
        cpu = lambda tau: at(r_c, tau) * 3 * model["top_k"] * unit["pair_us"]
        gpu = lambda tau: at(r_g, tau) * wanted * unit["expert_us"]
        window = lambda tau: max(cpu(tau), gpu(tau)) + 3 * unit["draft_us"] / model["layers"]
        fits = [tau for tau in range(1, levels) if at(fetches, tau) * unit["copy_us"] <= window(tau) * (1 + 1e-9)
                and at(fetches, tau) <= i["split_cold"][layer]]
        far = {tau: abs(cpu(tau) - gpu(tau)) for tau in fits}
        tau = after["split_tau"][layer]
        assert tau == levels - 1 if not fits else tau in far and far[tau] <= min(far.values()) * (1 + 1e-9), (layer, tau, far)
        seen.add(tau)
        if tau > 1:
            assert at(r_c, tau) >= at(r_c, 1) and at(r_g, tau) <= at(r_g, 1)
assert seen
END
}
