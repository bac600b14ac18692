/* The version of the whole toolkit: in --version, and in the provenance of every stream and model file. */
#ifndef MOE_BASE_VERSION_H
#define MOE_BASE_VERSION_H

#define MOE_VERSION "0.1.0"

#endif
