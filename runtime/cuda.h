/* cuda.h: what the files of the CUDA runtime share.
 *
 *   the handle (cuda.c)  |  what is resident on a device (cuda_resident.c)
 *   |  calls (cuda_module.c, cuda_check.c, cuda_map.c, cuda_launch.c, cuda_split.c, cuda_backward.c)
 *   |  row by row (cuda_rows.c, cuda_merge.c, cuda_gated.c, cuda_gated_project.c, cuda_selection.c,
 *      cuda_moba.c) */
#ifndef FLYMASK_RUNTIME_CUDA_H
#define FLYMASK_RUNTIME_CUDA_H

#include <pthread.h>

#include "call.h"
#include "compiler/templates/launch_rows.h"
#include "cuda_driver.h"

/* ---- the handle (cuda.c) --------------------------------------------------------------------------------------- */

struct fly_cuda {
  atomic_int references; /* the callers' */
  atomic_int holds;      /* of this struct: one for all references, one for each resident */
  flyi_cuda_driver driver;
  flyi_cuda_context context;
  bool primary; /* the context is a primary one, which is retained */
  int arch;     /* 80 for sm_80 */
  fly_cuda_info info;
  pthread_mutex_t lock; /* of all that follows, and of the residents */
  struct flyi_resident *first;
  size_t resident;
  int64_t uploads;
  flyi_residents own; /* what is of no object: modules of cuda_rows.c */
};

/* Makes the context current for the caller's duration. Between the two the driver's calls can be made. */
fly_status flyi_cuda_enter(fly_cuda *cuda, bool *pushed, fly_error *error) FLYI_MUST_CHECK;
void flyi_cuda_leave(fly_cuda *cuda, bool pushed);
/* One hold less: the last one frees the struct. */
void flyi_cuda_drop(fly_cuda *cuda);

/* ---- what is resident on a device (cuda_resident.c) ------------------------------------------------------------ */

/* What a handle keeps on its device for an object: memory with a copy of it, or a module with its code. The
 * object's list owns the struct; what is on the device ends with the object or with the handle. */
struct flyi_resident {
  fly_cuda *cuda;                       /* held */
  struct flyi_resident *next;           /* of the object */
  struct flyi_resident *before, *after; /* of the handle; NULL, NULL and not its first: no longer there */
  flyi_hash key;                        /* which copy of the object */
  bool alive;
  flyi_device_memory memory;
  size_t bytes;
  flyi_cuda_event ready; /* NULL: nothing to wait for */
  flyi_cuda_module module;
  flyi_cuda_function *function; /* of a module, by entry; NULL: one that this device cannot launch */
};

/* The resident of the handle with this key, or NULL. The lock is held. */
flyi_resident *flyi_resident_find(flyi_residents *list, const fly_cuda *cuda, flyi_hash key);
/* Adds one with a module or memory that is made already; takes over neither where it fails. The lock is held. */
fly_status flyi_resident_add(flyi_residents *list, const flyi_resident *made, flyi_resident **out, fly_error *error);

/* The end of a handle. */
void flyi_residents_close(fly_cuda *cuda);

/* Bytes on their way to the device: pieces are copied side by side, each aligned to 256 bytes. */
typedef struct flyi_staging {
  uint8_t *data;
  size_t size, capacity;
  bool dry;    /* only places are wanted */
  bool failed; /* no memory, or more than a size_t */
} flyi_staging;
/* Reserves a piece, zeroed, and says where it is; good until the next one. NULL where it is dry, or that failed:
 * then all fails. */
void *flyi_staging_add(flyi_staging *s, size_t count, size_t size, size_t *offset);
void flyi_staging_free(flyi_staging *s);

/* The object's copy, made by `stage` and copied in the order of the stream where it is not there yet. Work that
 * comes on the stream later finds the bytes there. */
typedef fly_status flyi_stage_fn(const void *object, flyi_staging *staging, fly_error *error);
fly_status flyi_resident_upload(flyi_residents *list, fly_cuda *cuda, flyi_hash key, flyi_cuda_stream stream,
                                flyi_stage_fn *stage, const void *object, flyi_device_memory *out, fly_error *error);

/* ---- modules (cuda_module.c) ----------------------------------------------------------------------------------- */

/* A kernel's code of one direction, loaded. */
typedef struct flyi_cuda_loaded {
  const flyi_cuda_code *code;
  const flyi_cuda_function *function; /* by entry; NULL: one that this device cannot launch */
} flyi_cuda_loaded;
fly_status flyi_cuda_load(fly_kernel *kernel, flyi_direction direction, fly_cuda *cuda, flyi_cuda_loaded *out,
                          fly_error *error);
/* The entry of a role for a call whose tensors are aligned or not; -1: there is none. */
int flyi_cuda_entry_of(const flyi_cuda_loaded *loaded, flyi_cuda_role role, bool aligned);

/* PTX for a target on the device: a module that is the caller's. */
fly_status flyi_cuda_load_text(fly_cuda *cuda, const char *ptx, const char *target, flyi_cuda_module *out,
                               fly_error *error);

/* ---- calls: what they check (cuda_check.c) --------------------------------------------------------------------- */

/* Whether the call may go to a GPU: handle, stream, pointers. The context is current. */
fly_status flyi_cuda_check(const flyi_call *call, bool backward, fly_error *error);
/* Whether a stream is of the handle's context; whether a tensor is in its device's memory. The context is current. */
fly_status flyi_cuda_check_stream(const fly_cuda *cuda, flyi_cuda_stream stream, fly_error *error);
fly_status flyi_cuda_check_tensor(const char *name, const fly_tensor *t, const fly_cuda *cuda, fly_error *error);
/* FLYI_CUDA_ALIGNED. */
bool flyi_cuda_aligned(const fly_attention *c, bool backward);

/* ---- calls: host objects on the device (cuda_map.c) ------------------------------------------------------------ */

/* A call in the making. What is only for this call is freed when it ends, in the order of the stream. */
enum { FLYI_CUDA_TEMPORARIES = 16 };
typedef struct flyi_cuda_launch {
  const flyi_call *call;
  fly_cuda *cuda;
  flyi_cuda_stream stream;
  const fly_map *map;
  bool own_map; /* built for this call */
  flyi_cuda_loaded loaded;
  bool aligned;
  flyi_cuda_call *argument; /* and the flyi_mask_args behind it */
  flyi_mask_args *mask;
  flyi_device_memory temporary[FLYI_CUDA_TEMPORARIES];
  int temporaries;
} flyi_cuda_launch;

/* Device memory until the call ends. */
fly_status flyi_cuda_temporary(flyi_cuda_launch *l, size_t bytes, flyi_device_memory *out, fly_error *error);
void flyi_cuda_free_temporaries(flyi_cuda_launch *l);
/* Fills in mask arguments, row maps and captured buffers. */
fly_status flyi_cuda_put_geometry(flyi_cuda_launch *l, fly_error *error);
/* The map in one order, for tiles of so many rows. */
fly_status flyi_cuda_put_map(flyi_cuda_launch *l, fly_order order, int32_t outer, int32_t inner, flyi_cuda_map *out,
                             fly_error *error);

/* Bytes that `stage` makes, copied for the call or kept with its map. */
fly_status flyi_cuda_put(flyi_cuda_launch *l, flyi_hash key, flyi_stage_fn *stage, const void *object,
                         flyi_device_memory *out, fly_error *error);
enum {
  FLYI_KEY_GEOMETRY = 1, FLYI_KEY_OUT_ROWS, FLYI_KEY_PLACES, FLYI_KEY_MAP, FLYI_KEY_FINISH = FLYI_KEY_MAP + 2
};

/* ---- calls (cuda_launch.c, cuda_backward.c) -------------------------------------------------------------------- */

/* Checks the rest of the call, loads its code and puts its objects on the device; then the body; then frees. */
typedef fly_status flyi_cuda_body(flyi_cuda_launch *l, fly_error *error);
/* Slots behind flyi_mask_args: of the mask, then of the score modifier. */
int64_t flyi_cuda_slots(const flyi_call *call);
fly_status flyi_cuda_call_run(const flyi_call *call, flyi_direction direction, flyi_cuda_body *body, fly_error *error);

flyi_cuda_tensor flyi_cuda_tensor_of(const fly_tensor *t);
fly_status flyi_cuda_find(const flyi_cuda_launch *l, flyi_cuda_role role, const flyi_cuda_entry **out,
                          fly_error *error);
/* Sets tiles and together, for pairs that read so many bytes again and again; returns the number of blocks. */
int64_t flyi_cuda_deal(flyi_cuda_launch *l, int64_t tiles, int64_t pairs, int64_t pair_bytes);
fly_status flyi_cuda_run(flyi_cuda_launch *l, const flyi_cuda_entry *entry, int64_t blocks, fly_error *error);

/* ---- row by row: kernels that no mask is joined with (cuda_rows.c, cuda_merge.c, cuda_gated.c,
 *      cuda_gated_project.c, cuda_selection.c, cuda_moba.c) -------------------------------------------------------- */

typedef enum flyi_cuda_rows_kernel {
  FLYI_ROWS_MERGE, FLYI_ROWS_MERGE_BACKWARD, FLYI_ROWS_GATE, FLYI_ROWS_GATE_BACKWARD, FLYI_ROWS_ZERO,
  FLYI_ROWS_PRODUCT, FLYI_ROWS_SLICES, /* not row by row: flyi_cuda_run_blocks */
  FLYI_ROWS_MEANS, FLYI_ROWS_CHOOSE
} flyi_cuda_rows_kernel;
/* Launches one over `rows` rows, with its struct of launch_rows.h. The context is current. */
fly_status flyi_cuda_run_rows(fly_cuda *cuda, flyi_cuda_stream stream, flyi_cuda_rows_kernel kernel,
                              const void *argument, int64_t rows, fly_error *error);
/* The same over blocks of FLYI_ROWS_THREADS threads with so much shared memory. */
fly_status flyi_cuda_run_blocks(fly_cuda *cuda, flyi_cuda_stream stream, flyi_cuda_rows_kernel kernel,
                                const void *argument, int64_t blocks, unsigned shared, fly_error *error);

/* Whether a forward call is one of few queries and many keys for this device; such a call, launched (cuda_split.c). */
bool flyi_cuda_split_suits(const flyi_call *call);
fly_status flyi_cuda_split(flyi_cuda_launch *l, fly_error *error);

/* A checked merge on a GPU. */
fly_status flyi_cuda_merge_call(const fly_merge_call *call, bool backward, fly_error *error);

/* ---- forward and backward ---------------------------------------------------------------------------------------- */

/* A checked call whose kernel is for a GPU; the workspace's bytes likewise. */
fly_status flyi_cuda_forward(const flyi_call *call, fly_error *error);
fly_status flyi_cuda_backward(const flyi_call *call, fly_error *error);
fly_status flyi_cuda_workspace(const flyi_call *call, bool backward, size_t *bytes, fly_error *error);

#endif
