/* A head file as its authors' program has it: a folder with config.json and the tensors under their published names, in the
 * file that the program's loader opens. What convert_head makes of that folder is the same head, to the bit. */
#ifndef MOE_CHECKPOINT_EXPORT_HEAD_H
#define MOE_CHECKPOINT_EXPORT_HEAD_H

#include "common/arch/head.h"

struct head_export;

struct head_export_request {
    enum head_program program;
    bool safetensors;               /* also where the program's loader opens another form */
};

/* Plans the folder: what is in it, but no data. The head stays open as long. note: see head_publish. A head whose weights are
 * in a format with scales is an error: the programs have no such heads. */
int head_export_open(struct head_export **out, const struct model *head, const struct head_export_request *request,
                     struct text *note, struct err *err);
void head_export_close(struct head_export **export);

/* Appends a line a tensor: "fc.weight BF16 [192][384]". */
int head_export_print(const struct head_export *export, struct text *out, struct err *err);

/* Writes the folder, which must not be there yet, or be empty; it appears whole or not at all. */
int head_export_write(const struct head_export *export, const char *folder, struct err *err);

#endif
