#!/usr/bin/env bats
# Every recipe of docs/cookbook.md runs as written, in one folder and in order, with the pocket model in place of the published
# models.

load common

# Writes the blocks of the page to 01.sh, 02.sh, ... in order.
extract() {
    awk '/^```sh$/ { file = sprintf("%02d.sh", ++number); next } /^```$/ { close(file); file = ""; next }
        file != "" { print > file }' "$top/docs/cookbook.md"
}

@test "every recipe of the cookbook runs as written" {
    [ -z "$MOE_SANITIZED" ] || skip "the man pages' examples run under sanitisers"
    cd "$BATS_TEST_TMPDIR"
    cp -r "$MOE_MODELS/pocket/model" Qwen3-30B-A3B
    cp -r "$MOE_MODELS/pocket/draft" Qwen3-0.6B
    ln -s "$MOE_MODELS/pocket/heads/eagle3" eagle3
    head -n 3 "$MOE_MODELS/pocket/calib.jsonl" > calib.jsonl
    for task in math code extract; do grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2; done > prompts.jsonl
    extract
    [ "$(ls [0-9][0-9].sh | wc -l)" -ge 11 ]            # the downloads and ten recipes
    for script in [0-9][0-9].sh; do
        if grep -q '^hf download' "$script"; then continue; fi          # needs the network
        bash -e "$script" > "$script.out" 2> "$script.err" || { echo "$script:"; cat "$script" "$script.err"; return 1; }
    done
    grep -q byte-identical 0[0-9].sh.out
}
