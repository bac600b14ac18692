/* A model file made of a checkpoint, kept for later runs: what `moe-decode --convert -m SOURCE` decodes with.
 *
 * The file is in $XDG_CACHE_HOME/moekit, or $HOME/.cache/moekit. Its name ends with a digest of the names, sizes and times of
 * change of the checkpoint's files, of its texts, and of the converter's version, so that another state of the checkpoint is
 * converted again. Nothing removes old files. */
#ifndef MOE_CMD_DECODE_CONVERT_H
#define MOE_CMD_DECODE_CONVERT_H

#include "common/base/text.h"
#include "common/cli/console.h"

/* source: a folder, a .safetensors, .gguf or pytorch_model.bin file, or what moe-convert finds in the cache of the Hugging Face
 * hub. Puts the name of the model file into *out; a source that is a model file already is itself. threads: 0 for all. */
int decode_convert(struct text *out, const char *source, int threads, const struct console *console, struct err *err);

#endif
