/* Elementary functions over the words of a vec_*.h header, which is included before this one. */
#ifndef ENGINE_VEC_MATH_H
#define ENGINE_VEC_MATH_H

#include "model/model.h"

#define INLINE static inline __attribute__((always_inline))

/* e^x for x <= 0 within 2 units in the last place; below -87 it stays at e^-87, which is lost in any sum that contains
 * a 1.
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

/* x / (1 + e^-x), with the exponent kept negative as in gelu_tanh. */
INLINE vec vec_silu(vec x)
{
    const vec zero = vec_set(0.0f), one = vec_set(1.0f);
    vec e = exp_negative(vec_min(x, vec_sub(zero, x)));
    vec share = vec_reciprocal(vec_add(one, e)); /* the fraction for x >= 0, and e times it the one for x <= 0 */
    return vec_mul(vec_add(vec_max(zero, x), vec_mul(vec_min(zero, x), e)), share);
}

#ifdef VEC_PICK
/* gelu_erf for a result in bf16: x / 2 + |x| e with e = erf(|x| / sqrt 2) / 2 by a parabola for each 0.26 of |x|,
 * within 3.3e-5 |x| everywhere. Half the work of a quotient, which would take longer than the tiles work meanwhile. */
INLINE vec gelu_erf16(vec x)
{
    static const float c0[16] = {-4.52505446e-06f, -8.85188347e-04f, -6.85345614e-03f, -1.66037288e-02f,
                                 -2.10200939e-02f, -7.71847321e-03f, 3.16748172e-02f,  9.67219248e-02f,
                                 1.78346932e-01f,  2.63264596e-01f,  3.39436740e-01f,  3.99649411e-01f,
                                 4.42170262e-01f,  4.69243795e-01f,  4.84888852e-01f,  4.93109018e-01f};
    static const float c1[16] = {3.99570823e-01f, 4.10862982e-01f, 4.41736996e-01f, 4.72365588e-01f,
                                 4.82759774e-01f, 4.60563004e-01f, 4.05774146e-01f, 3.28868508e-01f,
                                 2.45057851e-01f, 1.68036640e-01f, 1.06176510e-01f, 6.19133040e-02f,
                                 3.33641656e-02f, 1.66367088e-02f, 7.68475840e-03f, 3.30464961e-03f};
    static const float c2[16] = {-1.29212169e-02f, -4.98807989e-02f, -9.01739374e-02f, -1.14297315e-01f,
                                 -1.20396845e-01f, -1.11133009e-01f, -9.20704901e-02f, -6.93279654e-02f,
                                 -4.78064120e-02f, -3.03367265e-02f, -1.77746210e-02f, -9.63853672e-03f,
                                 -4.84575471e-03f, -2.26166728e-03f, -9.80983721e-04f, -3.97449388e-04f};
    vec size = vec_abs(x), a = vec_min(size, vec_set(4.0274f));
    vec piece = vec_fma(a, vec_set(3.84615385f), vec_set(VEC_PICK));
    vec e = vec_fma(vec_fma(vec_pick(c2, piece), a, vec_pick(c1, piece)), a, vec_pick(c0, piece));
    return vec_fma(size, e, vec_mul(x, vec_set(0.5f)));
}
#else
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
#endif

/* `rough`: for a result in bf16 (gelu_erf16). */
INLINE vec activation_of(enum activation activation, bool rough, vec x)
{
    if (activation == ACTIVATION_GELU_ERF) { return rough ? gelu_erf16(x) : gelu_erf(x); }
    if (activation == ACTIVATION_GELU_TANH) { return gelu_tanh(x); }
    if (activation == ACTIVATION_SILU) { return vec_silu(x); }
    return vec_max(vec_set(0.0f), x);
}

#ifndef VEC_PICK
/* --- for int8: built from other words, where the header has nothing better --- */

/* a, bounded in magnitude by `limit`. */
static inline vec vec_clamp(vec a, float limit)
{
    return vec_max(vec_set(-limit), vec_min(vec_set(limit), a));
}

static inline void vec_store_two_bf16(uint16_t *to, vec a, vec b)
{
    vec_store_bf16(to, a);
    vec_store_bf16(to + VEC, b);
}

/* Widens a range by two vectors in bf16; vec_range_of_bf16 then returns the range that vec_widen would have made. */
static inline struct vec_range vec_widen_bf16(struct vec_range range, const uint16_t *from)
{
    return vec_widen(vec_widen(range, vec_load_bf16(from)), vec_load_bf16(from + VEC));
}

static inline struct vec_range vec_range_of_bf16(struct vec_range range)
{
    return range;
}

#endif

#ifndef DOT_FLIP
#define DOT_FLIP 0

/* The start value of a row's sums, which cancels the effect of a packed weight's flipped bits. */
static inline int32_t dot_start(const int8_t *from, uint32_t bytes)
{
    (void)from;
    (void)bytes;
    return 0;
}

#endif

#endif
