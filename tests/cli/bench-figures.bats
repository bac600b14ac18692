#!/usr/bin/env bats
# Figures of moe-bench report: the drawing of six settings, and the effect of --task and --setting.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    cp "$MOE_POCKET" pocket.moe
    for task in math code; do grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2; done > prompts.jsonl
    cat > suite.json <<'SUITE'
{ "model": "pocket.moe", "prompts": "prompts.jsonl", "options": {"max-tokens": 40}, "measure-seconds": 0,
  "settings": [
    {"name": "none"}, {"name": "ngram", "draft": "ngram", "vary": {"draft-length": [8, 2, 4]}},
    {"name": "auto", "draft": "ngram", "draft-length": "auto"},
    {"name": "tree", "draft": "ngram", "tree": "dynamic:total=16"}] }
SUITE
    moe-bench run -q suite.json -o figures.moes
}

setup() { cd "$WORK"; }

figure() { moe-bench report --window 5 --figure "$@" figures.moes; }

@test "accepted tokens after the end of an answer are not counted" {
    for task in math code extract summ; do grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 6; done > ends.jsonl
    echo '{"model": "pocket.moe", "prompts": "ends.jsonl", "options": {"max-tokens": 40, "stop": [","]}, "measure-seconds": 0,
           "settings": [{"name": "K", "draft": "ngram", "draft-length": 8}]}' > ends.json
    moe-bench run -q ends.json -o ends.moes
    kept=$(moe-view --json ends.moes | jq -s '[.[] | select(.type == "iter") | [.accepted, .emitted] | min] | add')
    [ "$kept" -lt "$(moe-view --json ends.moes | jq -s '[.[] | select(.type == "iter") | .accepted] | add')" ]
    moe-bench report --json ends.moes | jq -s -e --argjson kept "$kept" \
        'map(select(.type == "row" and .task == null)) | length == 1 and all(.accepted_tokens == $kept and
         (.acceptance_length - 1 - $kept / .drafts | fabs) < 1e-9)'
}

@test "--task and --setting filter every figure" {
    for kind in utility prediction times quality nodes; do
        figure $kind --json --task math --setting 'ngram*' > narrowed.jsonl
        jq -s -e 'map(select(.setting)) | length > 0 and
                  all(.task == "math" and (.setting | startswith("ngram")))' narrowed.jsonl
        figure $kind --json | jq -c . > whole.jsonl
        # the selection shows values computed from all
        [ "$(jq -c 'select(.setting)' narrowed.jsonl | grep -vxFf whole.jsonl | wc -l)" = 0 ]
        figure $kind --svg --task math > figure.svg
        python3 -c 'import xml.dom.minidom as m; m.parse("figure.svg")'
    done
    [ "$(figure prediction --json --setting 'ngram*' | jq 'select(.type == "fit") | .points')" = 6 ]
    run figure times --task nosuch
    assert_trouble moe-bench
    run figure times --sort ratio
    assert_trouble moe-bench
}

@test "figures are as wide as a column, and each setting has a mark of its own" {
    for kind in utility prediction times quality nodes; do
        figure $kind --svg > $kind.svg
        [[ $(head -c 120 $kind.svg) == *' width="444" '* ]]
    done
    # panels: one per task and one over all, not one per task and setting; those of a single setting as in the papers
    [ "$(grep -c '>iteration of the text<' utility.svg)" = 3 ]
    [ "$(figure utility --setting tree --svg | grep -c 'tree, ')" -ge 4 ]
    # a legend shared by all panels is drawn once, and a setting has the same mark in all of them, also where it has no curve
    for kind in utility nodes; do
        [ "$(grep -c '>auto</text>' $kind.svg)" = 1 ]
    done
    # a legend with many names and the list of settings that are not lossless are broken into lines at a readable size
    moe-bench run -q -m pocket.moe -d ngram -K 0,2,4 -B 6,7,8,9,10 -n 12 --measure-seconds 0 prompts.jsonl -o budgets.moes
    moe-bench report --svg budgets.moes > page.svg
    [[ $(head -c 120 page.svg) == *' width="444" '* ]]
    [ "$(grep -o 'font-size="[0-9]*"' page.svg | tr -dc '0-9\n' | sort -n | head -n 1)" -ge 11 ]
    # experts against nodes: lengths form one line from left to right, other settings are single marks
    [ "$(figure nodes --json --task all | jq -r .series | sort | uniq -c | awk '{ print $1, $2 }' | paste -sd ,)" = \
      "1 auto,3 ngram,1 none,1 tree" ]
    python3 - <<'PYTHON'
import re
body = open("nodes.svg").read()
panel = body.split("</g>")[0]
lines = [re.findall(r"[ML]([\d.]+) ", d) for d in re.findall(r'<path fill="none" [^>]* d="([^"]*)"', panel)]
assert len(lines) == 1 and len(lines[0]) == 3, lines
assert [float(x) for x in lines[0]] == sorted(float(x) for x in lines[0]), lines
marks = re.findall(r'd="M[\d.]+ [\d.]+(m[^"]*)" fill="([^"]*)" stroke="#000" stroke-width="1.3"', panel)
assert len(set(marks)) == 4, marks
sizes = [int(s) for s in re.findall(r'font-size="(\d+)"', panel)]
assert min(sizes) >= 11, sizes
PYTHON
}
