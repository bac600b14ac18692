# Sourced by tests/gpu/all, in the top folder: finds the device, its compiler and missing tools. DEVICE: cuda, cuda:N; or emu,
# the emulator, to try the command itself. Builds go into build/gpu.

DEVICE=${DEVICE:-cuda}
built=build/gpu
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
    # "9.0, NVIDIA H200, ...": 90a; older and newer ones have no `a' that is used here.
    card=$(timeout 20 $smi --query-gpu=compute_cap,name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)
    capability=$(echo "${card%%,*}" | tr -d '. ')
    case $capability in
    90) arch=${CUDA_ARCH:-90a} ;;
    [0-9]*) arch=${CUDA_ARCH:-$capability} ;;
    *) arch=${CUDA_ARCH:-90a}; echo "$self: nvidia-smi does not say which GPU this is; building for sm_$arch (CUDA_ARCH= says another)" ;;
    esac ;;
*) echo "$self: DEVICE=$DEVICE is neither cuda, cuda:N nor emu" >&2; exit 2 ;;
esac

# cuBLAS as a wheel of the current python3, if the plug-in (kernels/cuda/gemm_path.h) would not find it: in a virtual
# environment. At the end of the loader's list, so that no other library of the wheels takes precedence.
wheels=$(python3 -c 'import glob, sys
for top in sys.path:
    for file in sorted(glob.glob(top + "/nvidia/*/lib/libcublas.so.*") if top else []):
        print(file.rsplit("/", 1)[0])' 2> /dev/null | awk '!seen[$0]++' | paste -sd :)
[ -z "$wheels" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels"

commit=${COMMIT:-$(git rev-parse --short HEAD 2> /dev/null || echo unknown)}

# Libraries and make: from the kit, if present, unpacked once per archive; otherwise the system's.
unpack_kit() {
    kit=
    if [ -e build/gpu-kit.tar.xz ] && ! [ build/gpu-kit/libs -nt build/gpu-kit.tar.xz ]; then
        rm -rf build/gpu-kit
        python3 -c 'import tarfile; tarfile.open("build/gpu-kit.tar.xz").extractall("build")' 2> build/gpu-kit.log &&
            touch build/gpu-kit/libs ||
            { cat build/gpu-kit.log; cannot "build/gpu-kit.tar.xz cannot be unpacked with python3; make gpu-kit packs it anew"; }
    fi
    [ -e build/gpu-kit/libs ] && kit=build/gpu-kit
    [ -z "$kit" ] || command -v make > /dev/null || MAKE=$PWD/$kit/bin/make
}

# Prints the facts that a report must have, and missing tools. Fast: it asks the GPU for its name only.
machine() {
    version() { command -v "$1" > /dev/null && "$@" 2>&1 | head -n 1 || echo "no $1"; }
    echo "device    $DEVICE${card:+: $card}"
    echo "machine   $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(date -u +'%Y-%m-%d %H:%M'), commit $commit"
    echo "memory    $(awk '/^MemTotal/ { t = $2 } /^MemAvailable/ { print int($2 / 1048576) " of " int(t / 1048576) " GiB free" }' /proc/meminfo)"
    echo "disk      $(df -Pk . /dev/shm 2> /dev/null | awk 'NR > 1 { printf "%s%d GiB free in %s", (NR == 2 ? "" : ", "), $4 / 1048576, $6 }')"
    echo "nvcc      $(${nvcc:-false} --version 2> /dev/null | tail -n 1), for sm_$arch"
    echo "compilers $(version gcc --version); $(version g++ --version)"
    echo "tools     $(version make --version); $(version python3 --version); $(version git --version)"
    for tool in cuda-gdb compute-sanitizer; do
        echo "          $tool: $(PATH="$PATH:/usr/local/cuda/bin" command -v $tool || echo none)"
    done
}
