/* Reads the header of a .safetensors file: 8 bytes of length, a JSON object of tensors, then their data without gaps.
 *
 * All input is validated: the length is at most 100 MB and within the file, the text begins with '{', shape times dtype size
 * is the number of bytes claimed, and the data of all tensors together fill the file exactly, in order, without gaps or
 * overlaps. Duplicate names are found later, when the tensors of all files are sorted. */
#ifndef MOE_CHECKPOINT_SAFETENSORS_H
#define MOE_CHECKPOINT_SAFETENSORS_H

#include "common/checkpoint/checkpoint.h"

enum { SAFETENSORS_PREFIX = 8 };

/* Reads the header's length from the first 8 bytes of a file of `file_bytes` bytes (UINT64_MAX: not known yet). */
int safetensors_header_bytes(const uint8_t prefix[SAFETENSORS_PREFIX], uint64_t file_bytes, size_t *bytes, struct err *err);

/* Adds the tensors of a header to the checkpoint as tensors of file index `file`. *data_bytes: bytes that must follow the
 * header. */
int safetensors_parse(struct checkpoint *checkpoint, int file, const char *header, size_t bytes, uint64_t *data_bytes,
                      struct err *err);

#endif
