#!/bin/sh
# The sweep that determined the default of --cache-policy. `make bench-cache-policies` calls it; SHARES='15 30' and SKEWS='flat
# local' select a part. Replays recorded routes of the pocket model (no draft, ngram K=7, EAGLE-3's tree) and synthetic routes
# of Qwen3-30B-A3B's shape (without drafts and with drafts of 7, for each skew of moe-bench simulate) under every policy that
# needs no future, and prints one Markdown table: the hits of each policy in percent, then the mean over all rows, and the
# largest distance to the best policy of a row in points. Counts, not times, so all machines give the same. About 2 minutes.
. tests/bench/common.sh
shares=${SHARES:-15 30 50}
skews=${SKEWS:-flat mild steep local}
policies='lru lru-global lfu hot hot:half=100 ahead utility utility-real belady'
machine=tests/bench/machines/rtx4090-qwen3-30b-a3b.json
work=$out/cache-policies
mkdir -p "$work"

once "$out/pocket.moe" moe-convert -q "$pocket/model"
once "$out/eagle3.moe" moe-convert head -q "$pocket/heads/eagle3" --target "$out/pocket.moe"
head -n 8 "$pocket/heldout.jsonl" > "$work/prompts.jsonl"
text="-q -m $out/pocket.moe -n 64 --ignore-eos $work/prompts.jsonl"
once "$work/pocket, no draft.moes" moe-profile $text
once "$work/pocket, ngram K=7.moes" moe-profile $text -d ngram -K 7
once "$work/pocket, EAGLE-3 tree.moes" moe-profile $text -d "head:file=$out/eagle3.moe"
for skew in $skews; do
    for length in 0 7; do
        once "$work/Qwen3, $skew, K=$length.moes" sh -c 'moe-bench simulate -q --machine "$1" --skew "$2" -K "$3" \
            --texts 2 -n 256 --system static-split-draft -o /dev/null --keep-routes "$5"' made "$machine" "$skew" "$length"
    done
done

for routes in "$work"/*.moes; do
    for share in $shares; do
        # shellcheck disable=SC2046
        moe-bench simulate --json --cached ".$share" -K 7 $(printf -- '--cache-policy %s ' $policies) "$routes" |
            jq -c --arg routes "$(basename "$routes" .moes)" --arg share "$share" \
                '{routes: $routes, share: $share, policy: .cache_policy, hits, wanted}'
    done
done | tee "$work/hits.jsonl" | jq -rs '
    def percent: 1000 * . | round / 10;
    (map(.policy) | reduce .[] as $p ([]; if index([$p]) then . else . + [$p] end)) as $policies |
    group_by([.routes, .share]) | map({row: "\(.[0].routes), \(.[0].share) %",
        hits: (map({key: .policy, value: (.hits / .wanted)}) | from_entries)}) |
    ("| routes, cached | " + ($policies | join(" | ")) + " |"), ("|---|" + ($policies | map("---|") | add)),
    (.[] | "| \(.row) | " + ([.hits[$policies[]] | percent] | join(" | ")) + " |"),
    ("| mean | " + ([$policies[] as $p | (map(.hits[$p]) | add / length | percent)] | join(" | ")) + " |"),
    ("| furthest below the best but belady, points | " +
     ([$policies[] as $p | (map((.hits | del(.belady) | [.[]] | max) - .hits[$p]) | max | percent)] | join(" | ")) + " |")'
