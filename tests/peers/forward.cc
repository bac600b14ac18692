/* Times forwards of ik_llama.cpp for bench.py: forward MODEL THREADS CONTEXT BATCH
 *
 * Reads one forward per line, `FIRST COUNT LOGITS SEED`: removes the cache's positions from FIRST on, runs COUNT random tokens
 * as one batch, with logits of all of them (LOGITS 1) or of the last (0), and prints its seconds. Weights are repacked when
 * they are loaded (its option -rtr); all else has the library's defaults: fused expert products, flash attention. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "llama.h"

static void no_log(enum ggml_log_level, const char *, void *) {}

int main(int count, char **argument)
{
    if (count != 5)
        return 2;
    const int threads = atoi(argument[2]), room = atoi(argument[4]);
    llama_log_set(no_log, nullptr);
    llama_backend_init();
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    model_params.repack_tensors = true;
    model_params.use_mmap = false;                      /* repacking writes to the weights */
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)atoi(argument[3]);
    params.n_batch = params.n_ubatch = (uint32_t)room;
    params.n_threads = params.n_threads_batch = (uint32_t)threads;
    llama_model *model = llama_model_load_from_file(argument[1], model_params);
    llama_context *context = model ? llama_init_from_model(model, params) : nullptr;
    if (!context) {
        fprintf(stderr, "forward: ik_llama.cpp cannot open %s\n", argument[1]);
        return 1;
    }
    const int vocabulary = llama_n_vocab(model);
    llama_batch batch = llama_batch_init(room, 0, 1);
    int first, tokens, logits;
    unsigned seed;
    while (scanf("%d %d %d %u", &first, &tokens, &logits, &seed) == 4 && tokens > 0 && tokens <= room) {
        std::mt19937 random(seed);
        batch.n_tokens = tokens;
        for (int i = 0; i < tokens; i++) {
            batch.token[i] = (llama_token)(random() % (unsigned)vocabulary);
            batch.pos[i] = first + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = logits || i == tokens - 1;
        }
        llama_kv_cache_seq_rm(context, 0, first, -1);
        const auto begin = std::chrono::steady_clock::now();
        if (llama_decode(context, batch)) {
            fprintf(stderr, "forward: llama_decode failed\n");
            return 1;
        }
        llama_get_logits(context);
        printf("%.9f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        fflush(stdout);
    }
}
