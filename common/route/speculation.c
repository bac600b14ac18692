#include "common/route/speculation.h"

#include <math.h>

double speculation_tokens(int draft_length, double acceptance)
{
    return acceptance < 1 ? (1 - pow(acceptance, draft_length + 1)) / (1 - acceptance) : draft_length + 1;
}

double speculation_limit(double acceptance) { return acceptance < 1 ? 1 / (1 - acceptance) : INFINITY; }

double speculation_drafted(double all, double share, double draft, int draft_length, double acceptance)
{
    return (all * share + draft_length * draft) / speculation_tokens(draft_length, acceptance);
}

double speculation_undrafted(double all, double share) { return all * share; }

double speculation_entropy(const double *chance, int count)
{
    double bits = 0;
    for (int i = 0; i < count; i++)
        bits -= chance[i] > 0 ? chance[i] * log2(chance[i]) : 0;
    return bits;
}

double speculation_binomial(int tokens, int k, double p)
{
    double ways = 1;
    for (int i = 0; i < k; i++)
        ways *= (double)(tokens - i) / (i + 1);
    return ways * pow(p, k) * pow(1 - p, tokens - k);
}

double speculation_snr(int tokens, double p) { return p > 0 ? sqrt(tokens) * p / sqrt(p * (1 - p)) : 0; }

bool speculation_fault(double frequency, double estimate, double threshold)
{
    return (frequency >= threshold) != (estimate >= threshold);
}

double speculation_margin(double frequency, double threshold) { return fabs(frequency - threshold); }

double speculation_drift(double norm, double first, const double *growth, int count)
{
    double bound = norm * first;
    for (int i = 0; i < count; i++)
        bound *= growth[i];
    return bound;
}
