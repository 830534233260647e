/* flymask/score.h: what the source of a score modifier includes.
 *
 * A score modifier is a C function that changes the score of a pair before the softmax:
 *
 *     #include <flymask/score.h>
 *
 *     FLY_PARAM(float, cap, 50);
 *
 *     float score(float s, int b, int h, int q, int kv) { return cap * tanhf(s / cap); }
 *
 * s is the score in natural units, scale * <q, k>; b, h, q, kv, parameters, captured buffers and fly_token_... are
 * those of flymask/mask.h, whose rules and limits hold here too. Modifiers come before the mask: what one gives for a
 * pair that the mask hides is ignored, also a NaN or an infinity. For a pair that is seen, -infinity hides it after
 * all, and a NaN makes the query's output NaN, never a plausible number; so does a modifier that runs out of its 65,536
 * rounds of loops.
 *
 * The functions of <math.h> below are Flymask's own, the same on every path, within the error that
 * compiler/templates/score_math.c states for each (2.5 ulp at most). A call of one counts as 100 instructions.
 *
 * The derivative that the backward pass needs is made by the compiler: the function is differentiated with respect to
 * s, operation by operation (forward mode). Where a modifier has a kink, the side that is computed counts: `s > 0 ? s :
 * 0` has slope 0 at 0; fabsf has slope 0 at 0; fminf and fmaxf that of their first argument where both are equal;
 * floorf, ceilf, truncf, roundf, rintf, conversions to integers and bit patterns have slope 0. Parameters and buffers
 * get no gradients.
 *
 * The same file is ordinary C for gcc and clang (link with -lm). */
#ifndef FLYMASK_SCORE_H
#define FLYMASK_SCORE_H

#include <flymask/mask.h>

float score(float s, int b, int h, int q, int kv);

#ifdef FLYMASK_COMPILING

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

float expf(float x);
float exp2f(float x);
float expm1f(float x);
float logf(float x);
float log2f(float x);
float log1pf(float x);
float sinf(float x);
float cosf(float x);
float tanhf(float x);
float powf(float x, float y);
float sqrtf(float x);
float fabsf(float x);
float copysignf(float x, float y);
float fminf(float x, float y);
float fmaxf(float x, float y);
float floorf(float x);
float ceilf(float x);
float truncf(float x);
float roundf(float x);
float rintf(float x);

#else
#include <math.h>
#endif

#endif
