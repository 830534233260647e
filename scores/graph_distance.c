/* graph_distance: a learned bias by the distance of two nodes in a graph (Graphormer, Ying et al., arXiv 2106.05234).
 * hops: int16 [nodes, nodes], the length of the shortest path; bias: f32 [heads, distances].
 * Convention: a negative hop count (no path), and one beyond the table, take its last column. */
#include <flymask/score.h>

FLY_BUFFER(int16_t, hops, 2);
FLY_BUFFER(float, bias, 2);

float score(float s, int b, int h, int q, int kv) {
  (void)b;
  int last = (int)fly_dim(bias, 1) - 1, far = fly_at2(hops, q, kv);
  return s + fly_at2(bias, h, far < 0 || far > last ? last : far);
}
