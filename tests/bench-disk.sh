#!/bin/sh
# Decoding with experts on disk: `make bench-disk` calls it, optionally with the MiB of experts (4000), the rounds (5) and the
# shape: pocket, the inflated pocket model, or olmoe, random weights of OLMoE-1B-7B's shape with as many layers as fit. Each
# round measures alternately the disk without the page cache, the model mapped, all experts cached, and 17 % of them, read on
# demand and, because the routes are forced, in advance. The yardstick of an iteration is the larger of its compute, which is
# that of the mapped model, and its missed bytes at the bandwidth of similar reads (tests/bench/disk.c). Text, drafts and routes
# are a recording of the model, of the pocket model with prompt lookup, of random weights with a draft by their own first
# layers; the text is the second of two equal ones, so that the cache is warm.
. tests/bench/common.sh
mib=${1:-4000}
rounds=${2:-5}
shape=${3:-pocket}
model=$out/$shape-disk-$mib.moe
routes=$out/disk-routes-$shape-$mib.moes
prompts=$out/disk-prompts.jsonl
text="-n 48 --ignore-eos -K 7"

once "$out/pocket.moe" moe-convert -q "$pocket/model"
for again in 1 2; do
    moe-decode -q -m "$out/pocket.moe" -n 1 -p 'def add(a, b):' --stream - 2> /dev/null | moe-view --json |
        jq -c 'select(.type == "begin") | {tokens: .prompt}'
done > "$prompts"
case $shape in
pocket)
    expert=$((mib * 1048576 / 192))
    once "$model" moe-convert inflate -q --expert-ffn $((expert / 1152)) "$out/pocket.moe"
    recorded="-m $out/pocket.moe -d ngram"
    ;;
olmoe)
    expert=$((3 * 2048 * 1024 * 2))
    once "$model" moe-convert synthetic -q --like olmoe-1b-7b -l $((mib * 1048576 / 64 / expert))
    recorded="-m $model -d self:exit=1"
    ;;
*)
    echo "bench-disk: shape $shape: want pocket or olmoe" >&2
    exit 2
    ;;
esac
# shellcheck disable=SC2086
[ -e "$routes" ] || moe-decode -q $threads $recorded $text --record drafts --stream "$routes" "$prompts" > /dev/null

# decode NAME ROUND OPTIONS...: adds milliseconds, bytes read and milliseconds stalled per iteration to $out/disk.txt.
decode() {
    name=$1 round=$2
    shift 2
    # shellcheck disable=SC2086
    moe-decode -q $threads -m "$model" $text --force-routes "$routes" --force-accept "$routes" "$@" \
        --stream "$out/disk.moes" "$prompts" > "$out/disk-$name.text"
    cmp "$out/disk-mapped.text" "$out/disk-$name.text"
    moe-view --json "$out/disk.moes" | jq -r -s --arg name "$name" --arg round "$round" '[.[] | select(.type == "iter" and .sequence == 1)] |
        (length as $n | [$name, $round, (map(.draft_us + .verify_us + .accept_us + .other_us) | add / $n / 1000),
        (map(.cache_read_bytes // 0) | add / $n), (map(.cache_stall_us // 0) | add / $n / 1000)]) | @tsv' >> "$out/disk.txt"
}

: > "$out/disk.txt"
for round in $(seq "$rounds"); do
    cat "$model" > /dev/null                                # the mapped model is in memory when it is timed
    decode mapped "$round"
    decode all "$round" --cache-experts 100%
    decode wanted "$round" --cache-experts 17%
    printf 'disk\t%d\t%s\t0\t0\n' "$round" "$(disk "$model" "$expert" 64)" >> "$out/disk.txt"
    decode forced "$round" --cache-experts 17% --prefetch forced
done

say "iterations of $(basename "$model" .moe) (MiB, forced routes), median of $rounds rounds; load $(cut -d' ' -f1 /proc/loadavg)"
python3 - "$out/disk.txt" <<'TABLE'
import statistics, sys
rows = {}
for line in open(sys.argv[1]):
    name, _, *values = line.split()
    rows.setdefault(name, []).append([float(v) for v in values])
disk, compute = [r[0] for r in rows["disk"]], [r[0] for r in rows["mapped"]]
print(f"disk: {statistics.median(disk) / 1e9:.2f} GB/s, from {min(disk) / 1e9:.2f} to {max(disk) / 1e9:.2f}")
print(f"{'':8}{'ms':>10}{'MB read':>10}{'stalled':>10}{'bound':>10}{'ratio':>8}{'least':>8}{'most':>8}")
for name in "mapped", "all", "wanted", "forced":
    ratios = [ms / max(c, 1e3 * read / d) for (ms, read, _), c, d in zip(rows[name], compute, disk)]
    ms, read, stalled = (statistics.median(column) for column in zip(*rows[name]))
    bound = max(statistics.median(compute), 1e3 * read / statistics.median(disk))
    print(f"{name:8}{ms:10.1f}{read / 1e6:10.1f}{stalled:10.1f}{bound:10.1f}{statistics.median(ratios):8.2f}"
          f"{min(ratios):8.2f}{max(ratios):8.2f}")
TABLE
