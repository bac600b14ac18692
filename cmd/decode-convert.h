/* Converts a checkpoint to a model file, which is kept for later runs: implements `moe-decode --convert -m SOURCE`.
 *
 * The file is in $XDG_CACHE_HOME/moekit, or $HOME/.cache/moekit. Its name ends with a digest of the names, sizes and
 * modification times of the checkpoint's files, of the checkpoint's texts, and of the converter's version, so that a changed
 * checkpoint is converted again. Nothing removes old files. */
#ifndef MOE_CMD_DECODE_CONVERT_H
#define MOE_CMD_DECODE_CONVERT_H

#include "common/base/text.h"
#include "common/cli/console.h"

/* Writes the name of the model file to *out; converts the source first if the file does not exist yet. source: a folder, a
 * .safetensors, .gguf or pytorch_model.bin file, or a name that moe-convert finds in the cache of the Hugging Face hub. A
 * source that is already a model file is used as it is. threads: 0: all. */
int decode_convert(struct text *out, const char *source, int threads, const struct console *console, struct err *err);

#endif
