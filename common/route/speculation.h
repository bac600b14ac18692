/* The analysis of speculation and experts in appendices A and B of MoE-SpAc (arXiv 2603.09983), formulas as printed.
 *
 *     Omega = (1 - alpha^(gamma + 1)) / (1 - alpha)              tokens per iteration                            (eq. 1)
 *     T = (k N) (T_LOAD + T_FFN) L                               a forward that loads the share k of N experts   (eq. 13)
 *     T_SD = Z a + gamma T_D,  T_AR = Z b gamma                  Z = N (T_LOAD + T_FFN) L                        (eq. 14)
 *     TPOT_SD = (Z a + gamma T_D) / Omega,  TPOT_AR = Z b        seconds per token                               (eq. 15)
 *     a + gamma T_D / Z < b Omega                                the condition for a gain from drafts            (eq. 16)
 *     a / b < Omega                                              the same, if drafting is free                   (eq. 17)
 *     Omega -> 1 / (1 - alpha)                                   the upper limit of a / b                        (eq. 18)
 *     H(X)                                                       entropy of the tokens that select an expert, bits (eq. 19)
 *     SNR = sqrt(n) p / sqrt(p (1 - p))                          if n tokens choose independently                (eq. 20)
 *     fault = (f >= tau) != (estimate >= tau)                                                                    (eq. 21)
 *     |estimate - f| <= |f - tau|  =>  no fault                                                                  (eq. 22)
 *     |s_t - s_t+1| <= C_R delta_in prod (1 + sigma),  sigma = beta (1 + alpha)                       (eq. 23, 29, 30)
 *
 * Three of them are inexact as printed. Eq. 14 counts the experts of gamma tokens, but a verification also has the text's last
 * token. Eq. 22 fails for an expert below tau whose estimate is exactly tau: the error equals the margin, and the decision
 * differs (f = 1, tau = 2, estimate 2). Eq. 23 has sigma = beta (1 + N alpha), while its proof (eq. 29) has no N. */
#ifndef MOE_ROUTE_SPECULATION_H
#define MOE_ROUTE_SPECULATION_H

#include <stdbool.h>

double speculation_tokens(int draft_length, double acceptance);         /* tokens per iteration (eq. 1); acceptance 1:
                                                                         * draft_length + 1 */
double speculation_limit(double acceptance);                            /* limit of tokens per iteration (eq. 18); acceptance
                                                                         * 1: infinite */

/* Computes seconds per token (eq. 15). all: seconds of a forward that loads all experts (Z); share: share of the experts (a,
 * b). */
double speculation_drafted(double all, double share, double draft, int draft_length, double acceptance);
double speculation_undrafted(double all, double share);

double speculation_entropy(const double *chance, int count);            /* entropy in bits (eq. 19); probabilities sum to 1 */
double speculation_binomial(int tokens, int k, double p);               /* probability that k of `tokens` select the expert */
double speculation_snr(int tokens, double p);                           /* signal-to-noise ratio (eq. 20); p 0: 0, 1:
                                                                         * infinite */

bool speculation_fault(double frequency, double estimate, double threshold);            /* eq. 21 */
double speculation_margin(double frequency, double threshold);                          /* eq. 22 */

/* Computes the bound of eq. 31 and 35. norm: norm of the router's weights; growth[count]: 1 + sigma of each earlier layer. */
double speculation_drift(double norm, double first, const double *growth, int count);

#endif
