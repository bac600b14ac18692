/* Small uploads: positions, slots, addresses of experts. The bytes are arguments of a launch, so the host's memory may change
 * immediately, and no copy separates the launches before and after it: all of them may start early. */
#include "kernels/cuda/cuda.h"

/* The arguments of a launch are limited to 4 KiB in all. */
enum { PUT_THREADS = 256, PUT_FEW = 256, PUT_SOME = 1024, PUT_MANY = 4080 };

template <int BYTES> struct put_args {
    unsigned char *to;
    int bytes;
    uint32_t word[BYTES / 4];
};

template <int BYTES> __global__ void __launch_bounds__(PUT_THREADS) put_kernel(const __grid_constant__ struct put_args<BYTES> a)
{
    pdl_begin();
    int words = (uintptr_t)a.to % 4 ? 0 : a.bytes / 4;
    for (int i = (int)threadIdx.x; i < words; i += PUT_THREADS)
        reinterpret_cast<uint32_t *>(a.to)[i] = a.word[i];
    for (int i = 4 * words + (int)threadIdx.x; i < a.bytes; i += PUT_THREADS)
        a.to[i] = (unsigned char)(a.word[i / 4] >> i % 4 * 8);
}

template <int BYTES> static void put(dev_stream stream, unsigned char *to, const void *from, size_t bytes)
{
    struct put_args<BYTES> args = {to, (int)bytes, {}};
    memcpy(args.word, from, bytes);
    LAUNCH_PDL(put_kernel<BYTES>, dim3(1), dim3(PUT_THREADS), 0, stream, args);
}

void cuda_put(dev_stream stream, void *to, const void *from, size_t bytes)
{
    for (size_t at = 0, part; at < bytes; at += part) {
        unsigned char *target = static_cast<unsigned char *>(to) + at;
        const unsigned char *source = static_cast<const unsigned char *>(from) + at;
        part = bytes - at < (size_t)PUT_MANY ? bytes - at : (size_t)PUT_MANY;
        if (part <= PUT_FEW)
            put<PUT_FEW>(stream, target, source, part);
        else if (part <= PUT_SOME)
            put<PUT_SOME>(stream, target, source, part);
        else
            put<PUT_MANY>(stream, target, source, part);
    }
}
