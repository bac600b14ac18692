#!/usr/bin/env bats
# moe-bench report on train streams: every figure recomputed by another program, all forms, and refused streams.

load common

setup_file() {
    load common
    python=$(python_with_numpy) || skip "no python3 with msgpack and numpy"
    export python WORK="$BATS_FILE_TMPDIR"
    cp "$BATS_TEST_DIRNAME"/../golden/train/*.moes "$WORK"
}

setup() { cd "$WORK"; }

again() { "$python" "$BATS_TEST_DIRNAME/../bench/retraining.py" "$@"; }

@test "every figure is recomputed from the streams" {
    moe-bench report --json train.moes train-2.moes train-jakiro.moes > report.jsonl
    again report.jsonl train.moes train-2.moes train-jakiro.moes
    for type in run part eval spread curve; do grep -q "^{\"type\":\"$type\"" report.jsonl; done
    moe-bench report --json < train.moes > one.jsonl
    refute grep spread one.jsonl
    # a wrong value and a missing row are detected
    sed '1s/"loss_last":0/"loss_last":1/' report.jsonl > wrong.jsonl
    refute again wrong.jsonl train.moes train-2.moes train-jakiro.moes
    sed '$d' report.jsonl > wrong.jsonl
    refute again wrong.jsonl train.moes train-2.moes train-jakiro.moes
}

@test "tables, CSV and curves" {
    moe-bench report train.moes train-2.moes > report.txt
    grep -q '^Heads that were trained more than once' report.txt
    grep -q '^ *train.moes  *eagle1 ' report.txt
    refute grep -q accepted_6 report.txt
    moe-bench report --markdown train.moes | grep -q '^| run '
    [ "$(moe-bench report --csv train.moes train-2.moes | wc -l)" = 3 ]
    for streams in train.moes "train.moes train-2.moes train-jakiro.moes"; do
        moe-bench report --svg $streams -o curves.svg
        "$python" -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' curves.svg
    done
    for words in "all runs" validation "drafts right so far, at the best" "smooth_l1" "tokens per iteration" "token 5" "learning rate"; do
        grep -q ">[^<]*$words" curves.svg
    done
    # points are drawn at their coordinates, within a frame of 360 by 260: bold curves are drawn last
    moe-bench report --svg train.moes > one.svg
    moe-bench report --json train.moes > one.jsonl
    "$python" - one.svg one.jsonl <<'PY'
import json, re, sys
svg, rows = open(sys.argv[1]).read(), [json.loads(line) for line in open(sys.argv[2])]
points = {name: [(r['step'], r['value']) for r in rows if r['type'] == 'curve' and r['curve'] == name]
          for name in ('smooth_l1', 'cross_entropy', 'loss')}
lines = [[tuple(map(float, at.split())) for at in re.split('[ML]', path)[1:]]
         for path in re.findall(r'<path fill="none" [^>]* d="([^"]*)"', svg)]
judged = [(r['step'], r['loss']) for r in rows if r['type'] == 'eval']
points = {**{name: points[name] for name in ('smooth_l1', 'cross_entropy')}, 'validation': judged, 'loss': points['loss']}
assert [len(line) for line in lines[:4]] == [115, 115, len(judged), 115] and len(judged) > 1
x_most = max(x for p in points.values() for x, _ in p)
y_most = 1.05 * max(y for p in points.values() for _, y in p)
for line, name in zip(lines, points):
    for (x, y), (step, value) in zip(line, points[name]):
        assert abs(x - (64 + 360 * step / x_most)) < 0.06 and abs(y - (84 + 260 * (1 - value / y_most))) < 0.06, (name, step)
PY
}

@test "streams that do not belong together and missing figures are refused" {
    moe-profile features -q -m "$MOE_POCKET" --mask all -p One. -o feature.moes
    run moe-bench report train.moes feature.moes
    assert_trouble moe-bench
    [[ $output == *"feature.moes: is not a train stream, but earlier inputs are"* ]]
    run moe-bench report feature.moes
    assert_trouble moe-bench
    run moe-bench report --figure utility train.moes
    assert_trouble moe-bench
    [[ $output == *"--figure: the figures of train streams cannot be chosen"* ]]
    run moe-bench compare train.moes train-2.moes
    assert_trouble moe-bench
    head -c 2000 train.moes > cut.moes
    run moe-bench report cut.moes
    assert_trouble moe-bench
    moe-view --csv --type eval train.moes | head -n 1 | grep -qx 'step,texts,loss,positions,position,acceptance,conditional,.*'
}
