/* map_case.c: masks from text, for tests of maps. */
#include "map_case.h"

fly_mask *map_compile(const char *body) {
  char source[2048];
  fly_mask *mask;
  fly_error error;
  snprintf(source, sizeof source, "#include <flymask/mask.h>\n%s\n", body);
  ck_fly_ok(fly_mask_compile(source, "test.c", NULL, &mask, &error), error);
  return mask;
}

fly_bound *map_bind(const char *body, const fly_arg *args, int count) {
  fly_mask *mask = map_compile(body);
  fly_bound *bound;
  fly_error error;
  ck_fly_ok(fly_mask_bind(mask, args, count, &bound, &error), error);
  fly_mask_release(&mask);
  return bound;
}

fly_map *map_build(fly_bound *bound, const fly_geometry *g, int tile) {
  fly_map_options options = {FLY_INIT(fly_map_options), .tile_q = tile, .tile_kv = tile};
  fly_map *map;
  fly_error error;
  ck_fly_ok(fly_map_build(bound, g, &options, &map, &error), error);
  return map;
}

fly_geometry map_square(int64_t batch, int64_t heads, int64_t n) {
  return (fly_geometry){FLY_INIT(fly_geometry), .batch = batch, .heads = heads, .len_q = n, .len_kv = n};
}
