#include "tests/fuzz/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) { return fuzz_weights("pytorch_model.bin", data, bytes); }
