# What every command has in common: options, help, version, standard output.

load common

# Every command and subcommand, a line each: "moe-coact rank-experts".
every_subcommand() {
    local name
    for name in $(commands); do
        "$name" --help=spec | awk -F '\t' -v name="$name" '$1 == "subcommand" { print name, ($2 == "-" ? "" : $2) }'
    done
}

@test "help and version are there for every command" {
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

@test "an unknown option is one line, with the nearest name" {
    every_subcommand | while read -r words; do
        run $words --no-such-option-at-all
        assert_trouble "${words%% *}"
        [[ $output == *"unknown option --no-such-option-at-all"* ]]
        run $words --hepl
        assert_trouble "${words%% *}"
        [[ $output == *"did you mean --help?"* ]]
    done
}

@test "an option without its value is an error that names it" {
    every_subcommand | while read -r words; do
        $words --help=spec | awk -F '\t' -v sub_name="${words#* }" '
            $1 == "subcommand" { inside = ($2 == sub_name || $2 == "-") }
            $1 == "option" && inside && $4 != "flag" { print $3 }' | while read -r option; do
            run $words "--$option"
            assert_trouble "${words%% *}"
            [[ $output == *"--$option: needs a value"* ]] || { echo "$words: $output"; false; }
        done
    done
}

@test "a count is taken whole and within its range" {
    every_subcommand | while read -r words; do
        $words --help=spec | awk -F '\t' -v sub_name="${words#* }" '
            $1 == "subcommand" { inside = ($2 == sub_name || $2 == "-") }
            $1 == "option" && inside && $4 ~ /^(count|count-auto|size|uint64|float)$/ { print $3 }' | while read -r option; do
            for value in 8x '' -1 99999999999999999999999 0x10; do
                [ "$value" != -1 ] || [[ $option != temperature ]] || continue
                run $words "--$option=$value"
                assert_trouble "${words%% *}"
                [[ $output == *"--$option: "* ]] || { echo "$words --$option=$value: $output"; false; }
            done
        done
    done
}

@test "help into a full device is trouble, into a closed pipe is quiet" {
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

# "output TAB name", "input TAB name TAB value with FILE for the file", "operand" of one subcommand, from its table.
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

@test "what standard input and output are counts, too, but not devices and pipes" {
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

@test "what only a suite or a checkpoint's folder names is no output either" {
    cd "$BATS_TEST_TMPDIR"
    ln -s "$MOE_POCKET" pocket.moe
    head -n 1 "$MOE_MODELS/pocket/heldout.jsonl" > one.jsonl
    cp one.jsonl copy.jsonl
    echo '{}' > table.json
    cat > suite.json <<'JSON'
{"model": "pocket.moe", "prompts": "one.jsonl", "settings": [{"name": "none"},
 {"name": "K", "draft": "ngram", "policy": "cascade-cost:cost=table.json"}]}
JSON
    for name in one.jsonl pocket.moe table.json; do
        ln -sf $name link
        for part in run identity; do
            run moe-bench $part suite.json -o link
            assert_trouble moe-bench
            [[ $output == *"$name"*"an output needs a file of its own" ]] || { echo "$output"; false; }
        done
    done
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
    moe-convert -q checkpoint -o checkpoint/model.moe           # of what a folder has, only what is read counts
}
