/* in_double.h: included before a modifier to compile it with double in the place of float: the reference whose
 * differences the compiler's derivatives are held to. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define float double
#define expf exp
#define exp2f exp2
#define expm1f expm1
#define logf log
#define log2f log2
#define log1pf log1p
#define sinf sin
#define cosf cos
#define tanhf tanh
#define powf pow
#define sqrtf sqrt
#define fabsf fabs
#define copysignf copysign
#define fminf fmin
#define fmaxf fmax
#define floorf floor
#define ceilf ceil
#define truncf trunc
#define roundf round
#define rintf rint
#define __builtin_sqrtf sqrt
#define __builtin_fabsf fabs
#define __builtin_copysignf copysign
