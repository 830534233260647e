/* cuda_gated.h: what the files of gated sums on a GPU share. */
#ifndef FLYMASK_CUDA_GATED_H
#define FLYMASK_CUDA_GATED_H

#include "cuda.h"
#include "gated.h"

/* ---- projected gates (cuda_gated_project.c) ---------------------------------------------------------------------- */

/* Whether x, the weights and biases of projected gates, and their gradients, may go to a GPU. */
fly_status flyi_cuda_check_projection(const flyi_gated *g, bool backward, fly_error *error);

/* logits[i]: what part i was given, or its projection, made on the stream: f32, in the memory of the call. */
fly_status flyi_cuda_project(const flyi_gated *g, flyi_cuda_launch *l, fly_tensor logits[FLYI_GATE_PARTS],
                             fly_error *error);
/* Whether somebody wants the gradient of a part's logits. */
bool flyi_cuda_wants_logits(const flyi_gated *g, int part);
/* d_x, d_weight and d_bias, where wanted, from projected logits that have become their gradients. */
fly_status flyi_cuda_project_backward(const flyi_gated *g, flyi_cuda_launch *l,
                                      const fly_tensor d_logits[FLYI_GATE_PARTS], fly_error *error);

#endif
