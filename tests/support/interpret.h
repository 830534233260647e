/* interpret.h: mask programs for tests: an interpreter that is independent of the decoder, helpers that build
 * programs by hand, and a generator of random ones. */
#ifndef TEST_INTERPRET_H
#define TEST_INTERPRET_H

#include "support.h"

#include "runtime/program.h"

/* Check notes every assertion that holds, which is slow in inner loops. */
#define expect(holds, ...)                                                                                             \
  do {                                                                                                                 \
    if (!(holds)) ck_abort_msg(__VA_ARGS__);                                                                           \
  } while (0)

/* A w-bit pattern as the number that programs hold: sign-extended; one bit: 0 or 1. */
int64_t number_of(int w, uint64_t bits);
/* The result of an operation on w-bit numbers (`from`: the operands' width, where it differs); false where it is
 * undefined. */
bool concrete(flyi_op op, int w, int from, int64_t a, int64_t b, int64_t *out);

/* A bound mask around a program, by hand: no code. Everything is owned by the struct. */
typedef struct program_case {
  flyi_program program;
  fly_mask mask;
  fly_bound bound;
  flyi_bytes bytes;
} program_case;

/* Encodes case->program and binds parameters (of i32) and buffers, whose references are taken over. */
void program_case_bind(program_case *c, const int64_t *parameters, int parameter_count, fly_buffer **buffers,
                       int buffer_count);
void program_case_free(program_case *c);

/* Runs the program for one pair: 0, 1, or -1 for more than 10^6 steps. Unknown values are arbitrary, but the same in
 * every run. */
int interpret(const program_case *c, const fly_geometry *geometry, int b, int h, int q, int kv);

/* Appends an instruction; returns its value. */
int32_t put(flyi_program *p, flyi_op op, int width, int32_t a, int32_t b);
int32_t put3(flyi_program *p, flyi_op op, int width, int32_t a, int32_t b, int32_t c);
int32_t put_k(flyi_program *p, flyi_op op, int width, int32_t a, int64_t k);
/* Closes the block that began with instruction `first`; its edges are those added since `edge`. */
void end_block(flyi_program *p, int32_t first, int phis, int loop, flyi_end end, int32_t value, int32_t edge);
void add_edge(flyi_program *p, int32_t target, int64_t match, const int32_t *args, int count);

/* A program of arithmetic, branches and loops over q, kv, b, h, two parameters and two buffers (i32 and u8). */
void random_program(test_random *random, bool unknowns, flyi_program *out);

#endif
