/* cli.h: what the files of cli/ share, in the order in which a command meets it.
 *
 *   commands  |  arguments  |  files, .npy, half floats  |  masks and their values  |  geometry and inputs
 *   |  time, progress, reports  |  the machine's peak and memory
 *
 * Everything goes through <flymask/flymask.h>: the command is a user of the library like any other. Functions that
 * can fail return a fly_status and fill a fly_error, as the library's do. */
#ifndef FLYMASK_CLI_H
#define FLYMASK_CLI_H

#include <argp.h>
#include <flymask/flymask.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/uio.h>

#include "npy.h"

enum { EXIT_USAGE = 2 }; /* wrong usage; EXIT_FAILURE (1) is for work that failed */

/* ---- commands (one file each) ------------------------------------------------------------------------------------ */

/* argv[0] is "flymask NAME". The result is the exit code; wrong usage leaves through argp. */
int command_run(int argc, char **argv);
int command_check(int argc, char **argv);
int command_map(int argc, char **argv);
int command_show(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_build(int argc, char **argv);
int command_demo(int argc, char **argv);
int command_list(int argc, char **argv);
int command_compare(int argc, char **argv);

/* ---- arguments (args.c) ------------------------------------------------------------------------------------------ */

typedef struct arguments {
  const char *mask, *score; /* score: a modifier; NULL: none */
  const char **values;      /* NAME=VALUE, as given; freed by arguments_free. score.NAME=VALUE is the modifier's */
  int value_count;

  const char *q, *k, *v, *out, *lse, *sink;             /* files */
  const char *d_out, *d_lse, *d_q, *d_k, *d_v, *d_sink; /* files of gradients */
  const char *rows;                                     /* a file or random:SEED; NULL: none */
  const char *from_bitmap, *from_arrays, *to_arrays;    /* files and directories of block maps */
  int64_t len_q, len_kv;                                /* -1: not given */
  int64_t batch, heads, kv_heads;                       /* kv_heads 0: not given */
  int64_t q_offset;
  bool offset_end;
  int tile_q, tile_kv;    /* 0: the library's */
  int64_t show_b, show_h; /* the plane that `show` draws */
  int head_dim, value_dim;
  fly_type type;
  float scale;
  double seconds; /* that `check` may take; 0: not given */
  int threads; /* 0: OpenMP's */
  const char *target, *emit, *sample;
  bool json, backward, decode, bandwidth, sweep, text, no_legend;
} arguments;

/* The options' keys. A command lists the options that it takes; parse_argument understands them all. */
enum {
  KEY_Q = 1000,
  KEY_K,
  KEY_V,
  KEY_LSE,
  KEY_D_OUT,
  KEY_D_LSE,
  KEY_D_Q,
  KEY_D_K,
  KEY_D_V,
  KEY_ROWS,
  KEY_LENGTHS,
  KEY_BATCH,
  KEY_HEADS,
  KEY_KV_HEADS,
  KEY_Q_OFFSET,
  KEY_TILE,
  KEY_AT,
  KEY_HEAD_DIM,
  KEY_DTYPE,
  KEY_SCALE,
  KEY_THREADS,
  KEY_TARGET,
  KEY_EMIT,
  KEY_JSON,
  KEY_SAMPLE,
  KEY_BACKWARD,
  KEY_DECODE,
  KEY_FROM_BITMAP,
  KEY_FROM_ARRAYS,
  KEY_TO_ARRAYS,
  KEY_TEXT,
  KEY_SCORE,
  KEY_BANDWIDTH,
  KEY_SWEEP,
  KEY_NO_LEGEND,
  KEY_SINK,
  KEY_D_SINK,
  KEY_SECONDS,
  KEY_OUT = 'o'
};

#define OPTION_ROWS                                                                                                    \
  {"rows",                                                                                                             \
   KEY_ROWS,                                                                                                           \
   "F|random:SEED",                                                                                                    \
   0,                                                                                                                  \
   "Row map for queries and keys: row r of the call is row rows[r] of the tensors. F holds integers [N], [heads, N] "  \
   "or "                                                                                                               \
   "[batch, heads, N]; random:SEED draws one permutation for all heads",                                               \
   0}
#define OPTION_Q_OFFSET                                                                                                \
  {"q-offset", KEY_Q_OFFSET, "N|end", 0, "The mask sees q = row + N (default 0); end: N = keys - queries", 0}
#define OPTION_LENGTHS {"lengths", KEY_LENGTHS, "NQ,NKV", 0, "Numbers of queries and keys (one number: both)", 0}
#define OPTION_BATCH {"batch", KEY_BATCH, "B", 0, "Batch entries (default 1)", 0}
#define OPTION_HEADS {"heads", KEY_HEADS, "H", 0, "Query heads (default 1)", 0}
#define OPTION_TILE {"tile", KEY_TILE, "Q,K", 0, "Tile of the map, in queries and keys (default 128,128)", 0}
#define OPTION_THREADS {"threads", KEY_THREADS, "N", 0, "Threads at most (default: as many as OpenMP would use)", 0}
#define OPTION_RUN_TARGET                                                                                              \
  {"target", KEY_TARGET, "T", 0, "cuda: an NVIDIA GPU; sm_80 and others: one, with code for that (default: the CPU)", 0}
#define OPTION_JSON {"json", KEY_JSON, NULL, 0, "Print one JSON object instead of text", 0}
#define OPTION_HEAD_DIM                                                                                                \
  {"head-dim", KEY_HEAD_DIM, "D[,DV]", 0, "Dimension of queries and keys, and of values if another (1 to 512)", 0}
#define OPTION_DTYPE {"dtype", KEY_DTYPE, "f32|f16|bf16", 0, "Element type of the tensors", 0}

#define OPTION_SCORE                                                                                                   \
  {"score", KEY_SCORE, "MODIFIER", 0,                                                                                  \
   "Change scores by this modifier: a C source, or a name in scores/. score.NAME=VALUE is a value of its own", 0}

#define OPTION_SECONDS                                                                                                 \
  {"seconds", KEY_SECONDS, "T", 0, "Time for the questions about a source (default 60)", 0}

#define MASK_ARGUMENTS "MASK [NAME=VALUE...]"

/* Parses argv for a command that takes `options` (zero-terminated). `doc` is argp's: text, "\v", text after the
 * options. Without takes_mask the command has no positional arguments; with it, MASK may be missing only where a map
 * comes from a file. Wrong usage prints a hint and exits with EXIT_USAGE. */
void arguments_parse(int argc, char **argv, const struct argp_option *options, const char *doc, bool takes_mask,
                     arguments *out);
void arguments_free(arguments *args);
/* Wrong usage found after parsing: prints and exits as argp does. */
void usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* ---- errors (error.c) -------------------------------------------------------------------------------------------- */

/* Fills *error and returns status. `file` may be NULL. */
fly_status fail(fly_error *error, fly_status status, const char *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
fly_status fail_memory(fly_error *error);
/* Prints *error on stderr: FILE:LINE:COLUMN: error: MESSAGE where there is a place, else flymask: FILE: MESSAGE. */
void print_error(const fly_error *error);

/* ---- files (file.c) ---------------------------------------------------------------------------------------------- */

/* Writes the parts, one after the other, to a temporary file beside `path` and renames it: readers see the old file
 * or the whole new one. A path that exists and is no regular file (a pipe, a terminal) is written directly; "-" is
 * standard output. */
fly_status file_save(const char *path, const struct iovec *parts, int count, fly_error *error);
/* The whole of a text file, NUL-terminated, the caller's. */
fly_status file_read_text(const char *path, char **text, fly_error *error);
/* Whether two paths are one regular file, or would be if written. */
bool file_same(const char *a, const char *b);
/* Removes a directory with all that is in it. */
void remove_tree(const char *path);

/* ---- masks and their values (bind.c) ----------------------------------------------------------------------------- */

/* The file of a MASK argument: a path, or a name (with or without .c) in $FLYMASK_MASKS (directories, separated by
 * ':'), the source tree's masks/ or the installed ones. *path is the caller's. */
fly_status mask_find(const char *mask, char **path, fly_error *error);
/* The same for a score modifier, whose own directory is scores/. */
fly_status score_find(const char *score, char **path, fly_error *error);
/* The directories that they search, in order, separated by ':'. The caller's; NULL: out of memory. */
char *mask_directories(void);
char *score_directories(void);

/* NAME=VALUE arguments, read against what a mask declares. */
typedef struct bindings {
  int count;
  fly_arg *args;
  char **names;      /* the args' names */
  npy_array *arrays; /* host data of the args that are buffers, in the declared type */
} bindings;

/* The mask's, or with `score` the modifier's. */
fly_status bindings_read(const fly_mask_info *info, const arguments *args, bool score, bindings *out, fly_error *error);
/* New buffer objects from the same data: what the library keeps with a buffer starts empty again. */
fly_status bindings_renew(bindings *bindings, fly_error *error);
void bindings_free(bindings *bindings);

/* Finds, compiles and binds the mask of the arguments, and the modifier where there is one. */
typedef struct bound_mask {
  char *path, *score_path;
  fly_mask *mask;
  fly_score *score; /* NULL: none */
  bindings values, score_values;
  fly_bound *bound, *score_bound;
} bound_mask;

fly_status bound_mask_create(const arguments *args, bound_mask *out, fly_error *error);
void bound_mask_free(bound_mask *mask);

/* ---- geometry and inputs (geometry.c) ---------------------------------------------------------------------------- */

/* A call's geometry and the rows that it points to. */
typedef struct call_geometry {
  fly_geometry geometry;
  int32_t *rows;
} call_geometry;

/* From lengths (-1: those of the rows, or tensor_q, tensor_kv), --rows and --q-offset. Lengths that do not fit are
 * errors. */
fly_status geometry_create(const arguments *args, int64_t batch, int64_t heads, int64_t tensor_q, int64_t tensor_kv,
                           call_geometry *out, fly_error *error);
void geometry_free(call_geometry *geometry);

/* count elements of `type` near a normal distribution with variance 1, the same for the same seed. The caller's;
 * NULL: out of memory. */
void *random_normal(fly_type type, int64_t count, uint64_t seed);

/* f16 and bf16 by bits; to them rounds to nearest even. */
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
uint16_t f32_to_bf16(float value);

/* ---- calls on a GPU (device.c) ----------------------------------------------------------------------------------- */

/* Whether --target names an NVIDIA GPU: cuda, sm_80, ... */
bool device_target(const char *target);
/* What the time of a command's one call includes. */
const char *time_includes(const arguments *args);

/* A GPU and the memory of a call on it; cuda NULL: none is wanted, calls run on the CPU. */
enum { DEVICE_TENSORS = 12 };
typedef struct device {
  fly_cuda *cuda;
  void *memory[DEVICE_TENSORS];
} device;

fly_status device_open(const arguments *args, device *out, fly_error *error);
void device_close(device *d);
/* The host's call with its tensors copied to the device, until the next one or the end. */
fly_status device_call(device *d, const fly_attention *host, fly_attention *call, fly_error *error);
fly_status device_wait(device *d, fly_error *error);
/* Results, back into the host's tensors. */
fly_status device_fetch(device *d, const fly_attention *host, bool backward, fly_error *error);
/* All of it. ms: the call alone, to its end. */
fly_status device_run(device *d, const fly_attention *host, bool backward, double *ms, fly_error *error);

/* ---- gradients of `run` (gradients.c) ---------------------------------------------------------------------------- */

typedef struct gradients {
  npy_array d_out, d_lse, d_q, d_k, d_v, d_sink;
  double ms;
} gradients;

bool gradients_wanted(const arguments *args);
/* Exits where the options do not go together. */
void gradients_check_usage(const arguments *args, const char *command);
/* Reads what arrives at the output, and at the log-sum-exp. */
fly_status gradients_read(const arguments *args, const npy_array *out, const npy_array *lse, gradients *g,
                          fly_error *error);
/* After the forward call: those of its inputs that are wanted. */
fly_status gradients_compute(const arguments *args, device *d, const fly_attention *forward, gradients *g,
                             fly_error *error);
/* Writes the files and says so. */
fly_status gradients_write(const arguments *args, const gradients *g, fly_error *error);
void gradients_free(gradients *g);

/* ---- block maps in files (carry.c) ------------------------------------------------------------------------------- */

/* A bitmap or FlexAttention's arrays, read. */
typedef struct map_source {
  npy_array array[4];
  fly_buffer *bitmap;
  fly_map_arrays lists;
  int64_t batch, heads, len_q, len_kv; /* lengths -1: not known */
} map_source;

fly_status map_source_read(const arguments *args, map_source *out, fly_error *error);
fly_status map_source_make(const map_source *source, const fly_geometry *geometry, const fly_map_options *how,
                           fly_map **out, fly_error *error);
void map_source_free(map_source *source);
/* Writes kv_num_blocks.npy, ... to the directory, which it makes if need be. */
fly_status map_write_arrays(fly_map *map, const char *directory, fly_error *error);

/* ---- time, progress, reports (timing.c, report.c) ---------------------------------------------------------------- */

double now_ms(void);

/* Measurements of one figure, until there are enough: at least 5 that took `seconds` together, or TIMING_MAX. */
enum { TIMING_MAX = 400 };
typedef struct timing {
  double ms[TIMING_MAX], total;
  int count;
} timing;
void timing_add(timing *t, double ms);
bool timing_enough(const timing *t, double seconds);
double timing_median(const timing *t);
double timing_least(const timing *t);

/* Builds the map on fresh buffers, so that what the library keeps with a buffer is built again, and adds the time of
 * fly_map_build. Both outputs are the caller's. (map.c) */
fly_status map_build_once(bound_mask *mask, const fly_geometry *geometry, const fly_map_options *how, timing *time,
                          fly_bound **bound, fly_map **map, fly_error *error);

/* A line on stderr that says what is being done, only on a terminal. progress_end removes it. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

/* A row of the human table: the name, padded, then the text. */
void report_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints the object (consumed; NULL is a failure) on stdout. */
fly_status report_json(json_t *object, fly_error *error);
/* Flushes stdout; a write that failed is an error. */
fly_status report_end(fly_error *error);
/* 1234567 as 1,234,567. Uses one of a few static buffers in turn. */
const char *grouped(int64_t value);

/* ---- the machine's peak (peak.c, peak_cpu.c) --------------------------------------------------------------------- */

/* What the peak is of: "f32 fma, 512-bit" for the widest vectors of this machine. */
const char *peak_kind(fly_type type);
/* One measurement of about `ms` milliseconds on `threads` threads, in GFLOP/s. */
double peak_measure(fly_type type, int threads, double ms);

/* ---- a call in other sizes (sweep.c) ----------------------------------------------------------------------------- */

typedef struct sweep sweep;
/* Measures the alternatives to the sizes of a forward call on the CPU; *out is the caller's, also on failure. */
fly_status sweep_run(const fly_attention *call, bound_mask *mask, sweep **out, fly_error *error);
void sweep_free(sweep *s);
json_t *sweep_json(const sweep *s); /* an array; NULL: no memory */
void sweep_print(const sweep *s);

/* ---- the memory's (bandwidth.c) ---------------------------------------------------------------------------------- */

/* Reads dense tensors once on `threads` threads, in GB/s. */
double read_rate(const fly_tensor *const *tensors, int count, int threads);

#endif
