/* scene_call.h: an attention call over a scene of the mask library: random tensors, heads that share keys,
 * strides, row maps as the scene has them, forward or backward. The scene's marks are what the oracle is told. */
#ifndef LIBRARY_SCENE_CALL_H
#define LIBRARY_SCENE_CALL_H

#include "scene.h"
#include "oracle_backward.h"

typedef struct scene_call {
  const scene *scene;
  fly_attention call; /* on the host; kernel NULL */
  fly_bound *bound;
  int32_t *out_rows;
  void *memory[10];
  char what[128];
} scene_call;

enum { SCENE_UNTOUCHED = -77 }; /* what out and lse hold before the call */

/* `variant` chooses layouts and how heads share keys. For a backward call out and lse are the oracle's, and
 * gradients start with what no test expects. */
void scene_call_init(scene_call *t, const scene *s, fly_mask *mask, fly_type type, int dim, int value_dim, int variant,
                     bool backward);
void scene_call_free(scene_call *t);

/* The mask with the scene's arguments. */
fly_bound *scene_bind(fly_mask *mask, const scene *s);

/* The marks as a predicate of positions: context is the scene. */
bool scene_sees(void *context, int b, int h, int q, int kv);

#endif
