/* For gpu-kit: Debian 12's libarchive.a asks for this function, which glibc has from 2.36 on. */
#include <stddef.h>
#include <stdlib.h>
#include <sys/random.h>

void arc4random_buf(void *buffer, size_t bytes);

void arc4random_buf(void *buffer, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t left = bytes - at;                /* up to 256 bytes come whole */
        ssize_t got = getrandom((char *)buffer + at, left < 256 ? left : 256, 0);
        if (got < 0)
            abort();
        at += (size_t)got;
    }
}
