/* Exports a head file to the format of its authors' program: a folder with config.json and the tensors under their published
 * names, in the file that the program's loader opens. Converting this folder again (convert_head) gives the same head, bit
 * for bit. */
#ifndef MOE_CHECKPOINT_EXPORT_HEAD_H
#define MOE_CHECKPOINT_EXPORT_HEAD_H

#include "common/arch/head.h"

struct head_export;

struct head_export_request {
    enum head_program program;
    bool safetensors;               /* write safetensors even if the program's loader opens another form */
};

/* Plans the folder, but reads no data. The head must stay open as long as the plan. note: see head_publish. A head whose
 * weights are in a format with scales is an error, because the programs have no such heads. */
int head_export_open(struct head_export **out, const struct model *head, const struct head_export_request *request,
                     struct text *note, struct err *err);
void head_export_close(struct head_export **export);

/* Appends one line per tensor: "fc.weight BF16 [192][384]". */
int head_export_print(const struct head_export *export, struct text *out, struct err *err);

/* Writes the folder, which must not exist or must be empty; on failure no folder appears. */
int head_export_write(const struct head_export *export, const char *folder, struct err *err);

#endif
