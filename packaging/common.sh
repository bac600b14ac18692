# What the scripts of packaging/ share; they source it in the top folder.

fail() { echo "moekit: $*" >&2; exit 1; }
need() { command -v "$1" > /dev/null || fail "$2"; }

version=$(sed -n 's/^#define MOE_VERSION "\(.*\)"/\1/p' common/base/version.h)
[ -n "$version" ] || fail "common/base/version.h has no MOE_VERSION"

# The time of all files of a package: that of the commit, which files of a source archive have, too.
if [ -z "$SOURCE_DATE_EPOCH" ]; then
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2> /dev/null) || SOURCE_DATE_EPOCH=$(stat -c %Y GNUmakefile)
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
# Nothing of the make that runs the script.
unset MAKEFLAGS MFLAGS MAKELEVEL

# XZ='xz -0': a quicker compressor for a trial. One thread, because the number of threads decides where blocks end.
XZ=${XZ:-xz -6 -T1}

# pack FOLDER FILE: a folder of $work as one compressed archive; neither the build's time nor its user is in it.
pack() {
    tar -C "$work" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=go=rX -cf - "$1" | $XZ > "$2.part"
    mv "$2.part" "$2"
    echo "  packed ${2#"$PWD/"}"
}

# archive_of_sources: the committed tree as a tar archive, or the unpacked source archive that this tree is.
archive_of_sources() {
    if git rev-parse --git-dir > /dev/null 2>&1 && [ -z "$(git rev-parse --show-prefix)" ]; then
        git diff --quiet HEAD -- || echo "moekit: note: uncommitted changes are left out of the package" >&2
        git -c tar.umask=0022 archive --format=tar --prefix="moekit-$version/" HEAD
    else
        tar --exclude=./build --exclude='*.moe' --exclude='*.moes' --transform="s,^\.,moekit-$version," --sort=name --format=gnu \
            --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - .
    fi
}
