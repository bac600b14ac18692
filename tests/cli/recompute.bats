#!/usr/bin/env bats
# Every figure and table of a report recomputed from the saved stream by another program, over streams of every kind.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR" PYTHON
    PYTHON=$(python_with_numpy)
    cd "$WORK"
    cp "$MOE_POCKET" pocket.moe
    moe-convert -q "$MOE_MODELS/pocket/draft" -o draft.moe
    for task in math code extract summ; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 2
    done > prompts.jsonl
    # The first prompt of each task, when few tables are needed.
    awk 'NR % 2 == 1' prompts.jsonl > few.jsonl
}

setup() { cd "$WORK"; }

# Both forms of the report on this stream.
again() {
    moe-bench report --json "$1" > report.jsonl
    moe-bench report --markdown "$1" > report.md
    "$PYTHON" "$BATS_TEST_DIRNAME/../bench/recompute.py" "$1" report.jsonl report.md
}

suite() {
    cat > suite.json
    moe-bench run -q suite.json -o "$1"
}

@test "trees, budgets of every ranking, policies, two models" {
    suite kinds.moes <<'SUITE'
{ "models": {"p": "pocket.moe", "d": "draft.moe"}, "prompts": "prompts.jsonl", "options": {"max-tokens": 16},
  "measure-seconds": 0,
  "settings": [
    {"name": "none"},
    {"name": "tree", "draft": "model:file=draft.moe", "tree": "dynamic:total=12,depth=4,topk=3", "overlap": true},
    {"name": "router", "draft": "ngram", "draft-length": 3, "budget": 8, "reference": "self", "reconstruction": true},
    {"name": "path", "draft": "model:file=draft.moe", "tree": "dynamic:total=12,depth=4,topk=3", "budget": 8, "rank": "path",
     "reference": "self"},
    {"name": "oracle", "draft": "ngram", "draft-length": 3, "budget": 6, "rank": "oracle"},
    {"name": "cascade", "draft": "ngram", "policy": "cascade"},
    {"name": "two", "draft": ["ngram", "model:file=draft.moe"]},
    {"name": "evict", "draft": "model:file=draft.moe", "tree": "dynamic:total=12,depth=4,topk=3",
     "policy": "threshold:rate=0,explore=1,calibrated=1"},
    {"name": "verify", "draft": "ngram", "policy": "dytc-verify:explore=1"},
    {"name": "other", "model": "d"}, {"name": "other 3", "model": "d", "draft": "ngram", "draft-length": 3}
  ] }
SUITE
    again kinds.moes
    # With rate=0 the first draft is verified completely; whether others follow depends on measured times.
    jq -se '[.[] | select(.type == "row" and .setting == "evict")] | all(.stated == .estimated) and any(.estimated > 0)' report.jsonl
    # A wrong table is detected, by one cell or a row.
    sed '/^| math *| tree /s/|\([^|]*\)|\([^|]*\)|$/|\2|\1|/' report.md > wrong.md
    run "$PYTHON" "$BATS_TEST_DIRNAME/../bench/recompute.py" kinds.moes report.jsonl wrong.md
    [ "$status" = 1 ]
    sed '0,/^| math *| tree /{/^| math *| tree /d}' report.md > wrong.md
    run "$PYTHON" "$BATS_TEST_DIRNAME/../bench/recompute.py" kinds.moes report.jsonl wrong.md
    [ "$status" = 1 ]
}

@test "temperature 1 with fresh draws, three repetitions, acceptance by rejection" {
    suite draws.moes <<'SUITE'
{ "model": "pocket.moe", "prompts": "few.jsonl", "options": {"max-tokens": 16, "temperature": 1, "seed": 5},
  "measure-seconds": 0, "repetitions": 3, "draws": "fresh",
  "settings": [
    {"name": "none"}, {"name": "ngram", "draft": "ngram", "draft-length": 4, "overlap": true},
    {"name": "rejection", "draft": "model:file=draft.moe", "draft-length": 3, "accept": "rejection"},
    {"name": "tree", "draft": "model:file=draft.moe", "tree": "dynamic:total=12,depth=4,topk=3"},
    {"name": "budget", "draft": "ngram", "draft-length": 2, "budget": 8, "reference": "self"}
  ] }
SUITE
    again draws.moes
}

@test "forced routes and acceptance, a decode stream, one token, one prompt" {
    moe-decode -q -m pocket.moe -d model:file=draft.moe -K 4 -n 16 --record drafts --stream rec.moes -o rec.txt prompts.jsonl
    again rec.moes
    moe-view --json rec.moes | jq -c 'select(.type == "begin") | {id, task, tokens: .prompt}' > ids.jsonl
    moe-convert synthetic -q --like "$MOE_MODELS/pocket/model/config.json" --dtype f32 --seed 4 -o random.moe
    suite forced.moes <<'SUITE'
{ "model": "random.moe", "prompts": "ids.jsonl", "options": {"max-tokens": 12}, "measure-seconds": 0, "settings": [
    {"name": "free"},
    {"name": "forced", "force-routes": "rec.moes", "force-accept": "rec.moes", "draft-length": 4},
    {"name": "forced 0", "force-routes": "rec.moes", "force-accept": "rec.moes", "draft-length": 0}
  ] }
SUITE
    again forced.moes
    suite one.moes <<'SUITE'
{ "model": "pocket.moe", "prompts": "prompts.jsonl", "options": {"max-tokens": 1}, "limits": {"prompts": 1},
  "measure-seconds": 0, "settings": [{"name": "none"}, {"name": "K4", "draft": "ngram", "draft-length": 4}] }
SUITE
    again one.moes
}

@test "forecasts of experts, scored by source and layer" {
    grep -e '"math"' -e '"summ"' few.jsonl > two.jsonl
    suite forecasts.moes <<'SUITE'
{ "model": "pocket.moe", "prompts": "two.jsonl", "options": {"max-tokens": 16, "forecasts": true}, "measure-seconds": 0,
  "settings": [{"name": "none"}, {"name": "ngram", "draft": "ngram", "draft-length": 3}, {"name": "unscored", "forecasts": false}] }
SUITE
    again() { "$PYTHON" "$BATS_TEST_DIRNAME/../bench/refigure.py" 1 "$@"; }
    moe-bench report --figure forecasts --json forecasts.moes > forecasts.jsonl
    again forecasts.moes forecasts:time:forecasts.jsonl
    jq -e -s '[.[] | select(.type == "forecast") | .source] | unique == ["last","next-layer","pairs","popular","table","utility"]' \
        forecasts.jsonl
    refute grep '"setting":"unscored"' forecasts.jsonl
    sed 's/"named":\([1-9]\)/"named":1\1/' forecasts.jsonl > wrong.jsonl
    refute again forecasts.moes forecasts:time:wrong.jsonl
    moe-bench report --figure forecasts --svg forecasts.moes | grep -c next-layer
    moe-bench report --figure forecasts forecasts.moes | grep -q 'The same by layer'
    # The sources' forecasts for an answer without drafts follow from its routes alone.
    moe-decode -q -m pocket.moe -n 16 --forecasts --stream scored.moes -o scored.txt two.jsonl
    moe-profile -q -m pocket.moe -n 16 two.jsonl -o routes.moes
    "$PYTHON" "$BATS_TEST_DIRNAME/../bench/forecast_steps.py" <(moe-view --json scored.moes) <(moe-view --json routes.moes) \
        > steps
    jq -e '.iterations > 10 and .compared == 4 * .iterations * 6' steps
}

@test "the boundary of useful cascades" {
    grep -e '"math"' -e '"summ"' few.jsonl > two.jsonl
    suite cascades.moes <<'SUITE'
{ "model": "pocket.moe", "prompts": "two.jsonl", "options": {"max-tokens": 24}, "measure-seconds": 0, "settings": [
    {"name": "none"},
    {"name": "horizontal", "draft": ["self:skip=0.4", "model:file=draft.moe", "pld"], "policy": "horizontal"},
    {"name": "vertical", "draft": ["self:skip=0.4", "model:file=draft.moe"], "policy": "vertical"},
    {"name": "trees", "draft": ["self:skip=0.6", "pld"], "policy": "dytc"},
    {"name": "alone", "draft": "ngram"}
  ] }
SUITE
    again() { "$PYTHON" "$BATS_TEST_DIRNAME/../bench/refigure.py" 1 "$@"; }
    for cost in time bytes; do
        moe-bench report --figure boundary --cost $cost --json cascades.moes > boundary-$cost.jsonl
        again cascades.moes boundary:$cost:boundary-$cost.jsonl
    done
    for lies in bottom unknown outside 'inside both'; do
        grep -q "\"lies\":\"$lies\"" boundary-*.jsonl
    done
    refute grep '"setting":"alone"' boundary-time.jsonl
    # a wrong value is detected
    sed 's/"tried":\([1-9]\)/"tried":1\1/' boundary-bytes.jsonl > wrong.jsonl
    refute again cascades.moes boundary:bytes:wrong.jsonl
    # the other forms
    moe-bench report --figure boundary --csv cascades.moes > figure.csv
    [ "$(($(wc -l < figure.csv) - 1))" = "$(grep -c '"type":"drafter"' boundary-time.jsonl)" ]
    moe-bench report --figure boundary --svg cascades.moes > boundary.svg
    "$PYTHON" -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' boundary.svg
    # a filtered report shows values computed from all
    moe-bench report --figure boundary --json --task math --setting vertical cascades.moes > narrowed.jsonl
    [ -s narrowed.jsonl ]
    [ "$(grep -vc '"task":"math".*"setting":"vertical"' narrowed.jsonl)" = 0 ]
    [ "$(grep -vcxFf boundary-time.jsonl narrowed.jsonl)" = 0 ]
    # one decode stream
    moe-decode -q -m pocket.moe -d model:file=draft.moe -d ngram --policy dytc-verify -n 24 --stream cascade.moes -o out.txt \
        two.jsonl
    moe-bench report --figure boundary --cost bytes --json cascade.moes > boundary.jsonl
    again cascade.moes boundary:bytes:boundary.jsonl
    # streams without several drafters, or without a forward over one token, have no such figure
    moe-decode -q -m pocket.moe -d ngram -n 8 --stream one.moes -o out.txt two.jsonl
    run moe-bench report --figure boundary one.moes
    assert_trouble moe-bench
}

@test "another program reproduces the steps of dytc" {
    steps() { "$PYTHON" "$BATS_TEST_DIRNAME/../bench/dytc.py" "$@"; }
    decode() { moe-decode -q -m pocket.moe -n 40 --record route --stream steps.moes -o steps.txt "$@" prompts.jsonl; }
    decode -d self:skip=0.4 -d pld --policy dytc:min=0.3
    steps steps.moes 40 min=0.3 | grep -E '^[0-9]{2,} steps'
    refute steps steps.moes 40 min=0.9                      # with another setting they differ
    decode --ignore-eos -d ngram -d pld --policy dytc:min=0.1,bracket=last,width=3,top-p=1,steps=2,lambda=0.4,window=9
    steps steps.moes 40 min=0.1 bracket=last width=3 top-p=1 steps=2 lambda=0.4 window=9 |
        grep -E '^[0-9]{2,} steps.* [0-9]{3,} rates agree'
    refute steps steps.moes 40 min=0.1 bracket=last width=3 top-p=1 steps=2 lambda=0.4 window=10
    refute steps steps.moes 40 min=0.9 bracket=last width=3 top-p=1 steps=2 lambda=0.4 window=9
    # without --record there are no steps
    moe-decode -q -m pocket.moe -n 20 -d ngram --stream plain.moes -o plain.txt prompts.jsonl
    moe-view --json plain.moes > plain.jsonl
    refute grep step_kind plain.jsonl
}

@test "a second program reproduces the decisions of --draft auto" {
    steps() { "$PYTHON" "$BATS_TEST_DIRNAME/../bench/auto_steps.py" "$@"; }
    decode() { moe-decode -q -m pocket.moe -n 30 --record route --stream auto.moes -o auto.txt "$@"; }
    decode -d auto -d model:file=draft.moe prompts.jsonl
    steps auto.moes 30 > stepped.json
    jq -e '.iterations >= 3 and .steps > 200 and .dropped > 100' stepped.json
    jq -c 'del(.task)' prompts.jsonl > plain.jsonl
    decode -d ngram -d model:file=draft.moe --policy dytc-verify:max=5,optimism=4,warmup=3,explore=0.5 --temperature 1 plain.jsonl
    steps auto.moes 30 max=5 optimism=4 warmup=3 explore=0.5 > stepped.json
    jq -e '.trials >= 1 and .drafted >= 1 and .estimates >= 1 and .steps > 200' stepped.json
    # Other settings, or another token in the text, are detected.
    refute steps auto.moes 30 max=5 optimism=4 warmup=3 explore=0.4
    refute steps auto.moes 30 max=6 optimism=4 warmup=3 explore=0.5
    refute steps auto.moes 30 max=5 optimism=4 warmup=3 explore=0.5 decay=0.99
}

@test "the papers' figures" {
    suite figures.moes <<'SUITE'
{ "model": "pocket.moe", "prompts": "few.jsonl", "options": {"max-tokens": 40, "temperature": 1, "seed": 2},
  "measure-seconds": 0, "repetitions": 2, "draws": "fresh", "grade": {"extract": "json", "code": "code", "summ": "rouge"},
  "settings": [
    {"name": "none"}, {"name": "K", "draft": "ngram", "vary": {"draft-length": [1, 3]}},
    {"name": "cascade", "draft": "ngram", "policy": "cascade"},
    {"name": "tree", "draft": "model:file=draft.moe",
     "vary": {"tree": ["dynamic:total=6,depth=3,topk=3", "dynamic:total=12,depth=4,topk=3"]}},
    {"name": "tree", "draft": "model:file=draft.moe", "tree": "dynamic:total=12,depth=4,topk=3", "vary": {"budget": [8, 16]}},
    {"name": "path", "draft": "model:file=draft.moe", "rank": "path",
     "vary": {"tree": ["dynamic:total=6,depth=3,topk=3", "dynamic:total=12,depth=4,topk=3"], "budget": [8, 16, 24]}}
  ] }
SUITE
    again() { "$PYTHON" "$BATS_TEST_DIRNAME/../bench/refigure.py" 5 figures.moes "$@"; }
    files=
    for figure in utility:time prediction:time times:time quality:bytes nodes:bytes; do
        kind=${figure%:*}
        moe-bench report --figure $kind --cost ${figure#*:} --window 5 --json figures.moes > $kind.jsonl
        files="$files $figure:$kind.jsonl"
    done
    again $files
    moe-bench report --figure utility --cost bytes --window 5 --json figures.moes > bytes.jsonl
    # a wrong value and a missing point are detected
    sed '$s/\([0-9]\)\.\([0-9]\)/\1.9\2/' nodes.jsonl > wrong.jsonl
    sed '1d' nodes.jsonl > missing.jsonl
    refute again utility:bytes:bytes.jsonl nodes:bytes:wrong.jsonl nodes:bytes:missing.jsonl > said
    grep -q '^utility: .* 0 wrong values, 0 missing' said
    grep -q '^nodes: .* [1-9] wrong values, 0 missing' said
    grep -q '^nodes: .* 0 wrong values, 1 missing' said
    # the other forms have the same points
    for kind in utility prediction times quality nodes; do
        moe-bench report --figure $kind --window 5 --csv figures.moes > figure.csv
        first=$(head -n 1 $kind.jsonl | jq -r .type)
        [ "$(($(wc -l < figure.csv) - 1))" = "$(grep -c "\"type\":\"$first\"" $kind.jsonl)" ]
        moe-bench report --figure $kind --window 5 --svg figures.moes > $kind.svg
    done
    "$PYTHON" -c 'import sys, xml.dom.minidom as m; [m.parse(f) for f in sys.argv[1:]]' ./*.svg
    moe-bench report --figure quality --markdown figures.moes | grep -q '^| task'
    run moe-bench report --figure times --cost bytes figures.moes
    assert_trouble moe-bench
    run moe-bench report --figure utility --window 1000 figures.moes
    assert_trouble moe-bench
}
