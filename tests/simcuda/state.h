/* state.h: the driver's objects. One lock guards them all, held through every call, a launch included: a real
 * driver's calls that free or synchronise wait as well. Handles are looked up before use, so that a stale one is
 * an error. */
#ifndef SIMCUDA_STATE_H
#define SIMCUDA_STATE_H

#include "sim.h"

#define API __attribute__((visibility("default")))

struct CUctx_st {
  bool alive, primary;
  uint32_t retains;
  CUresult sticky;
  CUcontext next;
};
struct CUmod_st {
  bool alive;
  CUcontext context;
  sim_module m;
  struct CUfunc_st *functions;
  CUmodule next;
};
struct CUfunc_st {
  program *p;
  CUmodule module;
  CUfunction next;
};
typedef struct operation operation;
struct CUstream_st {
  bool alive, non_blocking;
  CUcontext context;
  operation *first, *last;
  CUstream next;
};
struct CUevent_st {
  bool alive;
  CUcontext context;
  uint64_t recorded, done; /* how often record was called, and carried out */
  CUstream stream;         /* of the last record */
  double when;             /* milliseconds */
  CUevent next;
};

/* What a stream does; runs at once or later. */
typedef enum operation_kind { OP_LAUNCH, OP_COPY, OP_FILL, OP_RECORD, OP_WAIT, OP_FREE, OP_CALL } operation_kind;
struct operation {
  operation_kind kind;
  launch *run;
  uint64_t to, from, bytes; /* device or host addresses */
  bool to_device, from_device;
  void *owned; /* staged source, freed afterwards */
  uint32_t pattern, width;
  CUevent event;
  uint64_t number;
  void (*call)(void *data);
  void *data;
  operation *next;
};

typedef struct driver_state {
  bool ready, inited;
  simcuda_config config;
  CUcontext contexts, primary;
  CUmodule modules;
  CUstream streams;
  CUevent events;
  uint64_t calls, fail_at;
  int fail_with;
  uint64_t launches, instructions, serial;
  char report[900];
  const char *ptxas; /* NULL: not run */
  int devices;
} driver_state;
extern driver_state sim;

enum { NEED_NOTHING = 0, NEED_INIT = 1, NEED_CONTEXT = 2 };
/* Every entry of the API begins with ENTER and ends with LEAVE. */
CUresult api_enter(int need, const char *name);
CUresult api_leave(CUresult result);
#define ENTER(need)                                                                                                    \
  do {                                                                                                                 \
    CUresult early_ = api_enter(need, __func__);                                                                       \
    if (early_) return early_;                                                                                         \
  } while (0)
#define LEAVE(result) return api_leave(result)

CUcontext current_context(void);
CUresult bad(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3))); /* sets the report */

bool context_valid(CUcontext context);
bool module_valid(CUmodule module);
bool function_valid(CUfunction function);
bool event_valid(CUevent event);
CUresult module_destroy(CUmodule module);

/* streams (api_stream.c). NULL is the default stream. */
CUresult stream_find(CUstream handle, CUstream *stream);
CUresult stream_submit(CUstream stream, operation *op); /* takes op */
CUresult stream_drain(CUstream stream);
CUresult drain_for_default(void); /* all streams that the default stream waits for */
CUresult drain_all(void);
operation *operation_create(operation_kind kind);
void operation_destroy(operation *op);

#endif
