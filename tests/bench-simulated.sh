#!/bin/sh
# The simulator beside this machine's disk tier: `make bench-simulated` calls it, with the MiB of the inflated pocket model (600),
# the rounds (5) and the share cached (0.17) if wanted. Measured are reads of one expert's size past the page cache, and
# iterations with all experts in memory, to which tests/bench/measured_machine.py fits what a layer, an expert, a token and a
# drafted token take. That describes a machine; on it lru is simulated over the routes of the very run that is timed in turns
# with the measurements. Goal: tokens a second within 10 %, on a machine that does nothing else.
. tests/bench/common.sh
mib=${1:-600}
rounds=${2:-5}
cached=${3:-0.17}
model=$out/pocket-disk-$mib.moe
bytes=$((mib * 1048576 / 192))
prompts=$out/simulated-prompts.jsonl
text="-n 32 --ignore-eos -d ngram -K 7"

once "$out/pocket.moe" moe-convert -q "$pocket/model"
once "$model" moe-convert inflate -q --expert-ffn $((bytes / 1152)) "$out/pocket.moe"
head -n 4 "$pocket/heldout.jsonl" > "$prompts"
moe-profile -q -m "$out/pocket.moe" $text -o "$out/simulated-routes.moes" "$prompts"

# iterations NAME SHARE ROUND: what is left of each iteration that is a line of $out/simulated-NAME.jsonl.
iterations() {
    moe-decode -q $threads -m "$model" $text --cache-experts "$2%" --cache-policy lru --stream "$out/simulated.moes" "$prompts" \
        > "$out/simulated-$1.text"
    moe-view --json "$out/simulated.moes" | jq -c --arg round "$3" 'select(.type == "iter") | {round: $round, sequence, nodes, emitted,
        experts_loaded, draft_us, verify_us, us: (.draft_us + .verify_us + .accept_us + .other_us), cache_misses}' >> "$out/simulated-$1.jsonl"
}

rm -f "$out"/simulated-all.jsonl "$out"/simulated-disk.jsonl "$out/simulated-reads.txt"
for round in $(seq "$rounds"); do
    for depth in 1 64; do
        printf '%d %d %s\n' "$round" $depth "$(disk "$model" "$bytes" $depth)" >> "$out/simulated-reads.txt"
    done
    iterations all 100 "$round"
    iterations disk "$(jq -n "100 * $cached")" "$round"
done
cmp "$out/simulated-all.text" "$out/simulated-disk.text"

say "lru on the disk tier, really and simulated: $mib MiB, $cached cached, $rounds rounds; load average $(cut -d' ' -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
    python3 tests/bench/measured_machine.py "$out" "$round" "$bytes" "$cached" > "$out/simulated-machine.json"
    moe-bench simulate --machine "$out/simulated-machine.json" --system lru-fetch --json "$out/simulated-routes.moes" \
        > "$out/simulated-result.jsonl"
    python3 tests/bench/measured_machine.py --compare "$out" "$round"
done | tee "$out/simulated.txt"
# What else the machine does can only slow it down.
sed 's/.*: \([0-9.]*\) tok.s, simulated \([0-9.]*\), ratio \([0-9.]*\).*/\3 \1 \2/' "$out/simulated.txt" | sort -n |
    awk '{ ratio[NR] = $1; real = $2 > real ? $2 : real; told = $3 > told ? $3 : told }
         END { printf "median ratio %.3f; fastest %.2f tok/s, fastest simulated %.2f, ratio %.3f\n", ratio[int((NR + 1) / 2)], real, told, told / real }'
