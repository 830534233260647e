/* cpu.c: which vector levels of x86-64 this machine runs, and the kernels built for each. The level x86-64-v4-bf16 is
 * x86-64-v4 with AVX512-BF16: only attention on bf16 tensors uses that, everything else is x86-64-v4's. */
#include <stdlib.h>
#include <string.h>

#include "call.h"

static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"};

#define NAMES "x86-64, x86-64-v3, x86-64-v4"

static flyi_isa machine_best(void) {
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
            __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
            __builtin_cpu_supports("movbe");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
  if (v4 && __builtin_cpu_supports("avx512bf16")) return FLYI_X86_64_V4_BF16;
  return v4 ? FLYI_X86_64_V4 : v3 ? FLYI_X86_64_V3 : FLYI_X86_64;
}

static bool isa_named(const char *name, flyi_isa *out) {
  for (int i = 0; i < FLYI_ISA_COUNT; i++) {
    if (strcmp(name, names[i]) != 0) continue;
    *out = (flyi_isa)i;
    return true;
  }
  return false;
}

/* $FLYMASK_ISA, NULL where it is not set. */
static const char *limit(void) {
  const char *name = getenv("FLYMASK_ISA");
  return name && *name ? name : NULL;
}

flyi_isa flyi_isa_best(void) {
  flyi_isa best = machine_best(), wanted;
  const char *name = limit();
  return name && isa_named(name, &wanted) && wanted < best ? wanted : best;
}

const char *flyi_isa_name(flyi_isa isa) { return names[isa]; }

flyi_isa flyi_isa_vectors(flyi_isa isa) { return isa == FLYI_X86_64_V4_BF16 ? FLYI_X86_64_V4 : isa; }

fly_status flyi_isa_parse(const char *target, flyi_isa *out, fly_error *error) {
  flyi_isa best = flyi_isa_best(), ignored;
  const char *name = limit();
  *out = best;
  if (name && !isa_named(name, &ignored))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "FLYMASK_ISA is %.60s: use " NAMES " or x86-64-v4-bf16", name);
  if (!target || strcmp(target, "cpu") == 0) return FLY_OK;
  if (!isa_named(target, out))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "target %.60s: not one of " NAMES ", x86-64-v4-bf16", target);
  if (*out > best && *out <= machine_best())
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "target %s: FLYMASK_ISA allows %s at best", target, names[best]);
  if (*out > best)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "target %s: this machine runs %s at best", target, names[best]);
  return FLY_OK;
}

const char *const *fly_cpu_targets(void) {
  static const char *const all[] = {"x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64", NULL};
  return all + (FLYI_X86_64_V4_BF16 - flyi_isa_best());
}

const flyi_forward_code *flyi_forward_code_of(flyi_isa isa, fly_type type) {
  if (isa == FLYI_X86_64_V4_BF16 && type == FLY_BF16) return &flyi_forward_x86_64_v4_bf16;
  switch (flyi_isa_vectors(isa)) {
  case FLYI_X86_64_V4:
    return &flyi_forward_x86_64_v4;
  case FLYI_X86_64_V3:
    return &flyi_forward_x86_64_v3;
  default:
    return &flyi_forward_x86_64;
  }
}

const flyi_split_code *flyi_split_code_of(flyi_isa isa, fly_type type) {
  if (isa == FLYI_X86_64_V4_BF16 && type == FLY_BF16) return &flyi_split_x86_64_v4_bf16;
  switch (flyi_isa_vectors(isa)) {
  case FLYI_X86_64_V4:
    return &flyi_split_x86_64_v4;
  case FLYI_X86_64_V3:
    return &flyi_split_x86_64_v3;
  default:
    return &flyi_split_x86_64;
  }
}

const flyi_backward_code *flyi_backward_code_of(flyi_isa isa, fly_type type) {
  if (isa == FLYI_X86_64_V4_BF16 && type == FLY_BF16) return &flyi_backward_x86_64_v4_bf16;
  switch (flyi_isa_vectors(isa)) {
  case FLYI_X86_64_V4:
    return &flyi_backward_x86_64_v4;
  case FLYI_X86_64_V3:
    return &flyi_backward_x86_64_v3;
  default:
    return &flyi_backward_x86_64;
  }
}
