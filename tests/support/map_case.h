/* map_case.h: a mask from a few lines of C, bound, and mapped. Each fails the test where it cannot. */
#ifndef TEST_MAP_CASE_H
#define TEST_MAP_CASE_H

#include "map_truth.h"

fly_mask *map_compile(const char *body); /* mask.h is included before it */
fly_bound *map_bind(const char *body, const fly_arg *args, int count);
fly_map *map_build(fly_bound *bound, const fly_geometry *g, int tile);
/* n queries by n keys. */
fly_geometry map_square(int64_t batch, int64_t heads, int64_t n);

#endif
