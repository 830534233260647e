/* extremes.c: calls a mask that captures nothing at positions up to 2^31 - 2, with its default parameters. Linked
 * with the mask under -fsanitize=undefined, which stops at a signed overflow. */
#include <flymask/mask.h>

int main(void) {
  static const int positions[] = {
      0, 1, 127, 128, 8191, 8192, 1 << 20, 1 << 30, INT32_MAX - 8192, INT32_MAX - 2, INT32_MAX - 1};
  enum { COUNT = sizeof positions / sizeof *positions };
  int shown = 0;
  fly_mask_context.len_q = fly_mask_context.len_kv = INT32_MAX;
  for (int i = 0; i < COUNT; i++)
    for (int j = 0; j < COUNT; j++) shown += mask(0, 0, positions[i], positions[j]);
  return shown < 0;
}
