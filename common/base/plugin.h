/* Plug-ins: shared objects of this project that are opened at run time, so that one build serves machines that lack what they
 * need. They lie in lib/moekit beside the folder of the running program; in a build folder, tests are deeper. */
#ifndef MOE_BASE_PLUGIN_H
#define MOE_BASE_PLUGIN_H

#include "common/base/err.h"

/* `file` in the folder of plug-ins, loaded; NULL with err set otherwise. remedy: what to do where there is none. It stays when
 * it is closed with dlclose, for what it holds may be called at the end of the process. */
void *plugin_load(const char *file, const char *remedy, struct err *err);

#endif
