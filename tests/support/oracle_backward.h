/* oracle_backward.h: gradients in double precision, pair by pair, as calculus gives them: the reference of the
 * backward tests.
 *
 * With S = scale Q K', P = softmax(S) over what a query sees, O = P V: dP = dO V', delta_i = sum_j P_ij dP_ij, dS = P
 * * (dP - delta + dLSE), dQ = scale dS K, dK = scale dS' Q, dV = P' dO; rows of the call that are one row of a tensor
 * add up. O and LSE of the call are not read. Shares no code with the library. */
#ifndef TEST_ORACLE_BACKWARD_H
#define TEST_ORACLE_BACKWARD_H

#include "oracle.h"

/* One tensor's gradient [batch, heads, sequence, dimension], dense, and what an f32 kernel may differ by at each
 * element, but for the rounding to the tensor's type. */
typedef struct oracle_gradient {
  double *value, *tolerance;
} oracle_gradient;

typedef struct oracle_gradients {
  oracle_gradient q, k, v;
} oracle_gradients;

/* The geometry must be complete. Free with oracle_gradients_free. */
oracle_gradients oracle_backward(const fly_attention *call, oracle_predicate *see, void *context);
void oracle_gradients_free(oracle_gradients *gradients);

/* Sum of dO * O and dLSE * LSE over the call, by the forward oracle (oracle.h): what the gradients are gradients of. */
double oracle_loss(const fly_attention *call, oracle_predicate *see, void *context);

/* Writes out and lse of the call, rounded once. */
void oracle_forward(const fly_attention *call, oracle_predicate *see, void *context);

/* Compares d_q, d_k and d_v where they are wanted. Fails the test with `what`. */
void oracle_check_backward(const fly_attention *call, oracle_predicate *see, void *context, const char *what);

/* The same for kernels that multiply by P and dS rounded to 16 bits: `operands` is the largest
 * relative error of that. */
void oracle_check_backward_units(const fly_attention *call, oracle_predicate *see, void *context, double operands,
                                 const char *what);

#endif
