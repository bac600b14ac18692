#!/usr/bin/env bats
# The programs that run tests, and the helpers of common.bash: they report every way in which tests can fail.

load common

setup() { cd "$BATS_TEST_TMPDIR"; }

# The file from standard input has the exit status $1, and prints the other arguments, a line each, and comments.
gives() {
    local status=0
    cat > file.bats
    "$top/tests/run-bats" "$PWD/file.bats" > said 2> notes || status=$?
    grep -v '^#' said > lines || [ $? = 1 ]
    [ "$status" = "$1" ] && shift && diff <([ $# = 0 ] || printf '%s\n' "$@") lines || { cat file.bats said notes; return 1; }
}

@test "a test fails however it fails, and the tests after it run" {
    local faults number=0 fault expected=()
    mapfile -t faults <<-'END'
	false; true
	[ 1 = 2 ]; true
	[[ a == b ]]; true
	((0)); true
	x=$(false); true
	(false; true); true
	inner() { false; true; }; inner; true
	for i in 1 2; do false; done; true
	true | false; true
	echo a | while read -r line; do [ "$line" = b ]; done; true
	diff <(echo a) <(echo b); true
	no_such_command; true
	echo > nowhere/file; true
	set -u; echo "$nothing"; true
	echo "${nothing:?}"; true
	echo $((1 / 0)); true
	source nowhere; true
	return 3
	exit 0
	exit 3
	exec true
	trap true EXIT; exit 0
	kill -9 $BASHPID; true
	kill $BASHPID; true
	(skip); false; true
	END
    {
        for fault in "${faults[@]}"; do
            printf '@test "fault %s" {\n    %s\n}\n@test "fine %s" { true; }\n' $number "$fault" $number
            expected+=("not ok $((2 * number + 1)) fault $number" "ok $((2 * number + 2)) fine $number")
            number=$((number + 1))
        done
    } > faults
    [ "$number" = 25 ]
    gives 1 "1..50" "${expected[@]}" < faults
    [ "$(grep -c 'failed with status' said)" -ge 15 ]
}

@test "a skipped test is reported as skipped, and the test after it is not" {
    gives 1 "1..3" "ok 1 a # skip why" "not ok 2 b" "ok 3 c" <<-'END'
	@test "a" {
	    skip why
	    false
	}
	@test "b" {
	    kill -9 $BASHPID
	}
	@test "c" {
	    true
	}
	END
    gives 0 "1..2" "ok 1 a # skip why" "ok 2 b # skip why" \
        < <(printf '@test "%s" {\n false\n}\n' a b; echo 'setup_file() { skip why; }')
}

@test "an error of setup, teardown, setup_file or teardown_file is a failure" {
    local test=$'@test "a" {\n    true\n}'
    for before in 'setup() { false; true; }' 'teardown() { false; true; }' 'setup() { exit 0; }'; do
        gives 1 "1..1" "not ok 1 a" <<< "$before"$'\n'"$test"
    done
    gives 1 "1..1" "ok 1 a" "not ok 2 teardown_file" <<< "teardown_file() { false; true; }"$'\n'"$test"
    for before in 'setup_file() { false; true; }' 'setup_file() { exit 0; }'; do
        gives 1 "1..1" "not ok 1 setup_file" <<< "$before"$'\n'"$test"
    done
    gives 137 "1..1" <<< 'setup_file() { kill -9 $BASHPID; }'$'\n'"$test"
}

@test "a file without tests, or with an error outside of them, fails" {
    local test=$'@test "a" {\n    true\n}'
    gives 2 < /dev/null
    gives 2 <<< 'true'
    grep -q 'file.bats: no test; ' notes
    for line in 'false' 'exit 0' 'load nowhere' 'if true; then' 'f() { ( }' '@test "b" {' '@test "b"' "@test 'b' {"; do
        gives 1 "not ok 1 setup_file" <<< "$test"$'\n'"$line"
    done
    echo "$test" > file.bats
    run "$top/tests/run-bats" "$PWD/file.bats" 'b*'
    [ "$status" = 2 ]
    [[ $output == "run-bats: "*": no test is called 'b*'; choose others" ]]
}

@test "the line that fails is shown after a change of folder, also that of a helper which a relative path named" {
    mkdir folder
    printf 'holds() {\n    cd /\n    [ "$1" = b ]\n}\n' > folder/helper.bash
    gives 1 "1..2" "not ok 1 a" "not ok 2 b" <<-'EOF'
	source folder/helper.bash
	own() {
	    cd /
	    false
	}
	@test "a" {
	    holds a
	}
	@test "b" {
	    own
	}
	EOF
    diff <(grep '^#' said) - <<-'EOF'
	# helper.bash, line 3, in holds
	# file.bats, line 7, in bats_test_1
	#   `[ "$1" = b ]' failed with status 1
	# file.bats, line 4, in own
	# file.bats, line 10, in bats_test_2
	#   `false' failed with status 1
	EOF
}

@test "helpers fail where a command does something else than they check" {
    local helpers="source '$top/tests/cli/common.bash'" faults fines line number=0 expected=()
    mapfile -t faults <<-'END'
	run -0 false
	run -1 true
	run no_such_command
	refute true
	refute no_such_command
	refute bash -c 'kill -9 $$'
	run bash -c 'echo "moe-x: why"; exit 1'; assert_trouble moe-x
	run bash -c 'echo "moe-x: why"; echo "moe-x: and"; exit 2'; assert_trouble moe-x
	run bash -c 'echo "moe-y: why"; exit 2'; assert_trouble moe-x
	within 2 1
	within '"other shapes"' 1
	END
    mapfile -t fines <<-'END'
	run -1 false
	run false; [ "$status" = 1 ]
	run bash -c 'echo a; echo b >&2'; [ "${lines[*]}" = "a b" ]
	refute false
	bound=7; [ "$(bounded bash -c 'ulimit -t')" = 7 ]; run bash -c 'ulimit -t'; [ "$output" = 7 ]
	run bash -c 'echo "moe-x: why" >&2; exit 2'; assert_trouble moe-x
	within 1 2
	echo a > byte; flip byte 0; [ "$(< byte)" = '`' ]; flip byte 0 2; [ "$(< byte)" = b ]
	END
    for line in "${faults[@]}" "${fines[@]}"; do
        number=$((number + 1))
        printf '@test "%s" {\n    %s\n}\n' $number "$line"
    done > tests
    for ((line = 1; line <= number; line++)); do
        expected+=("$([ $line -gt ${#faults[@]} ] || echo 'not ')ok $line $line")
    done
    gives 1 "1..$number" "${expected[@]}" < <(echo "$helpers"; cat tests)
}

# Copies the programs to a folder of their own, so that they leave the logs of this check alone.
copy_programs() {
    mkdir tests
    cp "$top"/tests/run-job "$top"/tests/run-checks tests
}

# A job NAME that runs COMMAND has so many tests that passed, failed and were skipped.
counts() {
    O=build/normal tests/run-job --waits "$2" bash -c "$3" > said 2>&1
    [[ $(tail -n 1 build/check/results) == "$2 "*" $1" ]] || { echo "$3: $(tail -n 1 build/check/results)"; cat said; return 1; }
}

@test "a job fails if a test fails, if its program ends badly, or if tests are missing" {
    copy_programs
    counts '2 0 0' normal/unit/a 'echo 1..2; echo ok 1; echo ok 2'
    counts '1 0 1' normal/unit/a 'echo 1..2; echo ok 1; echo "ok 2 # skip why"'
    counts '1 1 0' normal/unit/a 'echo 1..2; echo ok 1; echo not ok 2; exit 1'
    counts '1 1 0' normal/unit/a 'echo 1..2; echo ok 1; echo not ok 2'
    counts '2 1 0' normal/unit/a 'echo 1..2; echo ok 1; echo ok 2; exit 99'
    counts '1 1 0' normal/unit/a 'echo 1..1; echo ok 1; kill -9 $$'
    counts '1 1 0' normal/unit/a 'echo 1..2; echo ok 1'
    counts '1 1 0' normal/unit/a 'echo ok 1'
    counts '0 1 0' normal/unit/a 'true'
    counts '1 0 0' gate/a 'true'
    counts '0 1 0' gate/a 'false'
}

@test "a check fails if a job fails or cannot be built, and only then" {
    copy_programs
    cat > GNUmakefile <<-'END'
	list-jobs: ; @printf '%s\n' $(if $(SAN),asan/unit/d,gate/a normal/unit/b normal/unit/c)
	check-jobs: $(RUN:%=build/check/%.job)
	build/check/normal/unit/c.job: no-such-source
	build/check/%.job: ; @O=build/normal tests/run-job --waits '$*' bash -c "echo 1..1; echo ok 1; [ '$*' != '$(BAD)' ]"
	END
    run -0 env ONLY='gate/* asan/*' tests/run-checks
    [ "${lines[-1]}" = "2 passed, 0 failed" ]
    run -1 env ONLY='gate/* asan/*' BAD=asan/unit/d tests/run-checks
    [ "${lines[-1]}" = "2 passed, 1 failed" ]
    run -1 env ONLY='gate/* *unit*' tests/run-checks
    [ "${lines[-1]}" = "3 passed, 1 failed" ]
    [[ $output == *$'\n'"could not be run: normal/unit/c"$'\n'* ]]
    run -2 env ONLY=other tests/run-checks
}
