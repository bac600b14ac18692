/* Plug-ins: shared objects of this project that are opened at run time, so that one build also serves machines without the
 * libraries they need. Installed in lib/moekit beside the folder of the program; test programs of a build look higher up. */
#ifndef MOE_BASE_PLUGIN_H
#define MOE_BASE_PLUGIN_H

#include "common/base/err.h"

/* Loads `file` from the folder of plug-ins; NULL with err set on failure. remedy: text for a missing file. The code
 * stays loaded after dlclose, because its exit handlers run at the end of the process. */
void *plugin_load(const char *file, const char *remedy, struct err *err);

#endif
