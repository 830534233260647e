/* runtime.h: what the files of runtime/ share, in the order in which a call meets it. No LLVM here.
 *
 *   errors, memory, threads  |  buffers  |  images  |  code  |  masks, bound masks  |  mask programs  |  block maps
 *   |  CPU targets  |  kernels  |  CUDA kernels */
#ifndef FLYMASK_RUNTIME_H
#define FLYMASK_RUNTIME_H

#include <flymask/flymask.h>
#include <stdatomic.h>

#include "../compiler/templates/launch_cuda.h"

#define FLYI_MUST_CHECK __attribute__((warn_unused_result))
#define FLYI_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* ---- errors, memory (error.c) ------------------------------------------------------------------------------------ */

/* Fills *error (if not NULL) and returns `status`, so that a function can end with `return flyi_fail(...)`. */
fly_status flyi_fail(fly_error *error, fly_status status, const char *format, ...) FLYI_PRINTF(3, 4);
fly_status flyi_fail_at(fly_error *error, const char *file, int line, int column, const char *format, ...)
    FLYI_PRINTF(5, 6);
fly_status flyi_no_memory(fly_error *error);

/* Every allocation of the library goes through these, so that tests can make the n-th one fail
 * (flyi_fail_allocation(n); 0: none). NULL for failure and for sizes that overflow. Zeroed. */
void *flyi_alloc(size_t count, size_t size) FLYI_MUST_CHECK;
void *flyi_alloc_aligned(size_t bytes) FLYI_MUST_CHECK; /* at 64 bytes, not zeroed; free with free() */
void *flyi_grow(void *old, size_t count, size_t size) FLYI_MUST_CHECK;
void flyi_fail_allocation(long nth);

/* A growing array of bytes. */
typedef struct flyi_bytes {
  uint8_t *data;
  size_t size, capacity;
} flyi_bytes;
bool flyi_bytes_add(flyi_bytes *bytes, const void *data, size_t size) FLYI_MUST_CHECK;
void flyi_bytes_free(flyi_bytes *bytes);

/* Writes all of it. False: it did not fit, errno says why; a limit on the size of files raises no signal (write.c). */
bool flyi_write_file(int file, const void *data, size_t size) FLYI_MUST_CHECK;

/* A 128-bit fingerprint (XXH3). Not a defence against an adversary. */
typedef struct flyi_hash {
  uint64_t low, high;
} flyi_hash;
flyi_hash flyi_hash_bytes(const void *data, size_t size);
static inline bool flyi_hash_equal(flyi_hash a, flyi_hash b) { return a.low == b.low && a.high == b.high; }

/* ---- threads (threads.c) ----------------------------------------------------------------------------------------- */

typedef struct flyi_threads {
  int limit; /* 0: OpenMP's own */
  fly_parallel_for parallel_for;
  void *user;
} flyi_threads;

/* How many workers flyi_parallel would use for `count` items: per-worker scratch is sized by it. */
int flyi_worker_count(const flyi_threads *threads, int64_t count);
/* Runs body(context, item, worker) for every item in [0, count): items are handed out in ascending order, one at a
 * time, and worker is in [0, flyi_worker_count). */
void flyi_parallel(const flyi_threads *threads, int64_t count, void (*body)(void *context, int64_t item, int worker),
                   void *context);
/* Between two looks at what another worker is about to do. Its thread may have lost its core: after some looks, this one
 * offers it its own. */
void flyi_pause(int spins);

/* ---- copies on devices (cuda_resident.c) ------------------------------------------------------------------------- */

/* What devices hold of an object: a list, empty at first. The object's end frees all of it. */
typedef struct flyi_resident flyi_resident;
typedef _Atomic(flyi_resident *) flyi_residents;
void flyi_residents_free(flyi_residents *list);

/* ---- buffers (buffer.c) ------------------------------------------------------------------------------------------ */

struct fly_buffer {
  atomic_int references;
  fly_type type;
  int rank;
  int64_t shape[4]; /* 1 beyond the rank */
  int64_t count;    /* elements */
  flyi_hash hash;   /* of type, shape and contents */
  void *data;       /* at least 8 bytes, zero-padded */
  _Atomic(struct flyi_pyramid *) pyramid; /* built by the first map that reads the buffer (pyramid.c) */
  flyi_residents residents;
};

/* A buffer of data that the library made: `data`, from flyi_alloc with 8 bytes more than it holds, is taken over, also
 * on failure. The shape is right. */
fly_status flyi_buffer_take(fly_type type, int rank, const int64_t *shape, void *data, fly_buffer **out,
                            fly_error *error);

/* ---- images (image.c) -------------------------------------------------------------------------------------------- */

/* The sections of an image. A section that is absent has size 0. Pointers are into the image. */
typedef struct flyi_section {
  const void *data;
  size_t size;
} flyi_section;

typedef struct flyi_parameter {
  const char *name;
  fly_type type;
  uint64_t value;    /* the default, as a slot */
  bool baked;        /* a constant of the code: only this value can be bound */
} flyi_parameter;

/* SPLIT: forward, few queries and many keys; code of its own only on GPUs. */
typedef enum flyi_direction {
  FLYI_DIRECTION_FORWARD = FLY_PASS_FORWARD,
  FLYI_DIRECTION_BACKWARD = FLY_PASS_BACKWARD,
  FLYI_DIRECTION_SPLIT = FLY_PASS_DECODE,
  FLYI_DIRECTIONS
} flyi_direction;

/* A kernel of a PTX text. One role may have several: the first whose needs the call and the device meet is the one to
 * launch. */
typedef struct flyi_cuda_entry {
  const char *name;
  int32_t role;                /* flyi_cuda_role */
  int32_t needs;               /* FLYI_CUDA_ALIGNED or 0 */
  int32_t outer, inner;        /* rows of a tile; inner 0: it walks no map */
  int32_t threads;             /* of a block */
  int32_t shared_bytes;        /* dynamic */
  int32_t argument_bytes;      /* flyi_cuda_argument_size of the mask's slots */
} flyi_cuda_entry;

/* What one image can declare. */
enum { FLYI_MAX_PARAMETERS = 1024, FLYI_MAX_BUFFERS = 256, FLYI_MAX_ENTRIES = 16 /* of a direction */ };

/* What an image is of. */
typedef enum flyi_kind { FLYI_MASK, FLYI_SCORE /* a score modifier */ } flyi_kind;

/* What an image holds, decoded. Strings and arrays are owned by `memory`. */
typedef struct flyi_image {
  flyi_kind kind;
  const char *name;         /* of the source */
  const char *target;       /* "x86-64-v4" */
  flyi_hash identity;       /* of the mask's meaning: source, header, baked values; equal for all targets */
  uint32_t reads;           /* FLYI_READS_... */
  int parameter_count, buffer_count;
  flyi_parameter *parameters;
  fly_buffer_info *buffers;
  flyi_section program;     /* the mask program; absent in a modifier's */
  flyi_section code;        /* an object file with the entries of the kind */
  flyi_section ir;          /* the verified mask as LLVM bitcode, for fly_mask_combine; may be absent */
  flyi_section score;       /* the whole image of a kernel's score modifier; absent: it has none */
  fly_kernel_desc kernel;   /* type FLY_TYPE_NONE: an image of a mask or modifier alone */
  int entry_counts[FLYI_DIRECTIONS]; /* kernels of ptx[direction]; 0 of all: an image for the CPU */
  flyi_cuda_entry *entries[FLYI_DIRECTIONS];
  flyi_section ptx[FLYI_DIRECTIONS]; /* a text, with a NUL at the end (which size counts) */
  void *memory;
} flyi_image;

enum {
  FLYI_READS_B = 1, FLYI_READS_H = 2, FLYI_READS_Q = 4, FLYI_READS_KV = 8,
  FLYI_READS_TOKEN_Q = 16, FLYI_READS_TOKEN_KV = 32, FLYI_READS_LEN_Q = 64, FLYI_READS_LEN_KV = 128
};

fly_status flyi_image_write(const flyi_image *image, flyi_bytes *out, fly_error *error);
/* Checks size, magic, version, checksum, every offset and count, and the program (flyi_program_check). */
fly_status flyi_image_read(const void *bytes, size_t size, flyi_image *out, fly_error *error);
void flyi_image_free(flyi_image *image);
/* Whether both declare parameters and buffers of the same types in the same order: then the slots
 * of one suit the other. */
bool flyi_image_same_slots(const flyi_image *a, const flyi_image *b);
/* Of the sources that decide what a compilation gives and how it is read (build_id.cmake): images of another build are
 * refused. */
extern const uint64_t flyi_build_id;

/* ---- the cache (cache.c) ----------------------------------------------------------------------------------------- */

/* Reads entry `key` of `directory` (NULL: the user's; "": none). Absent, unreadable or foreign files are a miss: false.
 * The caller checks the bytes with flyi_image_read. */
bool flyi_cache_read(const char *directory, flyi_hash key, flyi_bytes *out);
/* Writes by rename; a failure is not an error, only no entry. */
void flyi_cache_write(const char *directory, flyi_hash key, const void *data, size_t size);

/* ---- code (loader.c) --------------------------------------------------------------------------------------------- */

/* Executable code of one image: a mask's `tile`, or the others of a score modifier. `unload` frees it. */
typedef struct flyi_code {
  flyi_tile_fn *tile;
  flyi_score_fn *score;
  flyi_slope_fn *slope;
  void *handle;
  size_t size;
  void (*unload)(struct flyi_code *code);
} flyi_code;

/* Maps a relocatable ELF object of our own making, without LLVM: anything it does not expect is an error. */
fly_status flyi_code_load(flyi_section object, flyi_code *out, fly_error *error);
/* relocate.c: 4 bytes at `at`, which will be at address `place`, are made to refer to address `value`,
 * as the relocation type of an ELF machine (EM_X86_64, EM_AARCH64) says. FLY_ERROR_IMAGE: an unknown
 * type, or out of its range. */
fly_status flyi_relocate(int machine, uint32_t type, uint8_t *at, uint64_t value, uint64_t place, fly_error *error);

/* The functions that code may hold. */
enum { FLYI_ENTRY_TILE, FLYI_ENTRY_SCORE, FLYI_ENTRY_SLOPE, FLYI_ENTRIES };
extern const char *const flyi_entry_names[FLYI_ENTRIES];
void flyi_code_enter(flyi_code *code, int entry, void *address);

/* ---- masks, bound masks (mask.c) --------------------------------------------------------------------------------- */

/* A score modifier is one of these too, of its own kind: fly_score is the public name of the same struct. */
struct fly_mask {
  atomic_int references;
  fly_mask_info info;
  fly_parameter_info *parameters; /* info.parameters */
  flyi_image image;
  uint8_t *bytes; /* the image's own bytes */
  size_t size;
  flyi_code code; /* none with `elsewhere` */
  bool elsewhere; /* compiled for another architecture */
  char *cache;    /* directory for what is compiled of it later; NULL: the user's */
};

/* Where an image comes from. One that is loaded has to be for this machine; one that is compiled for another
 * architecture makes a mask without code, for kernels whose images are taken there. */
typedef enum flyi_origin { FLYI_LOADED, FLYI_COMPILED, FLYI_CACHED /* compiled, now or before */ } flyi_origin;
/* Takes over bytes (also on failure) and code (zero: the runtime's own loader loads it; also on failure). */
fly_status flyi_mask_from_image(uint8_t *bytes, size_t size, flyi_code code, flyi_origin origin, fly_mask **out,
                                fly_error *error);
/* FLY_ERROR_UNSUPPORTED: the mask or modifier is compiled for another architecture. */
fly_status flyi_mask_check_here(const fly_mask *mask, fly_error *error);
/* A score modifier as what it is inside. */
static inline fly_mask *flyi_of_score(const fly_score *score) { return (fly_mask *)(uintptr_t)score; }

/* The value of an argument as the parameter's slot, checked against its type. */
fly_status flyi_parameter_slot(const flyi_parameter *parameter, const fly_arg *arg, uint64_t *slot, fly_error *error);

struct fly_bound {
  atomic_int references;
  fly_mask *mask;
  int slot_count;
  uint64_t *slots;      /* launch.h's order, the buffers' included */
  fly_buffer **buffers; /* as declared */
  flyi_hash hash;       /* of the mask's identity, the values and the buffers' contents */
};

/* Copies a caller's struct that begins with `size` into ours of `size` bytes: fields that the caller's version does not
 * have become 0. False where the size is too small, or the caller's version sets fields that ours does not have. */
bool flyi_copy_struct(void *out, size_t size, const void *in) FLYI_MUST_CHECK;

/* A geometry checked and completed: what a map or a call is evaluated over. Row maps stay the caller's. */
typedef struct flyi_domain {
  fly_geometry geometry;
  int64_t max_q, max_kv; /* the longest entry */
  flyi_hash hash;        /* of everything, the row maps' contents included where the mask or call depends on them */
} flyi_domain;
fly_status flyi_domain_check(const fly_geometry *geometry, flyi_domain *out, fly_error *error);
int64_t flyi_len_q(const fly_geometry *g, int64_t b);
int64_t flyi_len_kv(const fly_geometry *g, int64_t b);

/* The arguments of a compiled mask for one call. Owns the identity row maps it may need. */
fly_status flyi_mask_args_create(const fly_bound *bound, const fly_geometry *geometry, flyi_mask_args **out,
                                 fly_error *error);
void flyi_mask_args_free(flyi_mask_args *args);

/* ---- mask programs (program.c, decode.c, nodes.c, interval.c, pyramid.c) ----------------------------------------- */

/* A program is the mask's control-flow graph in our own serialised form. The checker accepts exactly what the decoder
 * can decode without reading outside. */
fly_status flyi_program_check(flyi_section program, const flyi_image *image, fly_error *error);

/* ---- block maps (quadtree.c, blockmap.c) ------------------------------------------------------------------------- */

/* The runs of one (b, h) of a map, in one order: row i's are runs[start[i]] .. runs[start[i + 1] - 1]. */
typedef struct flyi_plane {
  int64_t len_q, len_kv;
  int32_t rows, columns; /* tiles */
  int64_t *start;
  fly_run *runs;
} flyi_plane;

/* Row maps that stay as they are while a map lives: those of a fly_sa. Calls that bring them with the map are not
 * checked row by row again. In each (batch, head) they name rows below `rows`, none twice. */
typedef struct flyi_known_rows {
  flyi_domain domain;
  int64_t rows;
} flyi_known_rows;

/* A pair of a map is visible where its tile is full, or partial and `tile` says so. */
struct fly_map {
  atomic_int references;
  fly_bound *bound;      /* decides the pairs of partial tiles; NULL: none does, and no attention call takes the map */
  flyi_tile_fn *tile;    /* the bound mask's, or one of mapbits.c; NULL: nothing decides them */
  flyi_mask_args *args;  /* of tile: a copy of everything the mask reads, row maps included */
  fly_map *part[2];      /* retained: what `tile` asks, for a map made of maps */
  fly_buffer *bitmap;    /* retained: what `tile` asks, for a map of a bitmap */
  bool built, fast;      /* by fly_map_build, from the bound mask and the geometry alone; as its options say */
  fly_geometry geometry; /* its pointers point into memory of the map */
  flyi_hash domain;      /* flyi_domain.hash */
  _Atomic(const flyi_known_rows *) known; /* or NULL; the fly_sa's, which takes it back */
  flyi_threads threads;  /* of its options: also for what is made of it later */
  fly_map_info info;
  flyi_plane *planes;    /* [plane_count], the distinct ones */
  int32_t *plane_of;     /* [info.batch * info.heads]: which of them is (b, h) of the map */
  int plane_count;
  _Atomic(flyi_plane *) transposed; /* as planes; NULL until fly_map_transpose */
  flyi_residents residents;
  void *memory;
};

/* A map of the geometry without bound, planes, batch and heads; tile sizes are set. Its release
 * frees all that is added. */
fly_status flyi_map_create(const fly_geometry *geometry, const fly_map_options *options, fly_map **out,
                           fly_error *error);
/* Sets bound, tile and args. The caller releases the map where this fails. */
fly_status flyi_map_bind(fly_map *map, fly_bound *bound, fly_error *error);
/* When planes and counts are there: the rest of its info. */
void flyi_map_complete(fly_map *map);
/* fly_map_transpose with the threads of a call. */
fly_status flyi_map_transpose(fly_map *map, const flyi_threads *threads, fly_error *error);
/* The plane of the call's (b, h); NULL where that does not exist, or has not been transposed. */
const flyi_plane *flyi_map_plane(const fly_map *map, fly_order order, int64_t b, int64_t h);

/* ---- CPU targets (cpu.c) ----------------------------------------------------------------------------------------- */

/* Vector levels of each architecture, best last. The compiler makes code for all of them, and a library holds the
 * kernels of its own architecture. */
typedef enum flyi_isa {
  FLYI_X86_64, FLYI_X86_64_V3, FLYI_X86_64_V4, FLYI_X86_64_V4_BF16,
  FLYI_AARCH64,
  FLYI_ISA_COUNT
} flyi_isa;

/* The levels that this library has kernels for, and the kernels' names: FLYI_BUILDS(flyi_gate_) in a declaration, or
 * FLYI_BUILDS(&flyi_gate_) in an array that flyi_isa_build counts. */
#if defined __x86_64__
#define FLYI_ISA_FIRST FLYI_X86_64
#define FLYI_ISA_LAST FLYI_X86_64_V4_BF16
#define FLYI_BUILDS(prefix) prefix##x86_64, prefix##x86_64_v3, prefix##x86_64_v4
#define FLYI_BUILDS_BF16(prefix) FLYI_BUILDS(prefix), prefix##x86_64_v4_bf16
#elif defined __aarch64__ && defined __AARCH64EL__
#define FLYI_ISA_FIRST FLYI_AARCH64
#define FLYI_ISA_LAST FLYI_AARCH64
#define FLYI_BUILDS(prefix) prefix##aarch64
#define FLYI_BUILDS_BF16(prefix) FLYI_BUILDS(prefix)
#else
#error "Flymask runs on x86-64 and on little-endian AArch64"
#endif

flyi_isa flyi_isa_best(void);                 /* of this machine; $FLYMASK_ISA may lower it ("x86-64", ...) */
const char *flyi_isa_name(flyi_isa isa);
flyi_isa flyi_isa_vectors(flyi_isa isa);      /* without bf16's own instructions: of code that has no use for them */
const char *flyi_isa_machine(flyi_isa isa);   /* "x86-64": the architecture */
bool flyi_isa_is_here(flyi_isa isa);          /* of this library's architecture */
int flyi_isa_build(flyi_isa isa);             /* its place in FLYI_BUILDS */
/* NULL or "cpu": the best. FLY_ERROR_ARGUMENT: not a target, or $FLYMASK_ISA is none; FLY_ERROR_UNSUPPORTED: not on
 * this machine, or above $FLYMASK_ISA. */
fly_status flyi_isa_parse(const char *target, flyi_isa *out, fly_error *error);
/* The same of code that is made here and may run elsewhere: the levels of other architectures too. */
fly_status flyi_isa_parse_any(const char *target, flyi_isa *out, fly_error *error);

/* ---- kernels (kernel.c, kernel_image.c) -------------------------------------------------------------------------- */

typedef struct flyi_cuda_code flyi_cuda_code;

struct fly_kernel {
  atomic_int references;
  fly_mask *mask;
  fly_mask *score;      /* NULL: none */
  fly_kernel_desc desc; /* complete: value_dim set, target and score NULL */
  flyi_isa isa;
  char cuda_target[16]; /* "sm_80"; "cuda": that of the device it is launched on; "": a kernel for the CPU */
  _Atomic(flyi_cuda_code *) cuda; /* what has been compiled or loaded so far */
  _Atomic(flyi_bytes *) image; /* made on first request */
  flyi_residents residents;    /* modules */
};

/* ---- CUDA kernels (cuda_code.c; compiler/nvptx.c) ---------------------------------------------------------------- */

/* The kernels of one direction for one target. Immutable. */
struct flyi_cuda_code {
  flyi_cuda_code *next;        /* of a kernel's list */
  char target[16];
  flyi_direction direction;
  int entry_count;
  flyi_cuda_entry *entries;
  flyi_section ptx;            /* NUL-terminated */
  flyi_hash hash;              /* of target and ptx: names a loaded module */
  void *memory;
};

/* Whether a target names a CUDA device: "cuda", "sm_80". Not whether it can be compiled for. */
bool flyi_is_cuda_target(const char *target);
/* The kernel's code for a direction on a device of compute capability "sm_NN" (NULL: the kernel's own target): as
 * loaded, or compiled now. It stays the kernel's. Thread-safe. */
fly_status flyi_kernel_cuda(fly_kernel *kernel, flyi_direction direction, const char *device,
                            const flyi_cuda_code **out, fly_error *error);
/* The compiler's part: PTX for a mask and a modifier (NULL: none), from the cache or compiled. libflymask_runtime has
 * no compiler and says so. */
fly_status flyi_cuda_compile(const fly_mask *mask, const fly_mask *score, const fly_kernel_desc *desc,
                             flyi_direction direction, const char *target, flyi_cuda_code **out, fly_error *error);
void flyi_cuda_code_free(flyi_cuda_code *code);
/* A copy of one direction of an image; *out is NULL where it has none. */
fly_status flyi_cuda_code_of(const flyi_image *image, flyi_direction direction, flyi_cuda_code **out, fly_error *error);
/* The mask's image with the kernel's code, of whatever directions the list holds, and the modifier's image. */
fly_status flyi_cuda_image(const fly_mask *mask, const fly_mask *score, const fly_kernel_desc *desc, const char *target,
                           const flyi_cuda_code *list, flyi_bytes *out, fly_error *error);

#endif
