# make install, uninstall and the completions as a shell uses them.

load common

setup() {
    [ -z "$MOE_SANITIZED" ] || skip "the normal build is installed"
    unset MAKEFLAGS MAKELEVEL
}

@test "install puts every command, page, completion and tree in place, uninstall takes them away" {
    root=$BATS_TEST_TMPDIR/root
    # The commands under test are used as they are: `-o all` makes none of them anew.
    run make -C "$top" -s -o all install DESTDIR="$root" prefix=/usr
    [ "$status" -eq 0 ]
    for name in $(commands); do
        [ -x "$root/usr/bin/$name" ]
        "$root/usr/bin/$name" --version
        [ -s "$root/usr/share/man/man1/$name.1" ]
        [ -s "$root/usr/share/bash-completion/completions/$name" ]
        [ -s "$root/usr/share/zsh/site-functions/_$name" ]
        [ -s "$root/usr/share/fish/vendor_completions.d/$name.fish" ]
    done
    for tree in "$top"/trees/*; do
        cmp "$tree" "$root/usr/share/moekit/trees/${tree##*/}"
    done
    run make -C "$top" -s uninstall DESTDIR="$root" prefix=/usr
    [ "$status" -eq 0 ]
    run find "$root" -type f
    [ -z "$output" ]
}

# complete WORDS...: what bash would offer for the last word.
complete_in_bash() {
    bash -c '. "$0/completions/bash/$1"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_${1//-/_}"; echo "${COMPREPLY[*]}"' \
        "$top" "$@"
}

@test "bash completes subcommands, options and choices" {
    run complete_in_bash moe-coact rank
    [ "$output" = rank-experts ]
    run complete_in_bash moe-coact rank-experts --bu
    [ "$output" = --budget ]
    run complete_in_bash moe-coact rank-experts --by ""
    [ "$output" = "frequency mass coverage pairs" ]
    run complete_in_bash moe-coact rank-experts --by = ma
    [ "$output" = mass ]
    run complete_in_bash moe-coact coverage --sv
    [ "$output" = --svg ]
    cd "$top"
    run complete_in_bash moe-coact coverage --rank GNUm
    [ "$output" = GNUmakefile ]
}

@test "fish completes subcommands and choices" {
    command -v fish || skip "no fish here"
    run fish --no-config -c "source $top/completions/fish/moe-coact.fish; complete -C 'moe-coact rank-experts --by m'"
    [[ $output == *mass* ]]
    run fish --no-config -c "source $top/completions/fish/moe-coact.fish; complete -C 'moe-coact cov'"
    [[ $output == *coverage* ]]
}
