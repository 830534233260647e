/* svg_temporal: a prompt, then a video by frames; a token sees its surroundings in every frame, all see the prompt.
 * Convention: the temporal heads of Sparse VideoGen as in attention-gym: the places of q and kv in their frames of
 * `frame` tokens differ by less than width frame / frames (frames: of the whole video); or q or kv is in the prompt. */
#include <flymask/mask.h>

FLY_PARAM(int, prompt, 226);
FLY_PARAM(int, frame, 1350);
FLY_PARAM(int, frames, 13);
FLY_PARAM(int, width, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  if (q < prompt || kv < prompt) return true;
  int place_q = (q - prompt) % frame, place_kv = (kv - prompt) % frame;
  return fly_abs(place_q - place_kv) < width * frame / frames;
}
