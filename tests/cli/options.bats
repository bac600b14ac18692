# Features that all commands share: options, help, version, standard output.

load common

# Every command and subcommand, a line each: "moe-coact rank-experts".
every_subcommand() {
    local name
    for name in $(commands); do
        "$name" --help=spec | awk -F '\t' -v name="$name" '$1 == "subcommand" { print name, ($2 == "-" ? "" : $2) }'
    done
}

@test "every command has --help and --version" {
    for name in $(commands); do
        run "$name" --version
        [ "$status" -eq 0 ]
        [[ $output =~ ^"$name (moekit) "[0-9]+\.[0-9]+\.[0-9]+$ ]]
    done
    every_subcommand | while read -r words; do
        run $words --help
        [ "$status" -eq 0 ]
        [[ ${lines[0]} == "usage: ${words%% *} "* ]]
        run $words -h
        [ "$status" -eq 0 ]
    done
}

@test "an unknown option is reported in one line, with the nearest name" {
    every_subcommand | while read -r words; do
        run $words --no-such-option-at-all
        assert_trouble "${words%% *}"
        [[ $output == *"unknown option --no-such-option-at-all"* ]]
        run $words --hepl
        assert_trouble "${words%% *}"
        [[ $output == *"did you mean --help?"* ]]
    done
}

# All options are in tables read by one piece of code: in `make check` every fifth option is tried, each of some command.
@test "an option without its value is an error that names it" {
    local number=0 words option
    while read -r words; do
        while read -r option; do
            [ -n "$MOE_LONG" ] || [ $((number++ % 5)) = 0 ] || continue
            run $words "--$option"
            assert_trouble "${words%% *}"
            [[ $output == *"--$option: needs a value"* ]] || { echo "$words: $output"; false; }
        done < <($words --help=spec | awk -F '\t' -v sub_name="${words#* }" '
            $1 == "subcommand" { inside = ($2 == sub_name || $2 == "-") }
            $1 == "option" && inside && $4 != "flag" { print $3 }')
    done < <(every_subcommand)
    [ -n "$MOE_LONG" ] || [ "$number" -gt 300 ]
}

@test "a count must be a whole number within its range" {
    local number=0 values
    every_subcommand | while read -r words; do
        $words --help=spec | awk -F '\t' -v sub_name="${words#* }" '
            $1 == "subcommand" { inside = ($2 == sub_name || $2 == "-") }
            $1 == "option" && inside && $4 ~ /^(count|count-auto|size|uint64|float)$/ { print $3 }' | while read -r option; do
            # In `make check` every second option tests one of them, the others the other.
            values=(8x 99999999999999999999999 "" -1 0x10)
            [ -n "$MOE_LONG" ] || values=("${values[number++ % 2]}")
            for value in "${values[@]}"; do
                [ "$value" != -1 ] || [[ $option != temperature ]] || continue
                run $words "--$option=$value"
                assert_trouble "${words%% *}"
                [[ $output == *"--$option: "* ]] || { echo "$words --$option=$value: $output"; false; }
            done
        done
    done
}

@test "help into a full device is an error, and into a closed pipe is quiet" {
    for name in $(commands); do
        run sh -c "$name --help > /dev/full"
        assert_trouble "$name"
        [[ $output == *"standard output: No space left on device" ]]
        run sh -c "{ $name --help; echo status \$? >&2; } | true"
        [[ $output != *"$name:"* ]]
    done
}

@test "help is the same on every call and fits a terminal" {
    every_subcommand | while read -r words; do
        $words --help > "$BATS_TEST_TMPDIR/first"
        $words --help > "$BATS_TEST_TMPDIR/second"
        cmp "$BATS_TEST_TMPDIR/first" "$BATS_TEST_TMPDIR/second"
        run awk 'length($0) > 100 { print FILENAME ": " $0; bad = 1 } END { exit bad }' "$BATS_TEST_TMPDIR/first"
        [ "$status" -eq 0 ] || { echo "$output"; false; }
    done
}

# Prints "output TAB name", "input TAB name TAB value with FILE for the file", "operand" of one subcommand, from its table.
files_of() {
    ${1%% *} --help=spec | awk -F '\t' -v want="${1#* }" '
        $1 == "subcommand" { inside = ($2 == want || (want == "" && $2 == "-")) }
        inside && $1 == "operand" && ($3 == "one" || !seen++) { print "operand\t-\t-" }
        inside && $1 == "option" && $4 == "output" { print "output\t" $3 "\t-" }
        inside && $1 == "option" && $4 == "input" { print "input\t" $3 "\tFILE" }
        inside && $1 == "option" && $4 ~ /^strings?$/ && $5 ~ /FILE/ {
            print "input\t" $3 "\t" ($5 ~ /=FILE/ ? "kind:n=1,file=FILE" : "FILE")
        }'
}

@test "no output is an input of the same command: every option and operand, by its name and through links" {
    cd "$BATS_TEST_TMPDIR"
    mkdir folder
    echo precious > folder/given
    echo other > other
    ln folder/given hard
    ln -s folder/given soft
    every_subcommand | while read -r words; do
        files_of "$words" > files
        operands=$(sed -n 's/^operand.*/other/p' files)
        awk -F '\t' '$1 == "output" { print $2 }' files | while read -r written; do
            awk -F '\t' '$1 == "input" { print $2 "\t" $3 }' files | while IFS=$'\t' read -r input value; do
                run $words $operands "--$input=${value/FILE/folder/given}" "--$written" soft
                assert_trouble "${words%% *}"
                case "$words --$input --$written" in                    # a stream may replace itself; this is not one
                "moe-decode --resume --stream" | "moe-bench run --resume --output") continue ;;
                esac
                [[ $output == *"an output needs a file of its own" ]] || { echo "$words --$input: $output"; false; }
            done
            if [ "$operands" ]; then
                for name in folder/given ./folder/given soft hard; do
                    run $words ${operands#other} folder/given "--$written" $name
                    assert_trouble "${words%% *}"
                    [[ $output == *"an output needs a file of its own" ]] || { echo "$words: $output"; false; }
                done
            fi
        done
    done
    [ "$(cat folder/given)" = precious ]
    [ "$(ls)" = "$(printf 'files\nfolder\nhard\nother\nsoft')" ]
}

@test "files of standard input and output count, too, but not devices and pipes" {
    cd "$BATS_TEST_TMPDIR"
    moe-convert list > before
    cp before list
    run sh -c 'moe-view list >> list'
    assert_trouble moe-view
    [[ $output == *"list, named by FILE, is the file that standard output goes to; an output needs a file of its own" ]]
    run sh -c 'moe-view -o list < list'
    assert_trouble moe-view
    [[ $output == *"standard input is the same file as list, named by output; "* ]]
    run moe-convert synthetic --like x -o list --dry-run
    [[ $output != *"file of its own"* ]]
    cmp list before
    head -n 1 "$MOE_MODELS/pocket/heldout.jsonl" > one.jsonl
    moe-decode -q -m "$MOE_POCKET" -n 2 one.jsonl > plain
    moe-decode -q -m "$MOE_POCKET" -n 2 one.jsonl -o /dev/stdout > got
    cmp got plain
    moe-decode -q -m "$MOE_POCKET" -n 2 one.jsonl -o /dev/stdout | cmp - plain
    moe-decode -q -m "$MOE_POCKET" -n 2 one.jsonl -o /dev/null --stream /dev/null
}

@test "files named by a suite, a file of drafters or a checkpoint's folder are no outputs either" {
    cd "$BATS_TEST_TMPDIR"
    ln -s "$MOE_POCKET" pocket.moe
    head -n 1 "$MOE_MODELS/pocket/heldout.jsonl" > one.jsonl
    cp one.jsonl copy.jsonl
    echo '{}' > table.json
    cp "${MOE_POCKET%/*}/draft.moe" draft.moe
    moe-convert attach -q pocket.moe draft.moe
    cat > suite.json <<'JSON'
{"model": "pocket.moe", "prompts": "one.jsonl", "settings": [{"name": "none"},
 {"name": "K", "draft": "ngram", "policy": "cascade-cost:cost=table.json"}, {"name": "auto", "draft": "auto"}]}
JSON
    cp "$MOE_BIN/moe-view" moe-bench            # a program that is not run
    for name in one.jsonl pocket.moe table.json draft.moe pocket.moe.drafters moe-bench; do
        ln -sf $name link
        for part in "run suite.json" "identity suite.json" "ab --build moe-bench --build $MOE_BIN suite.json" \
                    "tune -m pocket.moe one.jsonl"; do
            case "$part $name" in tune*table.json | tune*bench | run*bench | identity*bench) continue ;; esac
            run moe-bench $part -o link
            assert_trouble moe-bench
            [[ $output == *"$name"*"an output needs a file of its own" ]] || { echo "$output"; false; }
        done
    done
    cmp draft.moe "${MOE_POCKET%/*}/draft.moe"
    cp one.jsonl out.moes.part
    sed 's/one.jsonl/out.moes.part/' suite.json > other.json
    run moe-bench run other.json -o out.moes
    assert_trouble moe-bench
    [[ $output == *"out.moes.part"*"used by output; an output needs a file of its own" ]]
    cmp one.jsonl copy.jsonl
    cmp out.moes.part copy.jsonl
    cp -r "$MOE_MODELS/pocket/model" checkpoint
    ls checkpoint | while read -r name; do
        case $name in config.json | tokenizer.json | *.safetensors) ;; *) continue ;; esac
        run moe-convert checkpoint -o "checkpoint/$name"
        assert_trouble moe-convert
        [[ $output == *"$name"*"an output needs a file of its own" ]] || { echo "$output"; false; }
    done
    diff -r checkpoint "$MOE_MODELS/pocket/model"
    moe-convert -q checkpoint -o checkpoint/model.moe
    moe-convert -q checkpoint -o checkpoint/model.moe           # of a folder's files only those count that are read
}

# command, options of which one has no effect with or without another, expected message
pairs() {
    cat <<'EOF'
moe-decode|--record route|--record: it is recorded in a stream; add --stream
moe-decode|--stream x --record-length 4|--record-length: has no effect without recorded drafts; add --record
moe-decode|--stream x --record drafts --tree chain -d ngram --record-length 4|--record-length: trees are recorded in the shape that --tree gives; leave out this option or --tree
moe-decode|--force|--force: there is no ranking to use; add --rank
moe-decode|--rank path|--rank: says which experts are kept, but not how many; add --budget
moe-decode|--budget-phase decode|--budget-phase: says which experts are kept, but not how many; add --budget
moe-decode|--budget-mode truncate|--budget-mode: says which experts are kept, but not how many; add --budget
moe-decode|--reconstruction|--reconstruction: there is no budget whose error could be measured; add --budget
moe-decode|--overlap|--overlap: there are no drafts to measure; add --draft, --force-accept or --settings
moe-decode|--accept coupled --force-accept x|--accept: has no effect on forced text; leave out this option or --force-accept
moe-decode|-B 2 --force-routes x|--budget: has no effect on forced routes or text; leave out this option or --force-routes
moe-decode|--top-k 4|--top-k: has no effect at temperature 0; add --temperature
moe-decode|--top-p 0.5|--top-p: has no effect at temperature 0; add --temperature
moe-decode|--min-p 0.5|--min-p: has no effect at temperature 0; add --temperature
moe-decode|--seed 4|--seed: has no effect at temperature 0; add --temperature, --draft, --force-accept or --settings
moe-decode|--accept rejection|--accept: there are no drafts to accept; add --draft or --settings
moe-decode|--tree chain|--tree: there is nothing to draft with; add --draft or --force-accept
moe-decode|--policy static|--policy: there is nothing to draft with; add --draft or --force-accept
moe-decode|--cache-policy lru|--cache-policy: no experts are cached; add --cache-experts
moe-decode|--prefetch draft|--prefetch: no experts are cached; add --cache-experts
moe-decode|--hot-set x|--hot-set: no experts are cached; add --cache-experts
moe-decode|--forecasts|--forecasts: it is recorded in a stream; add --stream
moe-decode|--overlap -d ngram|--overlap: it is recorded in a stream; add --stream
moe-decode|--json --stream -|--json: standard output already receives the stream; write the JSON to a file with -o FILE
moe-profile|--temperature 1|--temperature: nothing is decoded after prompts; add --max-tokens
moe-profile|-d ngram|--draft: nothing is decoded after prompts; add --max-tokens
moe-profile|-K 4|--draft-length: nothing is decoded after prompts; add --max-tokens
moe-profile|--stop x|--stop: nothing is decoded after prompts; add --max-tokens
moe-profile|-B 2|--budget: nothing is decoded after prompts; add --max-tokens
moe-profile|--force|--force: there is no ranking to use; add --rank
moe-profile|-n 4 --rank path|--rank: says which experts are kept, but not how many; add --budget
moe-profile features|--top-k 4|--top-k: no answers are generated; add --max-tokens
moe-profile features|-n 4 --top-k 4|--top-k: has no effect at temperature 0; add --temperature
moe-profile skip|--cache-policy lru|--cache-policy: no experts are cached; add --cache-experts
moe-profile features|--cache-policy lru|--cache-policy: no experts are cached; add --cache-experts
moe-view|--json --csv|--json, --csv and --verify exclude each other; give one
moe-view|--verify --type x|--type: all is verified; leave out this option or --verify
moe-view|--verify -l 1|--layer: all is verified; leave out this option or --verify
moe-coact coverage|--json --svg|--text, --json, --csv and --svg exclude each other; give one
moe-coact locality|--text --csv|--text, --json, --csv and --svg exclude each other; give one
moe-coact rank-experts|--text --csv|--text, --json and --csv exclude each other; give one
moe-coact rank-experts|-B 4 --total 9|--budget, --keep and --total exclude each other; give one
moe-bench run|x --resume y --text|--resume, --text and --print-suite exclude each other; give one
moe-bench report|x --json --html|--text, --markdown, --json, --csv, --svg and --html exclude each other; give one
moe-bench report|x --window 3|--window: applies to figures; add --figure
moe-bench report|x --figure utility --sort ratio|--sort: a figure has its own order; leave out this option or --figure
moe-bench simulate|x --json --markdown|--json, --markdown and --svg exclude each other; give one
moe-bench simulate|x --iterations|--iterations: applies to cache policies; add --cache-policy
moe-bench simulate|x --prefetch last|--prefetch: applies to named systems; add --system
moe-bench simulate|x --cache-policy lru --iterations|--iterations: its output is JSON lines; add --json
moe-bench simulate|x --cache-policy lru --system lru|--cache-policy: compares cache policies only; leave out this option or --system
moe-draft-train train|--fold|--fold: adds up small batches; add --micro-batch
moe-draft-train train|--temperature 1|--temperature: no answers are generated; add --max-tokens
moe-draft-train train|--top-p 0.5|--top-p: no answers are generated; add --max-tokens
moe-draft-train train|-n 4 --top-p 0.5|--top-p: has no effect at temperature 0; add --temperature
moe-draft-train train|-n 4 --policy static|--policy: there is nothing to draft with; add --draft
moe-draft-train train|-K 4|--draft-length: no answers are generated; add --max-tokens
moe-profile features|-K 4|--draft-length: no answers are generated; add --max-tokens
moe-draft-train eval|x --decode|--decode: no answers are generated; add --max-tokens
moe-draft-train eval|x --json --csv|--text, --json and --csv exclude each other; give one
moe-convert|--list-families --dtype q8|--dtype: nothing is converted; leave out this option or --list-families
moe-convert|--list-families x|--list-families: prints a table and converts nothing; leave it or x out
moe-convert synthetic|--head eagle1|--head: a draft head is made for a model; add --target
moe-convert synthetic|--target x|--target: it applies to draft heads; add --head
moe-convert synthetic|--head eagle1 --target x --layers 2|--layers: a draft head has one layer or none; leave out this option or --head
moe-convert inflate|x --step 2%|--step: it is a share of another model's bytes; add --of
moe-convert inflate|x --of y|--of: the share of the model's bytes is missing; add --step
EOF
}

@test "an option that has no effect beside others, or without one, is refused, alike everywhere" {
    cd "$BATS_TEST_TMPDIR"
    local words options said
    pairs > pairs.txt
    while IFS='|' read -r words options said; do
        run $words $options < /dev/null
        assert_trouble "${words%% *}"
        [ "$output" = "${words%% *}: $said" ] || { echo "$words $options: $output"; false; }
    done < pairs.txt
    [ "$(ls)" = pairs.txt ]
    # The value "none" is as good as no option.
    run moe-decode -m nowhere.moe -p x --record none
    assert_trouble moe-decode
    [[ $output == *nowhere.moe* ]]
    # Every rule of a table names options of its subcommand, so that none is misspelt.
    sed -n -E 's/.*\{OPT_(NEEDS|EXCLUDES|EXCLUSIVE), ("[^"]*"|NULL), ("[^"]*"|NULL).*/\2 \3/p' "$top"/cmd/*.c "$top"/common/session/*.h |
        tr -d '"' | tr '| ' '\n\n' | sort -u | grep -v '^NULL$' > named.txt
    for words in $(commands); do $words --help=spec; done | awk -F '\t' '$1 == "option" { print $3 }' | sort -u > known.txt
    [ "$(wc -l < named.txt)" -ge 30 ]
    [ -z "$(comm -23 named.txt known.txt)" ]
}

@test "an option that has no effect on these prompts or this device is noted in one line" {
    cd "$BATS_TEST_TMPDIR"
    local options said
    echo 'a text' > text.txt
    echo '{"tokens": [1, 2]}' > ids.jsonl
    echo '{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}' > chat.jsonl
    while IFS='|' read -r options said; do
        run -0 moe-decode -m "$MOE_POCKET" -n 1 $options
        [ "$(grep -c '^moe-decode: ' <<< "$output")" = 1 ]
        [ "${lines[0]}" = "moe-decode: $said" ] || { echo "$options: $output"; false; }
        [ -z "$(moe-decode -q -m "$MOE_POCKET" -n 1 $options 2>&1 > /dev/null)" ]
    done <<'EOF'
-p a -d none -K 4|--draft-length: has no effect: nothing is drafted
-p a -d none --policy static|--policy: has no effect: nothing is drafted
-p a --temperature 0 --top-p .5|--top-p: has no effect: --temperature 0 chooses the most likely token
-p a --device ref -j 2|--threads: has no effect: device ref computes with one thread, in plain C
-p a --template-arg x=y|--template-arg: has no effect: no prompt is a chat
ids.jsonl --chat|--chat: has no effect: no prompt is a bare text
chat.jsonl --system x|--system: has no effect: each chat has a message of the system
chat.jsonl --whole|--whole: has no effect: no file of text is among the prompts
text.txt --field x|--field: has no effect: no prompt is a JSON object
EOF
    [ -z "$(moe-decode -m "$MOE_POCKET" -n 1 text.txt chat.jsonl --whole --field prompt --chat --system x 2>&1 > /dev/null | grep 'no effect')" ]
    run -0 moe-bench run -m "$MOE_POCKET" -n 1 --top-k 4 text.txt --measure-seconds 0 -o run.moes
    [ "$output" = "moe-bench: setting 'none': --top-k: has no effect: --temperature 0 chooses the most likely token" ]
}

@test "names of files that are not UTF-8 are accepted, and recorded with U+FFFD" {
    cd "$BATS_TEST_TMPDIR"
    local name=$'m\377.moe' rest
    ln -s "$MOE_POCKET" "$name"
    moe-decode -q -m "$name" -n 1 -p a -B 2 -d model:file="$name" --stream out.moes
    moe-view out.moes > view
    grep -qF $'moe-decode -q -m m\xef\xbf\xbd.moe -n 1' view
    cp "$MOE_MODELS/pocket/heldout.jsonl" $'p\377.jsonl'
    for rest in "$name a.jsonl" "$MOE_POCKET "$'p\377.jsonl' "$MOE_POCKET a.jsonl --stop "$'\377'; do
        run moe-bench run --print-suite -m $rest
        assert_trouble moe-bench
        [[ $output == *"' is not valid UTF-8, which a suite needs; convert the text, or rename the file" ]]
    done
}

@test "option names of other programs are answered with moekit's" {
    local words said
    while IFS='|' read -r words said; do
        run $words
        assert_trouble "${words%% *}"
        [ "$output" = "${words%% *}: $said" ] || { echo "$words: $output"; false; }
    done <<'EOF'
moe-decode --n-predict 4|--n-predict: in moekit use -n
moe-decode --max-new-tokens=4|--max-new-tokens: in moekit use -n
moe-decode --temp 0.8|--temp: in moekit use --temperature
moe-decode --min_p .1|--min_p: in moekit use --min-p
moe-decode --max_new_tokens 4|--max_new_tokens: in moekit use -n
moe-decode -t 4|-t: in moekit use -j
moe-decode -ngl 99|-ngl: in moekit use --device
moe-decode --ctx-size 4096|--ctx-size: in moekit use -c
moe-decode --max-model-len 4096|--max-model-len: in moekit use -c
moe-decode -f prompts.txt|-f: in moekit use the file itself, without an option
moe-decode --speculative-config x|--speculative-config: in moekit use -d KIND and -K N
moe-decode --num-speculative-tokens 4|--num-speculative-tokens: in moekit use -K
moe-decode --draft-max 4|--draft-max: in moekit use -K
moe-decode --model-draft m.moe|--model-draft: in moekit use -d model:file=FILE
moe-decode --tensor-parallel-size 2|--tensor-parallel-size: in moekit use --ranks, under mpirun
moe-decode --tensor-split 1,1|--tensor-split: moekit has no such option: a process uses one device
moe-decode -np 4|-np: in moekit use --parallel
moe-decode -m x.moe -md d.moe|-md: in moekit use -d model:file=FILE
moe-decode -hf org/name|-hf: in moekit use -m, with a file that moe-convert made
moe-decode --override-tensor exps=CPU|--override-tensor: in moekit use --cache-experts
moe-decode --dtype q8|--dtype: in moekit use -m, with a file that moe-convert --dtype made
moe-decode -cnv|-cnv: in moekit use --chat, without prompts at a terminal
moe-decode -ot exps=CPU|-ot: in moekit use --cache-experts
moe-decode -output x|unknown option -output; did you mean --output?
moe-decode -top_k 4|-top_k: in moekit use --top-k
moe-decode -m=x.moe|-m=x.moe: a value follows a letter without =; write -m x.moe or --model=x.moe
moe-decode -qo=x|-o=x: a value follows a letter without =; write -o x or --output=x
moe-decode -temperatur 1|unknown option -temperatur; did you mean --temperature?
moe-decode -t8|-t: in moekit use -j
moe-decode -qx|unknown option -x; --help lists the options
moe-decode -x9|unknown option -x9; --help lists the options
moe-decode --lora x|--lora: moekit has no such option: it applies no adapters
moe-profile --n-predict 4|--n-predict: in moekit use -n
moe-draft-train train --lr 1e-3|--lr: in moekit use --rate
moe-draft-train train --learning_rate 1e-3|--learning_rate: in moekit use --rate
moe-draft-train train --batch-size 8|--batch-size: in moekit use -b
moe-draft-train train --num-train-epochs 8|--num-train-epochs: in moekit use --epochs
moe-draft-train train --gradient-accumulation-steps 2|--gradient-accumulation-steps: in moekit use --micro-batch, a part of --batch
moe-draft-train train --resume-from-checkpoint x|--resume-from-checkpoint: in moekit use --resume
moe-decode --batch-size 8|--batch-size: in moekit use --parallel
moe-view --ctx-size 4|unknown option --ctx-size; --help lists the options
moe-view -n 4|unknown option -n; --help lists the options
moe-decode --contxt 4|unknown option --contxt; did you mean --context?
moe-coact covrage|'covrage' is not a subcommand; did you mean coverage?
moe-bench --csv report x|--csv: put the subcommand before the options: moe-bench report --csv ...
moe-coact --layer 1 coverage|--layer: put the subcommand before the options: moe-coact coverage --layer ...
moe-convert -q inflate model --expert-ffn 9|put the subcommand inflate before the options: moe-convert inflate -q ...
moe-convert -o x.moe head model|put the subcommand head before the options: moe-convert head -o ...
moe-bench reprot|'reprot' is not a subcommand; did you mean report?
EOF
    # Every suggested option exists in some command.
    for words in $(commands); do $words --help=spec; done | awk -F '\t' '$1 == "option" { print $3 }' | sort -u > "$BATS_TEST_TMPDIR/known"
    sed -n '/names\[\] = {/,/};/p' "$top/common/cli/foreign.c" | grep -o '{"[^}]*}' | cut -d'"' -f4 | sort -u |
        comm -23 - "$BATS_TEST_TMPDIR/known" > "$BATS_TEST_TMPDIR/missing"
    [ ! -s "$BATS_TEST_TMPDIR/missing" ] || { cat "$BATS_TEST_TMPDIR/missing"; false; }
}

# Prints bash's suggestions for these words, the last of which is being typed; one per line.
offered() {
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _${1//-/_}; printf "%s\n" "${COMPREPLY[@]}"' - \
        "$top/completions/bash/$1" "$@" | sort | tr '\n' ' '
}

@test "completions offer the words that have settings, the names of shapes, and models by their ending" {
    cd "$BATS_TEST_TMPDIR"
    mkdir more
    touch a.moe b.txt
    [ "$(offered moe-decode -m '')" = "a.moe more " ]
    [ "$(offered moe-decode --model b)" = " " ]
    [ "$(offered moe-decode -d '')" = "auto head: lookahead lookahead: model: mtp mtp: ngram ngram: none pld pld: self: suffix: " ]
    [ "$(offered moe-decode --draft ng)" = "ngram ngram: " ]
    [ "$(offered moe-decode --tree d)" = "dynamic: " ]
    [ "$(offered moe-decode --accept t)" = "typical: " ]
    [ "$(offered moe-decode --rank '')" = "a.moe b.txt more oracle oracle: path router " ]
    [ "$(offered moe-decode --rank or)" = "oracle oracle: " ]
    [ "$(offered moe-convert synthetic --like qwen3)" = "qwen3-0.6b qwen3-30b-a3b qwen3.6-35b-a3b " ]
    [ "$(offered moe-convert synthetic --like '' | wc -w)" = "$(($(moe-convert list | sed '1,/^shapes/d' | wc -l) + 3))" ]
    # After a kind's file= follow files, as bash splits the word there.
    [ "$(offered moe-decode -d model : file = a)" = "a.moe " ]
}

@test "the ranges that moe-decode(1) lists are those that it takes" {
    local page="$BATS_TEST_DIRNAME/../../man/moe-decode.1" rows=0
    printf '.It draft ngram Ta n Ta 1 Ta 16 Ta 4\n' | cmp - <(grep '^.It draft ngram Ta n ' "$page")
    while read -r option kind setting from to; do
        draft="--draft ngram"
        [ $option != draft ] || draft=
        run moe-decode -q -m "$MOE_POCKET" -n 1 -p One. $draft --$option $kind:$setting=99999999
        [ "$status" -eq 2 ] || { echo "$option $kind $setting"; return 1; }
        LC_ALL=C awk -v message="$output" -v from="$from" -v to="$to" 'BEGIN {
            if (!match(message, /between [-+.e0-9]+ and [-+.e0-9]+$/)) exit 1
            split(substr(message, RSTART), word, " ")
            exit !(word[2] + 0 == from + 0 && word[4] + 0 == to + 0) }' || { echo "$option $kind $setting: $output"; return 1; }
        rows=$((rows + 1))
    done < <(awk '/^\.Ss / { inside = /Ranges/ } inside && /^\.It [a-z]/ { gsub(/\\-/, "-"); gsub(/ Ta/, ""); print $2, $3, $4, $5, $6 }' "$page")
    [ $rows -gt 50 ]
}

@test "a command without a required argument names it" {
    cd "$BATS_TEST_TMPDIR"
    moe-profile -q -m "$MOE_POCKET" -n 1 "$MOE_MODELS/pocket/long.jsonl" -o r.moes
    ln -s "$MOE_POCKET" m.moe
    cp "$MOE_MODELS/pocket/long.jsonl" p.jsonl
    while IFS='|' read -r words said; do
        run sh -c "$words < /dev/null"
        assert_trouble "${words%% *}"
        [ "$output" = "${words%% *}: $said" ] || { echo "$words: $output"; false; }
    done <<'WRONG'
moe-bench run|no suite; name one, SUITE.json, or a model and prompts: moe-bench run -m MODEL.moe PROMPTS.jsonl
moe-bench run m.moe|m.moe: is a model file, not a suite; to run without a suite: moe-bench run -m m.moe PROMPTS
moe-bench run p.jsonl|p.jsonl: is a file of prompts, not a suite; to run without a suite: moe-bench run -m MODEL.moe p.jsonl
moe-bench gate r.moes|r.moes: is a stream, not a suite (a JSON file that names models, prompts and settings); to show the stream: moe-bench report r.moes
moe-bench run .|.: is a folder; name a file
moe-bench compare r.moes|NOW is missing; usage: moe-bench compare [OPTION...] BASE NOW
moe-bench report|standard input: is empty, so its producer wrote nothing, or no file was named
moe-convert|SOURCE is missing; name a checkpoint's folder or file, or a repository of the Hugging Face hub
moe-convert synthetic --like olmoe -o x.moe|--like olmoe: unknown shape; did you mean olmoe-1b-7b? `moe-convert list` lists the known shapes, and a config.json can be named instead
moe-convert buld p.jsonl -o x.moe|'buld' is neither a file nor a subcommand; did you mean build?
moe-convert p.jsonl --name "" -o x.moe|--name: the name is empty; give one, or leave --name out for the default
moe-view -l 99 m.moe|--layer 99: no such layer; this model has the layers 0 to 5
moe-decode -m m.moe /dev/zero|/dev/zero:1: begins with a zero byte, as no text does; name a file of prompts
moe-decode -m m.moe -p x --reference self|--reference: it is recorded in a stream; add --stream
moe-decode -m m.moe -p x --hot-set none/h --cache-experts 50%|--hot-set: none/h: files cannot be written to the folder of this output; name another: No such file or directory
moe-bench run -m m.moe -d none,nosuch -K 2 p.jsonl|setting 'nosuch': --draft: 'nosuch' is not a drafter; there are none, ngram, pld, suffix, lookahead, model, self, head and mtp
moe-bench tune -m m.moe p.jsonl -o none/x|none/x: files cannot be written to the folder of this output; name another: No such file or directory
moe-bench sweep -m m.moe -o none/x|none/x: files cannot be written to the folder of this output; name another: No such file or directory
moe-profile skip -m m.moe p.jsonl -o none/x|none/x: files cannot be written to the folder of this output; name another: No such file or directory
moe-decode -m - -p x|-m -: a model file cannot be read from standard input, because it is mapped; name a file
moe-convert /dev/zero -o x.moe|/dev/zero: begins with zero bytes, so it is not a checkpoint or an archive; name a folder, a file of weights, or a tar or zip archive of them
moe-convert synthetic --like none -o x.moe|--like none: unknown shape; `moe-convert list` lists the known shapes, and a config.json can be named instead
WRONG
    # A refusal is one line, also for a run that would have noted reused texts.
    run moe-bench run -m m.moe -d none -K 0 p.jsonl --resume none/x.moes
    [ "$output" = "moe-bench: none/x.moes: files cannot be written to the folder of this output: No such file or directory" ]
    run moe-decode -m m.moe -n 1 p.jsonl --resume none/x.moes --stream none/x.moes
    [ "$output" = "moe-decode: none/x.moes: files cannot be written to the folder of this output: No such file or directory" ]
    # A missing field is noted if another key is read instead.
    echo '{"tokens": [1, 2]}' > ids.jsonl
    moe-decode -m m.moe -n 1 --field question ids.jsonl 2>&1 > /dev/null |
        cmp - <(echo 'moe-decode: ids.jsonl:1: --field: there is no key "question"; its "tokens" is read')
    for words in moe-view 'moe-bench report' 'moe-coact coverage'; do      # a terminal is not waited for
        run bounded "$BATS_TEST_DIRNAME/at-terminal.py" -- $words
        [ "$status" = 2 ]
        [[ $output == *"standard input is a terminal; name a "* ]]
    done
}
