#include "common/base/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef MOE_STATIC

/* Fails in a static program, whose dlopen would need the very C library that the program was linked with. */
void *plugin_load(const char *file, const char *remedy, struct err *err)
{
    (void)remedy;
    err_set(err, ERR_INPUT, "%s cannot be loaded by statically linked commands; install a package of moekit, or build it from "
            "source", file);
    return NULL;
}

#else

void *plugin_load(const char *file, const char *remedy, struct err *err)
{
    static const char *const folders[] = {"../lib/moekit", "../../lib/moekit", "../../../lib/moekit"};
    char program[4096], path[4096 + 128];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", program, folders[i], file);
        if (access(path, R_OK))
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (!library)
            err_set(err, ERR_INPUT, "%s; build it again", dlerror());
        return library;
    }
    err_set(err, ERR_INPUT, "%s is not part of this build; %s", file, remedy);
    return NULL;
}

#endif
