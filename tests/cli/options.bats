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
