/* Elementary functions over the words of a vec_*.h header, which is included before this one. */
#ifndef ENGINE_VEC_MATH_H
#define ENGINE_VEC_MATH_H

#include "model/model.h"

#define INLINE static inline __attribute__((always_inline))

/* e^x for x <= 0 within 2 units in the last place; below -87 it stays at e^-87, which no sum with a 1 in it can see.
 * x = n ln2 + r; ln2 is split in two so that n ln2 is exact; the polynomial is a minimax fit on |r| <= ln2 / 2
 * (relative error 8e-8). */
INLINE vec exp_negative(vec x)
{
    x = vec_max(vec_set(-87.0f), x);
    vec n = vec_round(vec_mul(x, vec_set(1.44269504f)));
    vec r = vec_fma(n, vec_set(-0.693359375f), x);
    r = vec_fma(n, vec_set(2.12194440e-4f), r);
    vec p = vec_set(8.29764362e-3f);
    p = vec_fma(p, r, vec_set(4.19153838e-2f));
    p = vec_fma(p, r, vec_set(1.66675746e-1f));
    p = vec_fma(p, r, vec_set(4.99988943e-1f));
    p = vec_fma(p, r, vec_set(9.99999702e-1f));
    p = vec_fma(p, r, vec_set(1.00000012f));
    return vec_scale(p, n);
}

/* x * (1 + erf(x / sqrt 2)) / 2. The odd part x P(x^2) / Q(x^2) is a minimax fit of erf(x / sqrt 2) / 2 on |x| <= 5.5
 * (error 7e-9), where it reaches 1/2 in f32; beyond, x is clamped. */
INLINE vec gelu_erf(vec x)
{
    vec c = vec_max(vec_set(-5.5f), vec_min(vec_set(5.5f), x));
    vec u = vec_mul(c, c);
    vec p = vec_set(2.2751850e-8f);
    p = vec_fma(p, u, vec_set(6.3516554e-6f));
    p = vec_fma(p, u, vec_set(1.6877978e-4f));
    p = vec_fma(p, u, vec_set(4.6769800e-3f));
    p = vec_fma(p, u, vec_set(3.3848297e-2f));
    p = vec_fma(p, u, vec_set(3.9894223e-1f));
    vec q = vec_set(1.1975428e-6f);
    q = vec_fma(q, u, vec_set(7.3632022e-5f));
    q = vec_fma(q, u, vec_set(1.8841857e-3f));
    q = vec_fma(q, u, vec_set(2.8643345e-2f));
    q = vec_fma(q, u, vec_set(2.5151104e-1f));
    q = vec_fma(q, u, vec_set(1.0f));
    vec half = vec_mul(vec_mul(c, p), vec_reciprocal(q));
    return vec_mul(x, vec_add(half, vec_set(0.5f)));
}

/* x (1 + tanh(k)) / 2 with k = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + e^-2k). The exponent is kept
 * negative: for k > 0 the fraction is 1 - e^-2k / (1 + e^-2k). */
INLINE vec gelu_tanh(vec x)
{
    const vec c1 = vec_set(1.59576912f), c3 = vec_set(0.0713548163f), zero = vec_set(0.0f), one = vec_set(1.0f);
    vec k = vec_mul(x, vec_fma(vec_mul(x, x), c3, c1));
    vec e = exp_negative(vec_min(k, vec_sub(zero, k)));
    vec small = vec_mul(e, vec_reciprocal(vec_add(one, e))); /* the fraction for k <= 0 */
    vec lower = vec_mul(vec_min(zero, x), small);
    vec upper = vec_mul(vec_max(zero, x), vec_sub(one, small));
    return vec_add(lower, upper);
}

/* gelu_erf for a result in bf16: a shorter fit on |x| <= 4, within 4e-5 |x| everywhere. */
INLINE vec gelu_erf16(vec x)
{
    vec c = vec_max(vec_set(-4.0f), vec_min(vec_set(4.0f), x));
    vec u = vec_mul(c, c);
    vec p = vec_fma(vec_set(2.6681612e-3f), u, vec_set(3.2658100e-2f));
    p = vec_fma(p, u, vec_set(3.9887711e-1f));
    vec q = vec_fma(vec_set(4.4638585e-4f), u, vec_set(2.3599019e-2f));
    q = vec_fma(q, u, vec_set(2.4794155e-1f));
    q = vec_fma(q, u, vec_set(1.0f));
    vec half = vec_mul(vec_mul(c, p), vec_reciprocal_rough(q));
    return vec_fma(x, half, vec_mul(x, vec_set(0.5f)));
}

INLINE vec activation_of(enum activation activation, bool rough, vec x)
{
    if (activation == ACTIVATION_GELU_ERF)
        return rough ? gelu_erf16(x) : gelu_erf(x);
    if (activation == ACTIVATION_GELU_TANH)
        return gelu_tanh(x);
    return vec_max(vec_set(0.0f), x);
}

#endif
