/* svg_spatial: a prompt, then a video by frames; a token sees the frames around it, all see the prompt.
 * Convention: the spatial heads of Sparse VideoGen as in attention-gym: |q - kv| < band, where band is `frames`
 * frames of `frame` tokens, rounded down to a multiple of `rounding` (1: not rounded); or q or kv in the prompt; or,
 * with `sink`, kv in the first frame. */
#include <flymask/mask.h>

FLY_PARAM(int, prompt, 226);
FLY_PARAM(int, frame, 1350);
FLY_PARAM(int, frames, 2);
FLY_PARAM(int, sink, 0);
FLY_PARAM(int, rounding, 128);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int band = frames * frame / rounding * rounding, first = prompt + (sink ? frame : 0);
  return q < prompt || kv < first || fly_abs(q - kv) < band;
}
