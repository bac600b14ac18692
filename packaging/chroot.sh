# Functions shared by packaging/chroot and packaging/cross, which source this file after common.sh.

need debootstrap "${0#./} needs debootstrap"
[ "$(id -u)" = 0 ] || fail "${0#./}: run as root, which chroot needs"
mirror=${MIRROR:-http://deb.debian.org/debian}
export DEBIAN_FRONTEND=noninteractive

# inside ROOT COMMAND...: runs the command in the chroot ROOT with /proc mounted, in a mount namespace of its own
inside() { unshare -m sh -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' sh "$@"; }
# quiet LOG COMMAND...: its output is printed only if it fails
quiet() { log=$1; shift; "$@" > "$log" 2>&1 || { tail -n 40 "$log" >&2; fail "failed: $log"; }; }

# unpack_base SUITE: a base system in $PACKED/SUITE/base, if it is not there yet
unpack_base() {
    mkdir -p "$PACKED/$1"
    [ ! -e "$PACKED/$1/base/etc/debian_version" ] || return 0
    echo "$1: unpack the base"
    rm -rf "$PACKED/$1/base.part"
    quiet "$PACKED/$1/log" debootstrap --variant=minbase "$1" "$PACKED/$1/base.part" "$mirror"
    mv "$PACKED/$1/base.part" "$PACKED/$1/base"
}
