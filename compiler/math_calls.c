/* math_calls.c: the functions of <math.h> that score modifiers may call: their names, and their derivatives as IR.
 * Where a derivative needs another function (sin needs cos), it is declared in the module and joined later. */
#include <string.h>

#include "math_calls.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

typedef LLVMValueRef slope_fn(LLVMBuilderRef b, LLVMValueRef call, LLVMValueRef dx, LLVMValueRef dy);
static slope_fn slope_exp, slope_exp2, slope_expm1, slope_log, slope_log2, slope_log1p, slope_sin, slope_cos,
    slope_tanh, slope_pow, slope_sqrt, slope_fabs, slope_copysign, slope_fmin, slope_fmax;

static const struct {
  const char *name;
  int arity;
  slope_fn *slope; /* NULL: zero wherever it exists */
} functions[] = {
    {"expf", 1, slope_exp},     {"exp2f", 1, slope_exp2},
    {"expm1f", 1, slope_expm1}, {"logf", 1, slope_log},
    {"log2f", 1, slope_log2},   {"log1pf", 1, slope_log1p},
    {"sinf", 1, slope_sin},     {"cosf", 1, slope_cos},
    {"tanhf", 1, slope_tanh},   {"powf", 2, slope_pow},
    {"sqrtf", 1, slope_sqrt},   {"fabsf", 1, slope_fabs},
    {"fminf", 2, slope_fmin},   {"copysignf", 2, slope_copysign},
    {"fmaxf", 2, slope_fmax},   {"floorf", 1, NULL},
    {"ceilf", 1, NULL},         {"truncf", 1, NULL},
    {"roundf", 1, NULL},        {"rintf", 1, NULL},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* The compiler's builtins become intrinsics of these names. */
static const struct {
  const char *prefix;
  slope_fn *slope;
} intrinsics[] = {{"llvm.fabs.", slope_fabs}, {"llvm.copysign.", slope_copysign}, {"llvm.sqrt.", slope_sqrt}};

int flyi_math_arity(const char *name) {
  for (int i = 0; i < FUNCTIONS; i++)
    if (strcmp(functions[i].name, name) == 0) return functions[i].arity;
  return 0;
}

static slope_fn *slope_of(const char *name) {
  const size_t prefix = strlen(FLYI_MATH_PREFIX);
  for (int i = 0; strncmp(name, FLYI_MATH_PREFIX, prefix) == 0 && i < FUNCTIONS; i++)
    if (strcmp(functions[i].name, name + prefix) == 0) return functions[i].slope;
  for (size_t i = 0; i < sizeof intrinsics / sizeof *intrinsics; i++)
    if (strncmp(name, intrinsics[i].prefix, strlen(intrinsics[i].prefix)) == 0) return intrinsics[i].slope;
  return NULL;
}

static const char *callee_name(LLVMValueRef call) { return LLVMGetValueName2(LLVMGetCalledValue(call), &(size_t){0}); }

bool flyi_math_has_slope(const char *name) { return slope_of(name) != NULL; }

LLVMValueRef flyi_math_slope(LLVMBuilderRef b, LLVMValueRef call, LLVMValueRef dx, LLVMValueRef dy) {
  return slope_of(callee_name(call))(b, call, dx, dy);
}

/* ---- parts of derivatives ---------------------------------------------------------------------------------------- */

static LLVMValueRef argument(LLVMValueRef call, unsigned k) { return LLVMGetOperand(call, k); }

static LLVMValueRef real(LLVMValueRef like, double value) { return LLVMConstReal(LLVMTypeOf(like), value); }

static LLVMValueRef call_of(LLVMBuilderRef b, LLVMValueRef near, const char *name, int count, LLVMValueRef *arguments) {
  LLVMModuleRef module = LLVMGetGlobalParent(LLVMGetBasicBlockParent(LLVMGetInstructionParent(near)));
  LLVMTypeRef type = LLVMTypeOf(arguments[0]), types[] = {type, type};
  LLVMTypeRef signature = LLVMFunctionType(type, types, (unsigned)count, false);
  LLVMValueRef function = LLVMGetNamedFunction(module, name);
  if (!function) function = LLVMAddFunction(module, name, signature);
  return LLVMBuildCall2(b, signature, function, arguments, (unsigned)count, "");
}

static LLVMValueRef choose(LLVMBuilderRef b, LLVMValueRef condition, LLVMValueRef yes, LLVMValueRef no) {
  return LLVMBuildSelect(b, condition, yes, no, "");
}

static LLVMValueRef is_zero(LLVMBuilderRef b, LLVMValueRef x) {
  return LLVMBuildFCmp(b, LLVMRealOEQ, x, real(x, 0), "");
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

static LLVMValueRef slope_exp(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFMul(b, dx, y, "");
}

static LLVMValueRef slope_exp2(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFMul(b, LLVMBuildFMul(b, dx, real(y, 0.69314718055994531), ""), y, "");
}

static LLVMValueRef slope_expm1(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFMul(b, dx, LLVMBuildFAdd(b, y, real(y, 1), ""), "");
}

static LLVMValueRef slope_log(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFDiv(b, dx, argument(y, 0), "");
}

static LLVMValueRef slope_log2(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFDiv(b, LLVMBuildFMul(b, dx, real(y, 1.4426950408889634), ""), argument(y, 0), "");
}

static LLVMValueRef slope_log1p(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFDiv(b, dx, LLVMBuildFAdd(b, argument(y, 0), real(y, 1), ""), "");
}

static LLVMValueRef slope_sin(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFMul(b, dx, call_of(b, y, FLYI_MATH_PREFIX "cosf", 1, (LLVMValueRef[]){argument(y, 0)}), "");
}

static LLVMValueRef slope_cos(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  LLVMValueRef sine = call_of(b, y, FLYI_MATH_PREFIX "sinf", 1, (LLVMValueRef[]){argument(y, 0)});
  return LLVMBuildFMul(b, dx, LLVMBuildFNeg(b, sine, ""), "");
}

/* 1 - y^2 as (1 - y) (1 + y), whose factors are exact near 1. */
static LLVMValueRef slope_tanh(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  LLVMValueRef one = real(y, 1), less = LLVMBuildFSub(b, one, y, ""), more = LLVMBuildFAdd(b, one, y, "");
  return LLVMBuildFMul(b, dx, LLVMBuildFMul(b, less, more, ""), "");
}

/* By the base y x^(y - 1), 0 where y is 0; by the exponent x^y log(x), 0 where x^y is 0. */
static LLVMValueRef slope_pow(LLVMBuilderRef b, LLVMValueRef power, LLVMValueRef dx, LLVMValueRef dy) {
  LLVMValueRef x = argument(power, 0), y = argument(power, 1), zero = real(power, 0), by_x = NULL, by_y = NULL;
  if (dx) {
    LLVMValueRef less = LLVMBuildFSub(b, y, real(y, 1), "");
    by_x = LLVMBuildFMul(b, y, call_of(b, power, FLYI_MATH_PREFIX "powf", 2, (LLVMValueRef[]){x, less}), "");
    by_x = LLVMBuildFMul(b, dx, choose(b, is_zero(b, y), zero, by_x), "");
  }
  if (dy) {
    LLVMValueRef log = call_of(b, power, FLYI_MATH_PREFIX "logf", 1, (LLVMValueRef[]){x});
    by_y = LLVMBuildFMul(b, dy, choose(b, is_zero(b, power), zero, LLVMBuildFMul(b, power, log, "")), "");
  }
  return by_x && by_y ? LLVMBuildFAdd(b, by_x, by_y, "") : by_x ? by_x : by_y;
}

static LLVMValueRef slope_sqrt(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  return LLVMBuildFDiv(b, LLVMBuildFMul(b, dx, real(y, .5), ""), y, "");
}

static LLVMValueRef slope_fabs(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  LLVMValueRef x = argument(y, 0), below = LLVMBuildFCmp(b, LLVMRealOLT, x, real(x, 0), "");
  return choose(b, is_zero(b, x), real(x, 0), choose(b, below, LLVMBuildFNeg(b, dx, ""), dx));
}

/* x with the sign of y is +x or -x: which of them, the result says. */
static LLVMValueRef slope_copysign(LLVMBuilderRef b, LLVMValueRef y, LLVMValueRef dx, LLVMValueRef dy) {
  (void)dy;
  if (!dx) return real(y, 0); /* the sign alone depends on s */
  return choose(b, LLVMBuildFCmp(b, LLVMRealUEQ, y, argument(y, 0), ""), dx, LLVMBuildFNeg(b, dx, ""));
}

/* Which of two arguments the result is: the first where both are equal, and where the second is a NaN. */
static LLVMValueRef slope_of_two(LLVMBuilderRef b, LLVMValueRef call, LLVMRealPredicate predicate, LLVMValueRef dx,
                                 LLVMValueRef dy) {
  LLVMValueRef x = argument(call, 0), y = argument(call, 1), zero = real(call, 0);
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, y, y, "");
  LLVMValueRef first = LLVMBuildOr(b, LLVMBuildFCmp(b, predicate, x, y, ""), nan, "");
  return choose(b, first, dx ? dx : zero, dy ? dy : zero);
}

static LLVMValueRef slope_fmin(LLVMBuilderRef b, LLVMValueRef call, LLVMValueRef dx, LLVMValueRef dy) {
  return slope_of_two(b, call, LLVMRealOLE, dx, dy);
}

static LLVMValueRef slope_fmax(LLVMBuilderRef b, LLVMValueRef call, LLVMValueRef dx, LLVMValueRef dy) {
  return slope_of_two(b, call, LLVMRealOGE, dx, dy);
}
