#!/bin/sh
# Compares the simulator with this machine's disk tier. `make bench-simulated` calls it, optionally with the MiB of the inflated
# pocket model (600), the rounds (5) and the caches, each SHARE:POLICY or SHARE:POLICY:PREFETCH (0.17:lru 0.35:lru 0.17:lfu
# 0.17:utility:utility 0.35:lru:last); prefetching may use popular, last, table and utility, which follow from routes. It
# measures reads of one expert's size without the page cache, and iterations with all experts in memory, to which
# tests/bench/measured_machine.py fits the costs of a layer, an expert, a token and a drafted token: the description of a
# machine. The same policy is then simulated on that machine, over the routes of the run that is timed alternately with the
# measurements: no run with a cache contributes to the description. Goal: tokens per second within 10 %, on a machine without
# other load.
. tests/bench/common.sh
mib=${1:-600}
rounds=${2:-5}
caches=${3:-0.17:lru 0.35:lru 0.17:lfu 0.17:utility:utility 0.35:lru:last}
model=$out/pocket-disk-$mib.moe
bytes=$((mib * 1048576 / 192))
prompts=$out/prompts-simulated.jsonl
text="-n 32 --ignore-eos -d ngram -K 7"

once "$out/pocket.moe" moe-convert -q "$pocket/model"
once "$model" moe-convert inflate -q --expert-ffn $((bytes / 1152)) "$out/pocket.moe"
head -n 4 "$pocket/heldout.jsonl" > "$prompts"
moe-profile -q -m "$out/pocket.moe" $text -o "$out/simulated-routes.moes" "$prompts"

# iterations NAME SHARE ROUND POLICY PREFETCH: writes a summary of each iteration as a line of $out/simulated-NAME.jsonl
iterations() {
    moe-decode -q $threads -m "$model" $text --cache-experts "$2%" --cache-policy "$4" ${5:+--prefetch "$5"} \
        --stream "$out/simulated.moes" "$prompts" > "$out/simulated-$1.text"
    moe-view --json "$out/simulated.moes" | jq -c --arg round "$3" 'select(.type == "iter") | {round: $round, sequence, nodes, emitted,
        experts_loaded, draft_us, verify_us, us: (.draft_us + .verify_us + .accept_us + .other_us), cache_misses, cache_read_bytes,
        cache_prefetched_bytes, cache_stall_us}' >> "$out/simulated-$1.jsonl"
}

# parts CACHE: sets $share, $policy, $prefetch and the simulated $system from SHARE:POLICY:PREFETCH
parts() {
    share=${1%%:*} policy=${1#*:} prefetch=
    case $policy in *:*) prefetch=${policy#*:} policy=${policy%%:*} ;; esac
    system=$policy-fetch                                    # lru, lfu and utility have one
}

rm -f "$out"/simulated-*.jsonl "$out/simulated-reads.txt"
for round in $(seq "$rounds"); do
    for reads in 1 2 4 8 16 32; do
        printf '%d %d %s\n' "$round" $reads "$(disk "$model" "$bytes" $reads bursts)" >> "$out/simulated-reads.txt"
    done
    iterations all 100 "$round" lru
    for cache in $caches; do
        parts "$cache"
        iterations "$cache" "$(jq -n "100 * $share")" "$round" "$policy" "$prefetch"
        cmp "$out/simulated-all.text" "$out/simulated-$cache.text"
    done
done

say "the disk tier, really and simulated: $mib MiB, $rounds rounds; load average $(cut -d' ' -f1-3 /proc/loadavg)"
for cache in $caches; do
    parts "$cache"
    python3 tests/bench/measured_machine.py "$out" "$bytes" "$share" > "$out/simulated-machine.json"
    moe-bench simulate --machine "$out/simulated-machine.json" --system "$system" ${prefetch:+--prefetch "$prefetch"} --json "$out/simulated-routes.moes" \
        > "$out/simulated-result.jsonl"
    for round in $(seq "$rounds"); do
        python3 tests/bench/measured_machine.py --compare "$out" "$round" "$cache"
    done | tee "$out/simulated.txt"
    sed 's/.*ratio \([0-9.]*\);.*/\1/' "$out/simulated.txt" | sort -n |
        awk -v cache="$cache" '{ ratio[NR] = $1 }
             END { printf "%s: median ratio %.3f, from %.3f to %.3f\n", cache, (ratio[int((NR + 1) / 2)] + ratio[int(NR / 2) + 1]) / 2, ratio[1], ratio[NR] }'
done
jq -c '{link, fast}' "$out/simulated-machine.json"
