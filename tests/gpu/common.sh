# Read by tests/gpu/check and tests/gpu/bench, in the top folder: finds the device, the compiler for it and what the machine lacks,
# and builds into build/gpu. DEVICE: cuda, cuda:N; or emu, the emulator, to try the command itself.

DEVICE=${DEVICE:-cuda}
out=build/gpu
began=$(date +%s)
width=$(nproc 2>/dev/null || echo 4)

elapsed() { echo $(($(date +%s) - began)); }
cannot() { echo "$self: cannot judge: $1"; exit 125; }

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc build/cuda-toolkit/nvidia/cu13/bin/nvcc 2>/dev/null | head -n 1)
case $DEVICE in
emu) arch=${CUDA_ARCH:-90a} ;;
cuda | cuda:*)
    smi=$(command -v nvidia-smi || ls /usr/local/nvidia/bin/nvidia-smi 2>/dev/null)
    [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || cannot "there is no driver for GPUs here; DEVICE=emu tries the emulator"
    [ -n "$nvcc" ] || cannot "there is no nvcc here; make deps-cuda fetches it"
    # "9.0": 90a; what is older or newer than that has no `a' that is used here.
    capability=$($smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
    case $capability in
    90) arch=${CUDA_ARCH:-90a} ;;
    [0-9]*) arch=${CUDA_ARCH:-$capability} ;;
    *) arch=${CUDA_ARCH:-90a}; echo "$self: nvidia-smi does not say which GPU this is; building for sm_$arch (CUDA_ARCH= says another)" ;;
    esac ;;
*) echo "$self: DEVICE=$DEVICE is neither cuda, cuda:N nor emu" >&2; exit 2 ;;
esac

# cuBLAS as a wheel of the python3 in use, where nothing that the plug-in asks (kernels/cuda/gemm_path.h) would find it: in a
# virtual environment of its own. At the end of the loader's list, so that no other library of the wheels takes another's part.
wheels=$(python3 -c 'import glob, sys
for top in sys.path:
    for file in sorted(glob.glob(top + "/nvidia/*/lib/libcublas.so.*") if top else []):
        print(file.rsplit("/", 1)[0])' 2> /dev/null | awk '!seen[$0]++' | paste -sd :)
[ -z "$wheels" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels"

# Libraries and make: the kit, where it was brought along, unpacked once for each archive; else the system's.
kit=
if [ -e build/gpu-kit.tar.xz ] && ! [ build/gpu-kit/libs -nt build/gpu-kit.tar.xz ]; then
    rm -rf build/gpu-kit
    python3 -c 'import tarfile; tarfile.open("build/gpu-kit.tar.xz").extractall("build")' 2> build/gpu-kit.log && touch build/gpu-kit/libs ||
        { cat build/gpu-kit.log; cannot "build/gpu-kit.tar.xz cannot be unpacked with python3; make gpu-kit packs it anew"; }
fi
[ -e build/gpu-kit/libs ] && kit=build/gpu-kit
[ -z "$kit" ] || command -v make > /dev/null || MAKE=$PWD/$kit/bin/make
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}

describe() {
    echo "device   $DEVICE$([ -z "$smi" ] || $smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sed 's/^/: /')"
    echo "compiler $($nvcc --version 2>/dev/null | tail -n 1), for sm_$arch; $(gcc --version | head -n 1)"
    echo "machine  $(nproc) processors, $(date -u +%Y-%m-%d), commit $commit"
}

# Everything in one go: what it prints is in $out/build.log, the last lines of it here when it fails.
build() {
    mkdir -p "$out"
    if ! PATH="${nvcc:+${nvcc%/*}:}$PATH" ${MAKE:-make} -j"$width" O="$out" CUDA_ARCH="$arch" ${nvcc:+NVCC="$nvcc"} ${kit:+KIT="$kit"} \
        "$@" > "$out/build.log" 2>&1; then
        tail -n 40 "$out/build.log"
        return 1
    fi
    grep -A 6 'warning:' "$out/build.log" | head -n 20
    echo "built in $(elapsed) s"
}
