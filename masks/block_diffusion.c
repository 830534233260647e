/* block_diffusion: the noised sequence, then the clean one; a block is denoised from its own noise and the clean past.
 * Convention: BD3-LM's training mask (arXiv 2503.09573), as in attention-gym: positions 0 .. length - 1 are noised,
 * length .. 2 length - 1 clean, in blocks of `size`. Noised tokens see the noised ones of their block and the clean
 * ones of earlier blocks; clean tokens the clean ones of their own and earlier blocks. */
#include <flymask/mask.h>

FLY_PARAM(int, length, 1024);
FLY_PARAM(int, size, 16);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  bool clean_q = q >= length, clean_kv = kv >= length;
  int i = (clean_q ? q - length : q) / size, j = (clean_kv ? kv - length : kv) / size;
  return clean_kv ? j < i + clean_q : i == j && !clean_q;
}
