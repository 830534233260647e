/* cpu.c: the vector levels of the CPU: which ones this machine runs, and the kernels built for each. The level
 * x86-64-v4-bf16 is x86-64-v4 with AVX512-BF16: only attention on bf16 tensors uses that, everything else is
 * x86-64-v4's. AArch64 has one level, NEON, which every such machine has. */
#include <stdlib.h>
#include <string.h>

#include "call.h"

static const char *const names[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "aarch64"};

/* What can be said here, and what a compiler can be asked for. */
#if defined __x86_64__
#define NAMES "x86-64, x86-64-v3, x86-64-v4 or x86-64-v4-bf16"

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
#else
#define NAMES "aarch64"

static flyi_isa machine_best(void) { return FLYI_AARCH64; }
#endif
#define ALL_NAMES "x86-64, x86-64-v3, x86-64-v4, x86-64-v4-bf16, aarch64"

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
  return name && isa_named(name, &wanted) && flyi_isa_is_here(wanted) && wanted < best ? wanted : best;
}

const char *flyi_isa_name(flyi_isa isa) { return names[isa]; }

flyi_isa flyi_isa_vectors(flyi_isa isa) { return isa == FLYI_X86_64_V4_BF16 ? FLYI_X86_64_V4 : isa; }

const char *flyi_isa_machine(flyi_isa isa) { return isa == FLYI_AARCH64 ? "aarch64" : "x86-64"; }

bool flyi_isa_is_here(flyi_isa isa) { return isa >= FLYI_ISA_FIRST && isa <= FLYI_ISA_LAST; }

int flyi_isa_build(flyi_isa isa) { return (int)flyi_isa_vectors(isa) - FLYI_ISA_FIRST; }

fly_status flyi_isa_parse_any(const char *target, flyi_isa *out, fly_error *error) {
  flyi_isa best = flyi_isa_best(), limited;
  const char *name = limit();
  *out = best;
  if (name && !(isa_named(name, &limited) && flyi_isa_is_here(limited)))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "FLYMASK_ISA is %.60s: use " NAMES, name);
  if (!target || strcmp(target, "cpu") == 0) return FLY_OK;
  if (!isa_named(target, out))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "target %.60s: not one of " ALL_NAMES ", and no GPU's (sm_80, ...)",
                     target);
  if (!flyi_isa_is_here(*out)) return FLY_OK;
  if (*out > best && *out <= machine_best())
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "target %s: FLYMASK_ISA allows %s at best", target, names[best]);
  if (*out > best)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "target %s: this machine runs %s at best", target, names[best]);
  return FLY_OK;
}

fly_status flyi_isa_parse(const char *target, flyi_isa *out, fly_error *error) {
  fly_status status = flyi_isa_parse_any(target, out, error);
  if (status || flyi_isa_is_here(*out)) return status;
  return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "target %s: this machine is %s", target,
                   flyi_isa_machine(FLYI_ISA_FIRST));
}

const char *const *fly_cpu_targets(void) {
#if defined __x86_64__
  static const char *const all[] = {"x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64", NULL};
#else
  static const char *const all[] = {"aarch64", NULL};
#endif
  return all + (FLYI_ISA_LAST - flyi_isa_best());
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

extern const flyi_forward_code FLYI_BUILDS_BF16(flyi_forward_);
extern const flyi_split_code FLYI_BUILDS_BF16(flyi_split_);
extern const flyi_backward_code FLYI_BUILDS_BF16(flyi_backward_);

/* The place in FLYI_BUILDS_BF16. */
static int build_of(flyi_isa isa, fly_type type) {
  return type == FLY_BF16 ? (int)isa - FLYI_ISA_FIRST : flyi_isa_build(isa);
}

const flyi_forward_code *flyi_forward_code_of(flyi_isa isa, fly_type type) {
  static const flyi_forward_code *const all[] = {FLYI_BUILDS_BF16(&flyi_forward_)};
  return all[build_of(isa, type)];
}

const flyi_split_code *flyi_split_code_of(flyi_isa isa, fly_type type) {
  static const flyi_split_code *const all[] = {FLYI_BUILDS_BF16(&flyi_split_)};
  return all[build_of(isa, type)];
}

const flyi_backward_code *flyi_backward_code_of(flyi_isa isa, fly_type type) {
  static const flyi_backward_code *const all[] = {FLYI_BUILDS_BF16(&flyi_backward_)};
  return all[build_of(isa, type)];
}
