#!/usr/bin/env bats
# moe-bench from the command line: suites, streams, reports, and every figure recomputed from the saved stream by another
# program.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cp "$MOE_POCKET" "$WORK/pocket.moe"
    for task in math code extract summ; do
        grep "\"task\": \"$task\"" "$MOE_MODELS/pocket/heldout.jsonl" | head -n 3
    done > "$WORK/prompts.jsonl"
    head -n 24 "$MOE_MODELS/pocket/calib.jsonl" > "$WORK/calib.jsonl"
    cd "$WORK"
    moe-profile -q -n 0 -m pocket.moe calib.jsonl | moe-coact rank-experts -q -o rank.moes
    cat > suite.json <<'SUITE'
{
  "model": "pocket.moe", "prompts": ["prompts.jsonl"],
  "settings": [
    {"name": "none"},
    {"name": "K4", "draft": "ngram", "draft-length": 4, "overlap": true},
    {"name": "B8", "draft": "ngram", "draft-length": 2, "budget": 8, "rank": "rank.moes", "reference": "self",
     "reconstruction": true}
  ],
  "options": {"max-tokens": 24},
  "repetitions": 2, "limits": {"prompts-per-task": 2}, "measure-seconds": 0,
  "gate": [{"setting": "K4", "task": "math", "figure": "identical", "least": 4}]
}
SUITE
    # Measuring fills half a gigabyte, twice per run: only here.
    sed 's/"measure-seconds": 0/&.02/' suite.json > measured.json
    moe-bench run -q measured.json -o bench.moes
}

setup() { cd "$WORK"; }

rows() { moe-bench report --json "$@" | jq -c 'select(.type == "row")'; }

@test "a suite gives a whole stream with every prompt under every setting" {
    moe-view --verify bench.moes
    [ "$(moe-view --json bench.moes | jq -c 'select(.type == "setting")' | wc -l)" = 3 ]
    [ "$(moe-view --json bench.moes | jq -c 'select(.type == "sample")' | wc -l)" = 48 ]
    [ "$(moe-view --json bench.moes | jq -c 'select(.type == "grade")' | wc -l)" = 48 ]
    [ "$(moe-view --json bench.moes | jq -c 'select(.type == "machine" and .read_bandwidth > 0)' | wc -l)" = 2 ]
}

# Columns of times, and columns computed from times.
timed='^(tokens_per_s|texts_per_s|best_static|.*ratio.*|.*_ms_.*|bandwidth.*)$'

@test "parts of a suite, merged, report what the whole run does, but for times" {
    figures() { rows "$1" | jq -c --arg timed "$timed" 'with_entries(select(.key | test($timed) | not))'; }
    for i in 1 2 3 4; do moe-bench run -q suite.json --shard $i/4 -o part$i.moes; done
    moe-coact merge part2.moes part4.moes part3.moes part1.moes -o parts.moes
    moe-view --verify parts.moes
    figures bench.moes > whole
    figures parts.moes | cmp - whole
    jq -se 'length > 6 and all(has("acceptance_length") and has("identical") and has("correct") and has("experts_loaded_per_step"))' whole
    order() { moe-view --json "$1" | jq -c 'select(.type == "sample" or .type == "begin") | [.type, .setting, .repeat, .id]'; }
    # Settings alternate by the number of a prompt in the suite, not in its part.
    order bench.moes | head -n 48 > first
    for i in 1 2 3 4; do order part$i.moes | grep -A 1 '"sample",.,0' | grep -v '^--'; done | cmp - first
    # Other settings, machines and parts are refused.
    sed 's/"draft-length": 4/"draft-length": 3/' suite.json > other.json
    moe-bench run -q other.json --shard 2/4 -o other.moes
    run moe-coact merge part1.moes other.moes part3.moes part4.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == "moe-coact: other.moes and part1.moes were run with different settings; merge parts of one suite only" ]]
    moe-bench run -q suite.json -j $(($(nproc) + 1)) --shard 2/4 -o other.moes
    run moe-coact merge part1.moes other.moes part3.moes part4.moes -o no.moes
    assert_trouble moe-coact
    [[ $output == "moe-coact: other.moes was run on another machine than part1.moes (host "*" threads, "*", not host "*"); their times are not comparable, so merge streams of one kind of machine, "* ]]
    run moe-bench run -q suite.json --shard 3/4 --resume part2.moes -o no.moes
    assert_trouble moe-bench
    [[ $output == *"settings, models or --shard, or on another machine"* ]]
    [ ! -e no.moes ]
    for shard in 0/4 5/4 x; do
        run moe-bench run -q suite.json --shard $shard -o no.moes
        assert_trouble moe-bench
        [[ $output == *"--shard: '$shard' is not a part; give I/N with I from 1 to N, as in 1/4"* ]]
    done
}

@test "options with lists are settings, and print as the suite that they are" {
    made() { moe-bench run --print-suite "$@" prompts.jsonl; }
    made -m pocket.moe -d none,ngram:n=3,min=2,pld -K1,4 --temperature 0,0.7 -n 4 --stop 5 --prompts-per-task 1 --warm-up 0 --measure-seconds 0 > made.json
    jq -e '.settings == [{name: "none"},
        {name: "ngram:n=3,min=2, draft-length 1", draft: "ngram:n=3,min=2", "draft-length": 1},
        {name: "ngram:n=3,min=2, draft-length 4", draft: "ngram:n=3,min=2", "draft-length": 4},
        {name: "pld, draft-length 1", draft: "pld", "draft-length": 1},
        {name: "pld, draft-length 4", draft: "pld", "draft-length": 4}] and
        .vary == {temperature: [0, 0.7]} and .options == {"max-tokens": 4, stop: ["5"]} and
        .model == "pocket.moe" and .prompts == ["prompts.jsonl"]' made.json
    made -m pocket.moe -d ngram,pld -d suffix -K 0,2 -B 8,rank --rank 'rank.moes' --budget-mode truncate,substitute |
        jq -c '.settings[] | [.name, .draft, .budget]' > names
    [ "$(wc -l < names)" -eq 12 ]                      # twice what a budget alone gives, 4 times for each pair of drafters
    [ "$(sed -n 1p names)" = '["budget 8, budget-mode truncate",null,8]' ]
    grep -qxF '["pld + suffix, draft-length 2, budget rank, budget-mode substitute",["pld","suffix"],"rank"]' names
    made -m pocket.moe -m ./pocket.moe -d ngram -K 0,1 |
        jq -e '[.settings[].name] == ["pocket.moe: none", "pocket.moe: ngram, draft-length 1", "./pocket.moe: none",
                                      "./pocket.moe: ngram, draft-length 1"] and (.models | length) == 2'
    made -m pocket.moe --draft 'suffix:corpus=a\,b.jsonl,depth=8,pld:tokens=4,n=2' --rank 'a\,b,path' |
        jq -c '.settings[] | [.draft, .rank]' > names
    [ "$(< names)" = '["suffix:corpus=a\\,b.jsonl,depth=8","a,b"]
["suffix:corpus=a\\,b.jsonl,depth=8","path"]
["pld:tokens=4,n=2","a,b"]
["pld:tokens=4,n=2","path"]' ]
    made -m pocket.moe --temperature 1 --seed 7,18446744073709551615 --top-p 0.5 |
        jq -e '.vary == {seed: [7, "18446744073709551615"]} and .options == {temperature: 1, "top-p": 0.5}'
    moe-bench run -q made.json -o made.moes
    moe-bench run -q -m pocket.moe -d none,ngram:n=3,min=2,pld -K 1,4 --temperature 0,0.7 -n 4 --stop 5 --prompts-per-task 1 \
        --warm-up 0 --measure-seconds 0 prompts.jsonl -o direct.moes
    settings() { moe-view --json -t setting "$1"; }
    [ "$(settings made.moes | wc -l)" -eq 10 ]
    cmp <(settings made.moes) <(settings direct.moes)
    settings made.moes | jq -s -e 'map(.name as $n | $n | endswith("temperature 0.7")) == (map(.reference) | map(. == 1))'
    moe-bench run -m pocket.moe -d ngram -K 2 -n 2 --prompts-per-task 1 --measure-seconds 0 prompts.jsonl -o few.moes 2> note
    grep -q "there are no ratios; add -d none, or -K 0" note
    refused() { local words=$1; shift; run moe-bench run "$@"; assert_trouble moe-bench; [[ $output == *"$words"* ]]; }
    refused "setting 'ngram, draft-length 1x': --draft-length: '1x' is not a whole number" -m pocket.moe -d ngram -K 0,1x prompts.jsonl
    refused "--draft: a suite has its own settings; to make settings from options, name the model: -m FILE" -d ngram suite.json
    refused "'prompts.jsonl' is a second suite" suite.json prompts.jsonl
    refused "--print-suite: prints the suite that options define, but suite.json is a suite already; leave it out" --print-suite suite.json
    refused "--draft ngram,,pld: a value is missing before or after a comma" -m pocket.moe -d ngram,,pld prompts.jsonl
    refused "no prompts; name a file of prompts after the options" -m pocket.moe
    refused "moe-bench: suite.json: is a suite, not a file of prompts; to run the suite, leave -m out: moe-bench run suite.json" -m pocket.moe suite.json
    refused "no suite; name one, SUITE.json, or a model and prompts"
    refused "--force: applies to rankings, and no setting has one" -m pocket.moe --force prompts.jsonl
    echo '{"model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "none"}]}' > plain.json
    run moe-bench identity --force plain.json
    assert_trouble moe-bench
    [[ $output == *"--force: applies to rankings, and no setting has one"* ]]
    refused "more than" -m pocket.moe -d ngram -K 1,2,3,4,5,6,7,8,9,10 --top-k 1,2,3,4,5,6,7,8,9 --seed 1,2,3,4,5,6,7,8,9 \
        --min-p 0,.1,.2,.3,.4,.5 prompts.jsonl
}

@test "repetitions with fresh draws use the same random numbers under all settings" {
    cat > fresh.json <<'SUITE'
{
  "model": "pocket.moe", "prompts": "prompts.jsonl", "options": {"max-tokens": 24, "temperature": 1.3, "seed": 3},
  "settings": [{"name": "none"}, {"name": "K4", "draft": "ngram", "draft-length": 4}],
  "repetitions": 3, "draws": "fresh", "measure-seconds": 0
}
SUITE
    moe-bench run -q fresh.json -o fresh.moes
    rows fresh.moes | jq -s -e 'map(select(.task == null)) | all(.[]; .identical == .compared) and
                                (map(.correct_deviation) | min) >= 0 and .[0].correct_share == .[1].correct_share'
    texts() { moe-view --json $1 | jq -c 'select(.type == "done") | .text' | sort -u | wc -l; }
    sed 's/"fresh"/"same"/' fresh.json > same.json
    moe-bench run -q same.json -o same.moes
    echo "$(texts fresh.moes) and $(texts same.moes) different texts of 12 prompts"
    [ "$(texts same.moes)" -le 12 ]
    [ "$(texts fresh.moes)" -ge 20 ]
    moe-bench report --json fresh.moes > fresh.jsonl
    python=$(python_with_numpy)
    "$python" "$BATS_TEST_DIRNAME/../bench/recompute.py" fresh.moes fresh.jsonl
}

@test "settings alternate" {
    turns=$(moe-view --json bench.moes | jq -c 'select(.type == "sample") | .setting' | head -n 9 | tr -d '\n')
    [ "$turns" = 012120201 ]
}

@test "drafts leave the text as it is and save forwards" {
    run rows bench.moes
    [ "$(echo "$output" | jq -s '[.[] | select(.setting == "K4") | .identical == .compared and .compared > 0] | all')" = true ]
    [ "$(echo "$output" | jq -s '.[] | select(.setting == "K4" and .task == null) | .tokens_per_step > 1.1')" = true ]
    [ "$(echo "$output" | jq -s '.[] | select(.setting == "none" and .task == null) | .tokens_per_step == 1')" = true ]
    [ "$(echo "$output" | jq -s '.[] | select(.setting == "B8" and .task == null) | .experts_per_layer <= 8')" = true ]
}

@test "a sample's text is what moe-decode writes" {
    moe-decode -q -m pocket.moe -n 24 --draft ngram -K 4 prompts.jsonl --json | jq -r 'select(.id == "code-001") | .text' > decoded
    moe-view --json bench.moes | jq -r 'select(.type == "done" and .id == "code-001") | .text' | sort -u > benched
    grep -qxF -f <(head -n 1 decoded) benched
}

@test "texts of saved streams are graded again, by rules and by commands" {
    answers="$MOE_MODELS/pocket/heldout.jsonl"
    moe-bench grade -p "$answers" --rule extract=json --rule code=code --json bench.moes > graded.jsonl
    moe-view --json bench.moes | jq -s '[.[] | select(.type == "grade" and .correct)] | length' > then
    [ "$(jq -s '[.[] | select(.type == "row")] | map(.correct) | add' graded.jsonl)" = \
      "$(jq -s '[.[] | select(.type == "answer" and .correct)] | length' graded.jsonl)" ]
    moe-bench grade -p "$answers" bench.moes > graded
    grep -q '^none .*math ' graded
    # summaries have a mean score, and none is right or wrong
    jq -s -e '[.[] | select(.type == "answer" and .task == "summ" and .setting == "none")] as $answers |
              [.[] | select(.type == "row" and .task == "summ" and .setting == "none")][0] as $row |
              ($answers | map(.correct) | unique) == [null] and $row.correct == null and $row.graded == ($answers | length) and
              ($row.score - ($answers | map(.score) | add / length) | fabs) < 1e-12 and $row.score > 0 and $row.score < 1' graded.jsonl
    grep -Eq '^none +summ +- +[0-9]+ +- +0\.[0-9]{3}' graded
    # commands that follow the rule, that always accept, that hang, and that fail
    moe-bench grade -p "$answers" --rule math=exact --json bench.moes | jq -c 'select(.type == "row" and .task == "math")' > rule
    moe-bench grade -p "$answers" --command 'math=jq -e "(.text | sub(\"^\\\\s+\"; \"\") | sub(\"\\\\s+$\"; \"\")) == .expected"' \
        --json bench.moes | jq -c 'select(.type == "row" and .task == "math")' | cmp - rule
    moe-bench grade -p "$answers" --command math=true --json bench.moes |
        jq -s -e '[.[] | select(.type == "row" and .task == "math")] | all(.correct == .graded and .graded > 0)'
    moe-bench grade -p "$answers" --command 'math=sleep 100' --seconds 0.02 --json bench.moes |
        jq -s -e '[.[] | select(.type == "row" and .task == "math")] | all(.correct == 0 and .graded > 0)'
    env --ignore-signal=CHLD moe-bench grade -p "$answers" --command math=false --json bench.moes |
        jq -s -e '[.[] | select(.type == "row" and .task == "math")] | all(.correct == 0 and .graded > 0)'
    run moe-bench grade -p "$answers" --command 'math=exit 7' bench.moes
    assert_trouble moe-bench
    [[ $output == *"exit status 7"* ]]
    # grades are written to a stream of their own, and appear in its report
    moe-bench grade -p "$answers" --command math=true bench.moes --stream anew.moes > /dev/null
    moe-view --verify anew.moes
    moe-bench report --json anew.moes |
        jq -s -e '[.[] | select(.type == "row" and .task == "math")] | all(.correct == .graded and .graded > 0)'
    for part in anew bench; do moe-view --json $part.moes | jq -c 'select(.type != "grade" and .type != "end")' > $part; done
    cmp anew bench
    # a stream of moe-decode, and a text that cannot be graded
    moe-decode -q -m pocket.moe -n 24 prompts.jsonl --stream decode.moes > /dev/null
    moe-bench grade -p "$answers" decode.moes | grep -q math
    echo '{"id": "else", "answer": "5"}' > else.jsonl
    for words in "-p else.jsonl bench.moes" "bench.moes" "-p $answers --rule math=luck bench.moes" "-p bench.moes bench.moes" \
                 "-p $answers --command true bench.moes" "-p $answers --command math= bench.moes" \
                 "-p $answers --rule nosuch=number bench.moes" "-p $answers --command nosuch=true bench.moes" \
                 "-p $answers decode.moes --stream no.moes"; do
        run moe-bench grade $words
        assert_trouble moe-bench
    done
    [ ! -e no.moes ]
    run moe-bench grade -p "$answers" --rule math=number --rule maths=number bench.moes
    [[ $output == *"--rule: "*"bench.moes"*"'maths'"* ]]
}

# Waits until a file is not empty.
await() { for _ in $(seq 500); do [ -s "$1" ] && return; sleep 0.02; done; return 1; }

@test "a command that grades ends with the moe-bench that called it, and all that it started" {
    for signal in TERM INT; do
        rm -f inner outer
        # A shell's & makes SIGINT ignored; env restores it.
        env --default-signal=INT moe-bench grade -p "$MOE_MODELS/pocket/heldout.jsonl" --seconds 60 bench.moes --stream killed.moes \
            --command 'math=echo $$ > outer; sleep 60 & echo $! > inner; wait' > /dev/null &
        pid=$!
        await inner
        kill -$signal $pid
        code=0
        wait $pid || code=$?
        [ $code = $((128 + $(kill -l $signal))) ]
        # The process that adopts orphans may need a moment to notice their end.
        for name in outer inner; do
            for _ in $(seq 100); do [ -e "/proc/$(cat $name)/cwd" ] || break; sleep 0.02; done
            [ ! -e "/proc/$(cat $name)/cwd" ]
        done
        [ -z "$(find . -name 'killed.moes*')" ]
    done
    # Signals that it was made to ignore end neither.
    (trap '' INT; exec moe-bench grade -p "$MOE_MODELS/pocket/heldout.jsonl" bench.moes --json \
        --command 'math=kill -INT $PPID; sleep 0.05') |
        jq -s -e '[.[] | select(.type == "row" and .task == "math")] | all(.correct == .graded and .graded > 0)'
}

@test "every figure is recomputed from the stream" {
    moe-bench report --json bench.moes > report.jsonl
    python=$(python_with_numpy)
    "$python" "$BATS_TEST_DIRNAME/../bench/recompute.py" bench.moes report.jsonl
    # a wrong report is detected
    sed 's/"steps":\([0-9]\)/"steps":1\1/' report.jsonl > wrong.jsonl
    run "$python" "$BATS_TEST_DIRNAME/../bench/recompute.py" bench.moes wrong.jsonl
    [ "$status" = 1 ]
}

@test "settings with several texts at once have the texts of one at a time, and a resumed run the same samples" {
    cat > parallel.json <<'SUITE'
{"model": "pocket.moe", "prompts": ["prompts.jsonl"], "order": "blocked", "options": {"max-tokens": 16, "draft": "ngram"},
 "settings": [{"name": "alone"}, {"name": "three", "parallel": 3}, {"name": "many", "parallel": 33}],
 "repetitions": 2, "limits": {"prompts-per-task": 2}, "measure-seconds": 0}
SUITE
    moe-bench run -q parallel.json -o parallel.moes
    moe-view --verify parallel.moes
    samples() { moe-view --json "$1" | jq -c 'select(.type | test("sample|begin|done|grade")) | del(.prefill_us, .total_us)'; }
    texts() { samples "$1" | jq -c 'select(.type == "done") | .tokens' | sed -n "$2p"; }
    cmp <(texts parallel.moes 1,8) <(texts parallel.moes 9,16)
    cmp <(texts parallel.moes 1,8) <(texts parallel.moes 17,24)
    moe-bench report --json --max-ttft 1e8 parallel.moes > parallel.jsonl
    "$(python_with_numpy)" "$BATS_TEST_DIRNAME/../bench/recompute.py" parallel.moes <(moe-bench report --json parallel.moes)
    jq -se 'map(select(.type == "row" and .task == null)) | map(.texts_per_forward) as [$alone, $three, $many] |
        $alone == 1 and $three > 1.5 and $three <= 3 and $many > $three and all(.[]; .goodput == .texts_per_s and .tpot_ms_mean > 0)' \
        parallel.jsonl
    head -c $(($(stat -c %s parallel.moes) * 6 / 10)) parallel.moes > left.moes
    moe-bench run -q parallel.json --resume left.moes -o resumed.moes
    cmp <(samples parallel.moes) <(samples resumed.moes)
    sed 's/"blocked"/"interleaved"/' parallel.json > wrong.json
    run moe-bench run -q wrong.json -o wrong.moes
    assert_trouble moe-bench
    [[ $output == *"setting 'three': \"parallel\": "*'add "order": "blocked"'* ]]
}

@test "the forms of a report" {
    run moe-bench report bench.moes
    [ "$status" = 0 ]
    [[ "$output" == *"B8: "*"not lossless: budget 8"* ]]
    [[ "$output" == *"task "*"setting "*"tok/s"* ]]
    moe-bench report --csv bench.moes -o report.csv
    [ "$(wc -l < report.csv)" = 16 ]
    [ "$(awk -F, '{ print NF }' report.csv | sort -u | wc -l)" = 1 ]
    moe-bench report --markdown bench.moes | grep -q '^| math *| K4 '
    moe-bench report bench.moes | grep -q '^task .*TTFT .*TPOT .*ITL'
    moe-bench report --svg bench.moes > page.svg
    python3 -c 'import xml.dom.minidom as m; m.parse("page.svg")'
    [ "$(grep -c '<circle' page.svg)" = "$(moe-bench report --json bench.moes | grep -c '"type":"row"')" ]
    run moe-bench report --svg --json bench.moes
    assert_trouble moe-bench
    moe-bench report < bench.moes | grep -q '^all '
}

@test "a report is filtered and sorted, and fits the terminal" {
    moe-bench report bench.moes > whole
    moe-bench report --csv bench.moes > whole.csv
    moe-bench report --csv --task 'm*' --task all --setting '[KB]?' bench.moes > some.csv
    cmp some.csv <(sed -n '1p; /^math,[KB]/p; /^all,[KB]/p' whole.csv)
    for sort in tokens_per_s -bytes_per_step; do
        moe-bench report --json --sort=$sort bench.moes |
            jq -s -e --arg by ${sort#-} '[.[] | select(.type == "row" and .task == "code")[$by]] | length == 3 and
                (if $by == "tokens_per_s" then . == (sort | reverse) else . == sort end)'
    done
    moe-bench report --json --setting none bench.moes | jq -s -e '[.[] | select(.type == "setting").name] == ["none"]'
    for columns in 60 80 100; do
        at_terminal -- sh -c "stty cols $columns; moe-bench report bench.moes" | tr -d '\r' > narrow
        tail -n +5 narrow | awk -v most=$columns 'length > most { print; bad = 1 } END { exit bad }'
        grep -c '^task' narrow
        # every column of the whole report exists
        for what in whole narrow; do tr -s ' \n' '\n\n' < $what | grep -v -e '^task$' -e '^setting$' -e none -e K4 -e B8 -e math -e code \
            -e extract -e summ -e all | sort > $what.words; done
        cmp whole.words narrow.words
    done
    [ "$(grep -c '^task .*\(TTFT\|TPOT\|ITL\) *median *p99' narrow)" -gt 0 ]
    [ "$(grep -c '^task *setting *median' narrow)" -eq 0 ]
    refused() { local words=$1; shift; run moe-bench report "$@" bench.moes; assert_trouble moe-bench; [[ $output == *"$words"* ]]; }
    refused "--task maths: matches nothing in the streams; choose from: math; code; extract; summ; all" --task maths
    refused "--setting K5: matches nothing in the streams; choose from: none; K4; B8" --setting K4 --setting K5
    refused "'ration' is not a column of --csv; did you mean ratio?" --sort ration
    refused "'speed' is not a column of --csv; moe-bench(1) lists them" --sort speed
    refused "a figure has its own order" --figure times --sort ratio
    refused "--svg and --html exclude each other" --svg --html
}

@test "a page of HTML needs nothing else" {
    moe-bench report --html bench.moes -o report.html
    moe-bench report bench.moes > report.txt
    moe-bench report --figure times --html bench.moes > times.html
    python3 - report.html report.txt times.html <<'PY'
import html.parser, re, sys
VOID = {"meta", "rect", "path", "circle", "line", "br"}
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells, self.rows, self.tags = [], [], [], set()
    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            assert name not in ("src", "href", "onload", "onclick", "xlink:href", "action"), (tag, name, value)
            assert name == "xmlns" or "//" not in (value or ""), (tag, name, value)
        if tag not in VOID:
            self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
        if tag == "tr":
            self.rows.append(self.cells)
            self.cells = []
    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)
for name in sys.argv[1], sys.argv[3]:
    text = open(name).read()
    page = Page()
    page.feed(text)
    assert not page.open and text.startswith("<!DOCTYPE html>") and "<svg " in text, name
    assert {"svg", "table", "style"} <= page.tags and not {"script", "link", "img", "iframe"} & page.tags, page.tags
    assert "@import" not in text and "url(" not in text
    if name == sys.argv[1]:
        lines = [re.split(r"  +", line.strip()) for line in open(sys.argv[2])]
        shown = [row for row in lines if len(row) > 5 and row[0] in ("task", "math", "code", "extract", "summ", "all")]
        assert page.rows == shown and len(shown) > 40, (len(page.rows), len(shown))
PY
}

@test "decode streams are settings, compared with the first" {
    moe-decode -q -m pocket.moe -n 16 prompts.jsonl --stream base.moes > /dev/null
    moe-decode -q -m pocket.moe -n 16 --draft ngram prompts.jsonl --stream draft.moes > /dev/null
    moe-decode -q -m pocket.moe -n 16 --draft ngram prompts.jsonl --stream - | moe-bench report | grep -q 'standard input'
    run rows base.moes draft.moes
    [ "$(echo "$output" | jq -s '.[] | select(.setting == "draft" and .task == null) | .identical == 12 and .compared == 12')" = true ]
    moe-decode -q -m pocket.moe -n 16 --draft ngram --policy cascade prompts.jsonl --stream adaptive.moes > /dev/null
    run rows base.moes draft.moes adaptive.moes
    [ "$(echo "$output" | jq -s 'map(select(.task == null)) | (map(select(.setting != "adaptive")) | max_by(.tokens_per_s).setting) as $best |
        map(select(.setting == "adaptive"))[0] | .best_static == $best and .best_ratio > 0')" = true ]
}

@test "a file given twice becomes two settings with different names" {
    moe-decode -q -m pocket.moe -n 8 prompts.jsonl --stream twice.moes > /dev/null
    run rows twice.moes twice.moes
    [ "$(echo "$output" | jq -r 'select(.task == null) | .setting' | paste -sd '|')" = 'twice, twice.moes|twice, twice.moes (2)' ]
    run rows bench.moes twice.moes
    [ "$(echo "$output" | jq -r 'select(.task == null) | .setting' | paste -sd '|')" = 'none|K4|B8|twice' ]
}

@test "the order of prompts and runs does not change a text" {
    sed -e 's/"repetitions": 2/"repetitions": 1, "order": "random"/' \
        -e 's/"max-tokens": 24/"max-tokens": 24, "temperature": 1, "seed": 7/' suite.json > random.json
    sed 's/"order": "random"/"order": "blocked"/' random.json > blocked.json
    moe-bench run -q random.json -o random.moes
    moe-bench run -q blocked.json -o blocked.moes
    for s in random blocked; do
        moe-view --json $s.moes | jq -c 'select(.type == "done") | [.id, .text]' | sort > $s.txt
    done
    cmp random.txt blocked.txt
    run rows random.moes
    [ "$(echo "$output" | jq -s '.[] | select(.setting == "K4" and .task == null) | .identical == .compared')" = true ]
}

@test "run --text prints the report" {
    sed 's/"repetitions": 2/"repetitions": 1/; s/"prompts-per-task": 2/"prompts": 2/' suite.json > short.json
    mkdir tmp
    TMPDIR=$PWD/tmp moe-bench run -q short.json --text > text
    grep -q '^math *K4 ' text
    grep -q '^short.json: host ' text
    [ -z "$(ls -A tmp)" ]
    # A run that fails leaves no temporary file; one with a stream keeps the finished samples, and says how to continue.
    TMPDIR=$PWD/tmp run bash -c 'ulimit -f 16; moe-bench run -q short.json --text'
    assert_trouble moe-bench
    [ -z "$(ls -A tmp)" ]
    run bash -c 'ulimit -f 16; moe-bench run -q short.json -o cut.moes'
    echo "$output"
    assert_trouble moe-bench
    [ "$output" = "moe-bench: cut.moes: File too large; to continue, run: moe-bench run --resume cut.moes -q short.json -o cut.moes" ]
    moe-bench run --resume cut.moes -q short.json -o cut.moes
    moe-view --verify cut.moes
}

# Runs a command at a terminal of its own.
at_terminal() { "$BATS_TEST_DIRNAME/at-terminal.py" "$@" | tr -d '\r'; return "${PIPESTATUS[0]}"; }

@test "a run at a terminal keeps its stream and names it" {
    mkdir kept && cd kept
    sed 's/"repetitions": 2/"repetitions": 1/; s/"prompts-per-task": 2/"prompts": 1/; s,"pocket.moe","../pocket.moe",
         s,"prompts.jsonl","../prompts.jsonl",; s,"rank.moes","../rank.moes",' ../suite.json > short.json
    at_terminal -- moe-bench run --progress never short.json > shown
    grep -q '^math *K4 ' shown
    [ "$(tail -n 1 shown)" = "moe-bench: the stream is kept as short.moes" ]
    moe-view --verify short.moes
    moe-bench report short.moes > again                 # the same report can be had from it
    grep -v '^moe-bench: ' shown | cmp - again
    # existing files are never overwritten, whether complete or not
    touch short-2.moes.part short-3.moes.part.old
    cp short.moes before
    at_terminal -- moe-bench run -q short.json > shown
    refute grep -q '^moe-bench: ' shown
    moe-view --verify short-4.moes
    cmp short.moes before
    [ "$(ls | wc -l)" = 8 ]
    # a pipe gets the stream
    moe-bench run -q short.json | moe-view --verify
    # if the folder is not writable, the folder of temporary files is used
    if [ "$(id -u)" != 0 ]; then
        mkdir closed tmp
        cp short.json closed
        sed -i 's,"\.\./,"../../,' closed/short.json
        chmod a-w closed
        (cd closed && TMPDIR=$WORK/kept/tmp at_terminal -- moe-bench run --progress never short.json > ../shown)
        [ "$(tail -n 1 shown)" = "moe-bench: the stream is kept as $WORK/kept/tmp/short.moes" ]
        moe-view --verify tmp/short.moes
    fi
}

@test "Ctrl-C prints the command that resumes the run, and it does" {
    mkdir "it's here" && cd "it's here"
    cat > "my suite.json" <<SUITE
{"model": "../pocket.moe", "prompts": "../prompts.jsonl", "options": {"max-tokens": 40}, "repetitions": 12,
 "settings": [{"name": "none"}], "measure-seconds": 0}
SUITE
    run at_terminal "my suite.moes.part" 20000 -- moe-bench run -j 1 "my suite.json"
    [ "$status" = 130 ]
    [ "${lines[-2]}" = "moe-bench: ended; finished samples are kept; this continues with them:" ]
    [ "${lines[-1]}" = "  moe-bench run --resume 'my suite.moes' -j 1 'my suite.json'" ]
    [ -e "my suite.moes.part" ] && [ ! -e "my suite.moes" ]
    eval "${lines[-1]}" 2> note
    grep -q 'reuses the [0-9]* samples that the earlier run finished' note
    moe-view --verify "my suite.moes"
    # a finished run is not run again
    cp "my suite.moes" before
    eval "${lines[-1]}" 2> note
    [ "$(cat note)" = "moe-bench: my suite.moes: reuses the 144 samples that the earlier run finished
moe-bench: my suite.moes: is already complete, so nothing is run" ]
    cmp before "my suite.moes"
    [ ! -e "my suite.moes.part" ]
    [ "$(moe-view --json "my suite.moes" | jq -c 'select(.type == "done")' | wc -l)" = 144 ]
    # a named file, and a run that had resumed before
    run at_terminal "../it's here/x.moes.part" 20000 -- moe-bench run "my suite.json" --resume x.moes "-ox.moes"
    [ "$status" = 130 ]
    [ "${lines[-1]}" = "  moe-bench run --resume x.moes 'my suite.json' -ox.moes" ]
    # no note if nothing is kept, or under -q
    run at_terminal y.moes.part 1 -- moe-bench run -q "my suite.json" -o y.moes
    [[ $output != *--resume* ]]
}

# Waits until a file has a given size.
grown() {
    for ((i = 0; i < 600; i++)); do
        [ "$(stat -c %s "$1" 2> /dev/null || echo 0)" -gt "$2" ] && return
        sleep 0.05
    done
    return 1
}

@test "an interrupted run resumes where it ended" {
    cat > long.json <<SUITE
{"model": "pocket.moe", "prompts": "$MOE_MODELS/pocket/heldout.jsonl", "options": {"max-tokens": 40}, "repetitions": 2,
 "settings": [{"name": "none"}, {"name": "K4", "draft": "ngram", "draft-length": 4}], "limits": {"prompts-per-task": 6}, "measure-seconds": 0}
SUITE
    rm -f long.moes*
    moe-bench run -q long.json -o long.moes &
    pid=$!
    grown long.moes.part 100000
    run moe-bench run -q --resume long.moes long.json
    assert_trouble moe-bench
    [[ $output == *"another process is writing this file"* ]]
    # no signal removes finished samples
    kill -TERM $pid
    wait $pid || true
    [ ! -e long.moes ]
    moe-bench run --progress never long.json --resume long.moes 2> note &
    pid=$!
    for _ in $(seq 1200); do grep -q 'reuses the' note && break; sleep 0.05; done
    # Of two unfinished streams the longer one is used.
    grown long.moes.part $(($(stat -c %s long.moes.part.old) + 20000))
    kill -9 $pid
    wait $pid || true
    grep -q 'long.moes: reuses the [0-9]* samples that the earlier run finished' note
    [ ! -e long.moes ]
    cp long.moes.part left
    # another suite is not mixed with it
    for change in 's/"draft-length": 4/"draft-length": 3/' 's/"max-tokens": 40/"max-tokens": 41/' 's/heldout/calib/' \
                  's/"limits": {/&"max-tokens": 39, /' 's/"repetitions": 2/&, "draws": "fresh"/' \
                  's/"repetitions": 2/&, "grade": {"math": "exact"}/'; do
        sed "$change" long.json > other.json
        run moe-bench run -q --resume long.moes other.json
        assert_trouble moe-bench
        cmp left long.moes.part.old
    done
    run moe-bench run -q --resume long.moes --kv-dtype f16 long.json
    assert_trouble moe-bench
    run moe-bench run -q --resume long.moes --context 500 long.json
    assert_trouble moe-bench
    cmp left long.moes.part.old
    head -c 9000 left > long.moes.part         # of a run ended before it
    moe-bench run -q --resume long.moes long.json
    [ ! -e long.moes.part ] && [ ! -e long.moes.part.old ]
    moe-view --verify long.moes
    moe-view --json long.moes > long.jsonl
    [ "$(jq -s '[.[] | select(.type == "sample") | .sequence] == [range(96)]' long.jsonl)" = true ]
    moe-bench report --json long.moes | jq -s -e '[.[] | select(.type == "row" and .task == null)] |
        all(.samples == 48 and .identical == .compared)'
    # copied samples are unchanged
    moe-view --json left 2> /dev/null | jq -c 'select(.type == "done")' > before
    [ -s before ]
    jq -c 'select(.type == "done")' long.jsonl | head -n "$(wc -l < before)" | cmp - before
    # more repetitions continue a finished stream; fewer are refused
    sed 's/"repetitions": 2/"repetitions": 3/' long.json > more.json
    moe-bench run more.json --resume long.moes -o more.moes 2> note
    grep -q 'long.moes: reuses the 96 samples that the earlier run finished' note
    [ "$(moe-view --json more.moes | jq -c 'select(.type == "sample")' | wc -l)" = 144 ]
    cp long.moes before
    sed 's/"repetitions": 2/"repetitions": 1/' long.json > fewer.json
    run moe-bench run -q fewer.json --resume long.moes
    assert_trouble moe-bench
    [[ $output == *"is complete, and contains 48 samples that this suite does not need; write to another file with -o" ]]
    cmp before long.moes
    # a run that started over and was killed is continued
    head -c 100000 left > long.moes.part
    moe-bench run long.json --resume long.moes 2> note
    refute grep -q ' 96 ' note
    grep -q 'long.moes: reuses the [0-9]* samples that the earlier run finished' note
    [ ! -e long.moes.part ] && [ ! -e long.moes.part.old ]
    moe-view --verify long.moes
    while IFS='|' read -r words part; do
        run moe-bench run -q $words
        assert_trouble moe-bench
        [[ $output == *"$part"* ]] || { echo "$words: $output"; false; }
    done <<'WRONG'
--resume long.json|--resume long.json: expected the stream to continue, and after it the suite: --resume STREAM long.json
--resume long.json -o x.moes|after it the suite: --resume x.moes long.json
--resume - long.json|--resume: standard input cannot be read twice; name a file
--resume /dev/null long.json|/dev/null: must be read twice, which a pipe does not allow; name a file on disk
--resume pocket.moe long.json|pocket.moe: is a model file, not a stream
--resume rank.moes long.json|a rank stream; expected a bench stream
--resume missing.moes -o x.moes long.json|missing.moes: No such file
WRONG
    [ ! -e x.moes ] && [ ! -e x.moes.part ]
}

@test "a prompt that does not fit is refused before any prompt runs" {
    moe-bench run -q --context 20 suite.json -o x.moes 2> said && return 1
    grep -q "but the context is 20 for prompt and answer together; shorten the prompt, or give a larger --context" said
    [ ! -e x.moes ] && [ ! -e x.moes.part ]
    # a prompt that fits without an answer is read
    echo '{"id": "a", "tokens": [1, 2, 3]}' > three.jsonl
    moe-decode -q -m pocket.moe -c 3 -n 0 three.jsonl
    run moe-decode -q -m pocket.moe -c 3 -n 1 three.jsonl
    assert_trouble moe-decode
}

@test "machine" {
    moe-bench machine --seconds 0 > machine
    grep -q "^processor .*" machine
    refute grep -q "^reads" machine
    moe-bench machine --seconds 0.05 --size 64M --json |
        jq -e '.read_bandwidth > 1e8 and .threads == '"$(nproc --all)"' and .memory > .available and .available > 0'
    run moe-bench machine here
    assert_trouble moe-bench
}

@test "roofline" {
    run moe-bench roofline --size 1024G --seconds 0.05
    assert_trouble moe-bench
    [[ $output == *"the machine has"* ]]
    run moe-bench roofline --size 32M --seconds 0.05 -j 2
    [ "$status" = 0 ]
    [[ "$output" == *"  2 threads"*"GB/s"* ]]
    moe-bench roofline --size 32M --seconds 0.05 --json | jq -e '.read_bandwidth > 1e8 and .bytes == 33554432'
    moe-bench roofline --file pocket.moe --seconds 0.05 --json |
        jq -e '.read_bandwidth > 1e8 and .bytes == '"$(stat -c %s pocket.moe)"
    : > empty
    head -c 5000 pocket.moe > short
    for file in empty short missing .; do
        run moe-bench roofline --file $file
        assert_trouble moe-bench
        [[ "$output" == "moe-bench: $file: "* ]]
    done
    run moe-bench roofline --device ref --file pocket.moe
    [ "$status" = 2 ]
    run moe-bench roofline --device ref
    [ "$status" = 2 ]
    [[ "$output" == "moe-bench: device ref: "* ]]
}

# The last argument must occur in the single line on stderr.
refused() {
    local says="${*: -1}"
    run "${@:1:$#-1}"
    assert_trouble moe-bench
    [[ $output == *"$says"* ]] || { echo "does not say '$says': $output"; return 1; }
}

@test "bad input is reported in one line" {
    refused moe-bench run none.json -o x.moes "none.json"
    echo '{"model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "a", "drafft": "ngram"}]}' > bad.json
    refused moe-bench run bad.json -o x.moes "did you mean \"draft\"?"
    echo '{"model": "none.moe", "prompts": "prompts.jsonl", "settings": [{"name": "a"}]}' > bad.json
    refused moe-bench run bad.json -o x.moes "none.moe"
    echo '{"model": "pocket.moe", "prompts": "none.jsonl", "settings": [{"name": "a"}]}' > bad.json
    refused moe-bench run bad.json -o x.moes "none.jsonl"
    echo '{"model": "pocket.moe", "prompts": "prompts.jsonl", "tasks": "x", "settings": [{"name": "a"}]}' > bad.json
    refused moe-bench run bad.json -o x.moes "no prompt"
    echo '{"model": "pocket.moe", "prompts": "prompts.jsonl", "settings": [{"name": "a", "budget": 3, "rank": "bench.moes"}]}' > bad.json
    refused moe-bench run bad.json -o x.moes "bench.moes"
    [ ! -e x.moes ]
    refused moe-bench report rank.moes "is a rank stream"
    head -c 5000 bench.moes > cut.moes
    refused moe-bench report cut.moes "cut.moes"
    refused moe-bench report --json --csv bench.moes "exclude each other"
    refused moe-bench report --jsn bench.moes "--json"
    refused moe-bench report bench.moes -o /dev/full "No space left"
    refused moe-bench frobnicate "is not a subcommand"
    refused moe-bench run suite.json -o /nowhere/x.moes "/nowhere"
}

@test "an interrupted run leaves what it finished" {
    sed 's/"repetitions": 2/"repetitions": 1000/' suite.json > long.json
    env --default-signal=INT moe-bench run -q long.json -o interrupted.moes &
    grown interrupted.moes.part 30000
    kill -INT $!
    wait $! || true
    [ "$(ls | grep interrupted)" = interrupted.moes.part ]
    run moe-bench report interrupted.moes.part
    assert_trouble moe-bench
    [ ! -e x.moes.part ]
}
