/* smat: causal, and a table says which types of keys a profile of query sees.
 * Convention: SMat (arXiv 2609.36062): visible[profile[q], type[kv]] and kv <= q. profile: int32 [n], type: int32
 * [n], visible: uint8 [profiles, types], not 0 is visible; numbers outside the table are those of its border. */
#include <flymask/mask.h>

FLY_BUFFER(int32_t, profile, 1);
FLY_BUFFER(int32_t, type, 1);
FLY_BUFFER(uint8_t, visible, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int i = fly_clamp(profile[q], 0, fly_dim(visible, 0) - 1), j = fly_clamp(type[kv], 0, fly_dim(visible, 1) - 1);
  bool allowed = fly_at2(visible, i, j) != 0;
  return allowed && kv <= q;
}
