/* math_calls.h: the functions of <math.h> that score modifiers may call (math_calls.c). */
#ifndef FLYMASK_MATH_CALLS_H
#define FLYMASK_MATH_CALLS_H

#include "compiler.h"

/* In the symbolic form they are float @fly_math_NAME(float...), which templates/score_math.c defines. */
#define FLYI_MATH_PREFIX "fly_math_"

/* The number of arguments of a function that a source may call by this name; 0: there is none. */
int flyi_math_arity(const char *source_name);

/* Whether a symbolic function or intrinsic of LLVM has a derivative that is not zero everywhere. */
bool flyi_math_has_slope(const char *symbolic_name);
/* d f(x, y) = f_x dx + f_y dy, at the builder's place; dx or dy NULL: zero. `call` is the call of f. */
LLVMValueRef flyi_math_slope(LLVMBuilderRef builder, LLVMValueRef call, LLVMValueRef dx, LLVMValueRef dy);

#endif
