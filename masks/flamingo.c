/* flamingo: text (queries) sees images (keys), each from an interval of text positions only.
 * Convention: attention-gym's cross attention after Flamingo: keys are images of `size` tokens each, in order; image
 * i is seen by the queries intervals[i, 0] <= q < intervals[i, 1]. intervals: int32 [images, 2]. Keys behind the
 * last image belong to it. */
#include <flymask/mask.h>

FLY_PARAM(int, size, 64);
FLY_BUFFER(int32_t, intervals, 2);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  int image = fly_clamp(kv / size, 0, fly_dim(intervals, 0) - 1);
  int from = fly_at2(intervals, image, 0), to = fly_at2(intervals, image, 1);
  return q >= from && q < to;
}
