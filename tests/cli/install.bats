# make install, uninstall, packages, and the completions as a shell uses them.

load common

setup() {
    [ -z "$MOE_SANITIZED" ] || skip "the normal build is installed"
    unset MAKEFLAGS MAKELEVEL
}

@test "install puts every command, page, completion and tree in place, uninstall takes them away" {
    root=$BATS_TEST_TMPDIR/root
    # The commands under test are used unchanged: `-o all` prevents make from rebuilding them.
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

@test "dist packs the committed tree, with the same bytes in any time zone and umask" {
    git -C "$top" rev-parse HEAD > /dev/null 2>&1 || skip "no git checkout"
    make -C "$top" -s dist PACKED="$BATS_TEST_TMPDIR/a" XZ=cat
    (umask 077 && TZ=Asia/Tokyo make -C "$top" -s dist PACKED="$BATS_TEST_TMPDIR/b" XZ=cat)
    version=$(sed -n 's/.*MOE_VERSION "\(.*\)"/\1/p' "$top/common/base/version.h")
    archive=moekit-$version.tar.xz
    cmp "$BATS_TEST_TMPDIR/a/$archive" "$BATS_TEST_TMPDIR/b/$archive"
    cd "$top"
    # names with spaces and others, as git lists them
    tar -tf "$BATS_TEST_TMPDIR/a/$archive" | grep -v '/$' | sed "s,^moekit-$version/,," | sort > "$BATS_TEST_TMPDIR/packed"
    git ls-tree -r --name-only HEAD | sort | cmp - "$BATS_TEST_TMPDIR/packed"
    grep -qx packaging/debian/control "$BATS_TEST_TMPDIR/packed"
    [ -z "$(tar --numeric-owner -tvf "$BATS_TEST_TMPDIR/a/$archive" | awk '$2 != "0/0"')" ]
}

@test "packages: one line says what is missing, and make -n needs nothing" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    for tool in sh sed git stat dirname; do ln -s "$(command -v $tool)" "$BATS_TEST_TMPDIR/bin"; done
    run env PATH="$BATS_TEST_TMPDIR/bin" sh "$top/packaging/deb"
    [ "$status" -eq 1 ]
    [ "$output" = "moekit: deb needs dpkg-buildpackage: install dpkg-dev and debhelper" ]
    run make -C "$top" -n dist deb static PACKED="$BATS_TEST_TMPDIR/packed"
    [ "$status" -eq 0 ]
    [ ! -e "$BATS_TEST_TMPDIR/packed" ]
    run make -C "$top" -s STATIC=maybe help
    [ "$status" -ne 0 ]
    [[ $output == *"STATIC=maybe is not yes"* ]]
}

# complete WORDS...: prints bash's suggestions for the last word
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
