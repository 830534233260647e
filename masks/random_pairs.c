/* random_pairs: a query sees itself and a random share of all keys, the same pairs in every run.
 * Convention: ours, for baselines and random graphs without a stored graph: a pair is visible if a hash of (q, kv,
 * seed), MurmurHash3's final mixer, falls below per_mille thousandths of its range. Both directions are drawn apart;
 * combine with causal for decoders. */
#include <flymask/mask.h>

FLY_PARAM(int, per_mille, 50);
FLY_PARAM(int, seed, 0);

bool mask(int b, int h, int q, int kv) {
  (void)b, (void)h;
  uint32_t x = (uint32_t)q * 0x9e3779b1u + (uint32_t)kv * 0x85ebca77u + (uint32_t)seed;
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  x ^= x >> 16;
  return q == kv || (int)((x >> 16) * 1000 >> 16) < per_mille;
}
