/* Reads the rotary positions of a config.json. */
#include <math.h>
#include <string.h>

#include "common/arch/arch.h"

static int set_rotary(const json_t *object, const struct arch *arch, double partial, struct hparams *s, struct err *err)
{
    if (arch->partial_rotary == 0 && partial != 1)
        return config_refuse(object, "partial_rotary_factor", err, "only 1 is supported");
    if (!(partial > 0 && partial <= 1))
        return config_refuse(object, "partial_rotary_factor", err, "it must be above 0 and at most 1");
    if (!arch->latent)
        s->rope.rotary = (int)(s->attention.head_dim * partial);
    return 0;
}

/* Raises the maximum number of positions to `factor` times the original positions, because some published limits are those
 * of the unstretched rope: vicuna-16k (linear) and the card of Qwen2.5 (yarn) leave max_position_embeddings unchanged. */
static void raise_max_positions(struct hparams *s, int original, double factor)
{
    const double max = original * factor;
    if (max > s->max_positions)
        s->max_positions = max < INT32_MAX ? (int)max : INT32_MAX;
}

/* Reads YaRN (arXiv 2309.00071). Amplitude: attention_factor, the quotient by two mscales (DeepSeek-V2), or the paper's. */
static int read_yarn(const json_t *rope, struct hparams *shape, struct err *err)
{
    struct rope_shape *s = &shape->rope;
    double scale = 0, all = 0;
    s->kind = ROPE_YARN;
    s->beta_fast = 32;
    s->beta_slow = 1;
    s->truncate = true;
    s->original_positions = shape->max_positions;
    if (config_real(rope, "factor", true, &s->factor, err) || config_real(rope, "beta_fast", false, &s->beta_fast, err) ||
        config_real(rope, "beta_slow", false, &s->beta_slow, err) || config_bool(rope, "truncate", false, &s->truncate, err) ||
        config_int(rope, "original_max_position_embeddings", false, &s->original_positions, err) ||
        config_real(rope, "mscale", false, &scale, err) || config_real(rope, "mscale_all_dim", false, &all, err) ||
        config_real(rope, "attention_factor", false, &s->amplitude, err))
        return -1;
    raise_max_positions(shape, s->original_positions, s->factor);
    if (config_get(rope, "attention_factor"))
        return 0;
    double growth = s->factor > 1 ? 0.1 * log(s->factor) : 0;
    s->amplitude = scale != 0 && all != 0 ? (scale * growth + 1) / (all * growth + 1) : growth + 1;
    return 0;
}

/* Scales attention scores so that the amplitude mscale_all_dim also applies to floats that RoPE does not rotate. */
static int scale_latents(const json_t *rope, struct hparams *s, struct err *err)
{
    double all = 0, factor = 1;
    if (config_real(rope, "mscale_all_dim", false, &all, err) || config_real(rope, "factor", false, &factor, err))
        return -1;
    double amplitude = all != 0 && factor > 1 ? 0.1 * all * log(factor) + 1 : 1;
    s->attention.scale = (float)((double)s->attention.scale * amplitude * amplitude);
    return 0;
}

/* Reads the divisors of the frequencies, one per pair of floats. */
static int read_stretch(const json_t *rope, const char *key, struct rope_shape *s, struct err *err)
{
    const json_t *factors = config_get(rope, key);
    if (!json_is_array(factors) || json_array_size(factors) != (size_t)s->rotary / 2)
        return config_refuse(rope, key, err, "it must list %d numbers", s->rotary / 2);
    for (int i = 0; i < s->rotary / 2 && i < HEAD_DIM_MAX / 2; i++)
        s->stretch[i] = json_number_value(json_array_get(factors, (size_t)i));
    s->kind = ROPE_STRETCHED;
    return 0;
}

/* Reads longrope. As in transformers, short factors apply to all lengths; beyond original_positions the amplitude differs. */
static int read_longrope(const json_t *config, const json_t *rope, struct rope_shape *s, struct err *err)
{
    const json_t *holder = config_get(config, "original_max_position_embeddings") ? config : rope;
    return read_stretch(rope, "short_factor", s, err) || config_real(rope, "short_mscale", true, &s->amplitude, err) ||
           config_real(rope, "long_mscale", true, &s->long_amplitude, err) ||
           config_int(holder, "original_max_position_embeddings", true, &s->original_positions, err) ? -1 : 0;
}

/* Reads dynamic rope: max_position_embeddings is the number of positions before stretching. With alpha (HunYuan) nothing is
 * dynamic: theta is multiplied by a power of alpha, the same for all lengths. */
static int read_dynamic(const json_t *rope, struct hparams *s, struct err *err)
{
    double factor, alpha = 0;
    if (config_real(rope, "alpha", false, &alpha, err))
        return -1;
    if (alpha != 0 && !(alpha >= 1 && alpha <= 1e6 && s->rope.rotary > 2))
        return config_refuse(rope, "alpha", err, "it must be at least 1");
    if (alpha != 0) {
        s->rope.theta *= pow(alpha, s->rope.rotary / (s->rope.rotary - 2.0));
        return 0;
    }
    if (config_real(rope, "factor", true, &factor, err))
        return -1;
    if (!(factor >= 1 && factor <= 1e6))
        return config_refuse(rope, "factor", err, "it must be at least 1");
    s->rope.kind = ROPE_DYNAMIC;
    s->rope.factor = factor;
    s->rope.original_positions = s->max_positions;
    raise_max_positions(s, s->max_positions, factor);
    return 0;
}

/* Reads proportional rope: frequencies are spread over all pairs of a head, but only the first pairs are rotated. */
static int read_proportional(const json_t *rope, double partial, struct rope_shape *s, int head_dim, struct err *err)
{
    double factor = 1;
    if (config_real(rope, "factor", false, &factor, err))
        return -1;
    s->kind = factor != 1 ? ROPE_LINEAR : ROPE_DEFAULT;
    s->factor = factor;
    s->rotary = head_dim;
    s->rotated_pairs = (int)(partial * head_dim / 2);
    if (s->rotated_pairs < 1)
        return config_refuse(rope, "partial_rotary_factor", err, "no pair of a head's %d floats would turn", head_dim);
    s->rotated_pairs = 2 * s->rotated_pairs == head_dim ? 0 : s->rotated_pairs;
    return 0;
}

static int read_rope_kind(const json_t *config, const json_t *rope, const struct arch *arch, const char *key, const char *kind,
                          struct hparams *s, struct err *err)
{
    if (strcmp(kind, "default") == 0)
        return 0;
    if (strcmp(kind, "proportional") == 0 && !arch->latent) {
        double partial = 1;
        return config_real(rope, "partial_rotary_factor", false, &partial, err) ||
               read_proportional(rope, partial, &s->rope, s->attention.head_dim, err) ? -1 : 0;
    }
    if (strcmp(kind, "dynamic") == 0)
        return read_dynamic(rope, s, err);
    if (strcmp(kind, "yarn") == 0)
        return read_yarn(rope, s, err);
    if (strcmp(kind, "stretched") == 0)
        return read_stretch(rope, "stretch", &s->rope, err);           /* GGUF files list divisors, without a rule */
    if (arch->longrope && (strcmp(kind, "longrope") == 0 || strcmp(kind, "su") == 0))
        return read_longrope(config, rope, &s->rope, err);
    s->rope.kind = strcmp(kind, "linear") == 0 ? ROPE_LINEAR : strcmp(kind, "llama3") == 0 ? ROPE_LLAMA3 : ROPE_DEFAULT;
    if (s->rope.kind == ROPE_DEFAULT)
        return config_refuse(rope, key, err, "supported are default, dynamic, linear, llama3%s and yarn",
                             arch->longrope ? ", longrope" : "");
    if (config_real(rope, "factor", true, &s->rope.factor, err))
        return -1;
    if (s->rope.kind == ROPE_LINEAR) {
        raise_max_positions(s, s->max_positions, s->rope.factor);
        return 0;
    }
    return config_real(rope, "low_freq_factor", true, &s->rope.low_factor, err) ||
           config_real(rope, "high_freq_factor", true, &s->rope.high_factor, err) ||
           config_int(rope, "original_max_position_embeddings", true, &s->rope.original_positions, err) ? -1 : 0;
}

int arch_read_config_rope(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    const char *holder = config_get(config, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *rope = config_get(config, holder);
    double partial = arch->partial_rotary != 0 ? arch->partial_rotary : 1;
    int rotary = 0;
    if (arch->rotary_counted && config_int(config, "rotary_dim", false, &rotary, err))
        return -1;
    if (rotary)
        partial = (double)rotary / s->attention.head_dim;
    if (config_real(config, "rope_theta", false, &s->rope.theta, err) ||
        config_real(config, "partial_rotary_factor", false, &partial, err))
        return -1;
    if (set_rotary(config, arch, partial, s, err))
        return -1;
    if (!rope)
        return arch->rope_required ? config_refuse(config, holder, err, "models of family %s need it", arch->model_type) : 0;
    if (!json_is_object(rope))
        return config_refuse(config, holder, err, "it must be an object");
    if (config_get(rope, "full_attention") || config_get(rope, "sliding_attention")) {
        if (arch->other == OTHER_NONE)
            return config_refuse(config, holder, err, "different rope by layer type is not supported");
        const char *type = arch->other == OTHER_SLIDING ? "full_attention" : "sliding_attention";
        rope = config_get(rope, type);
        if (!json_is_object(rope))
            return config_refuse(config, holder, err, "it must have an object %s", type);
    }
    return arch_read_rope(config, rope, arch, s, err) ? err_at(err, "%s", holder) : 0;
}

int arch_read_rope(const json_t *config, const json_t *rope, const struct arch *arch, struct hparams *s, struct err *err)
{
    const char *kind_key = config_get(rope, "rope_type") ? "rope_type" : "type", *kind = "default";
    double partial = s->attention.head_dim > 0 ? (double)s->rope.rotary / s->attention.head_dim : 1;
    const bool own = config_get(rope, "partial_rotary_factor") != NULL;
    if (config_text(rope, kind_key, false, &kind, err) || config_real(rope, "rope_theta", false, &s->rope.theta, err) ||
        config_real(rope, "partial_rotary_factor", false, &partial, err) ||
        (own && set_rotary(rope, arch, partial, s, err)) || read_rope_kind(config, rope, arch, kind_key, kind, s, err))
        return -1;
    return arch->latent && strcmp(kind, "default") ? scale_latents(rope, s, err) : 0;
}

int arch_read_other_rope(const json_t *config, const json_t *rope, const struct arch *arch, struct hparams *s, struct err *err)
{
    struct hparams other = *s;
    other.attention.head_dim = s->other.head_dim;
    other.rope = (struct rope_shape){.theta = arch->fixed.rope.theta};
    if (set_rotary(config, arch, arch->partial_rotary != 0 ? arch->partial_rotary : 1, &other, err) ||
        arch_read_rope(config, rope, arch, &other, err))
        return -1;
    s->other.rope = other.rope;
    s->max_positions = other.max_positions;
    return 0;
}
