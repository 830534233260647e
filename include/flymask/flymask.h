/* Flymask: attention masks written in C, compiled to block-sparse flash-attention kernels.
 *
 * Its parts, in the order below, read from top to bottom as the tutorial:
 *
 *     types.h        1  errors
 *                    2  element types, captured buffers
 *     compile.h      3  compile a mask; and, or, not
 *                    4  bind its parameters and buffers; score modifiers
 *     geometry.h     5  the call's geometry; what a mask's author should know before it runs
 *     map.h          6  block maps; operations on maps
 *     attention.h    7  kernels
 *                    8  attention, forward and backward; sinks
 *     image.h        9  images: ahead-of-time compilation; what the compiler made, as text; targets
 *     mechanisms.h  10  permutations
 *                   11  merging partial attentions
 *                   12  stochastic attention
 *                   13  gated sums of attentions
 *                   14  selected blocks: MoBA and others
 *     cuda.h        15  NVIDIA GPUs
 *
 * Conventions. Tensors are [batch, heads, sequence, dimension]. Every fallible function returns a fly_status (FLY_OK is
 * 0) and, on failure only, fills the caller's fly_error (which may be NULL); *out is then NULL. Objects are immutable
 * and reference-counted: fly_X_retain, fly_X_release (which sets the caller's pointer to NULL); they may be shared
 * between threads, and every function here may be called from several threads at once. Inputs are borrowed for the call
 * unless a comment says otherwise. NULL in the place of an object never crashes: the result is FLY_ERROR_ARGUMENT,
 * NULL, -1 or a struct of zeros; retaining or releasing it does nothing.
 *
 * The library never prints, exits or aborts. Two things that it uses do, and end the process: LLVM where it cannot
 * allocate while it compiles [compiler], and OpenMP where it cannot start the threads it is asked for (ask for fewer,
 * or bring a parallel_for). Everywhere else a failed allocation is FLY_ERROR_MEMORY and leaves nothing behind.
 *
 * Structs that may grow begin with `size`: set it with FLY_INIT(type), or to sizeof(type); fields you do not name
 * are 0 and mean the default.
 *
 * Two libraries: libflymask_runtime has everything but the functions marked [compiler], and links no LLVM;
 * libflymask adds those. */
#ifndef FLYMASK_FLYMASK_H
#define FLYMASK_FLYMASK_H

#include <flymask/types.h>
#include <flymask/compile.h>
#include <flymask/geometry.h>
#include <flymask/map.h>
#include <flymask/attention.h>
#include <flymask/image.h>
#include <flymask/mechanisms.h>
#include <flymask/cuda.h>

#endif
