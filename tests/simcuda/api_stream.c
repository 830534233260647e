/* api_stream.c: streams, events, and when a stream's operations run. At once by default; with late_streams an
 * operation of a stream other than the default waits in a queue until something synchronises with it, so that a
 * missing dependency between streams shows as old data. */
#include <stdlib.h>
#include <time.h>

#include "state.h"

/* --- operations ---------------------------------------------------------------------------------- */
operation *operation_create(operation_kind kind) {
  operation *op = calloc(1, sizeof *op);
  if (op) op->kind = kind;
  return op;
}

void operation_destroy(operation *op) {
  if (!op) return;
  if (op->run) free(op->run->params);
  free(op->run);
  free(op->owned);
  free(op);
}

/* Host memory behind one side of a copy; a device range must be alive and large enough. */
static uint8_t *side(uint64_t address, uint64_t bytes, bool on_device, const char *what) {
  if (!on_device) return (uint8_t *)(uintptr_t)address;
  allocation *a = memory_find(address);
  if (!a || a->freed || address < a->base || address - a->base > a->size || bytes > a->size - (address - a->base)) {
    bad(CUDA_ERROR_INVALID_VALUE, "%s: %llu bytes at 0x%llx: %s", what, (unsigned long long)bytes,
        (unsigned long long)address, a && a->freed ? "use after free" : "out of bounds");
    return NULL;
  }
  return a->host + (address - a->base);
}

static CUresult fill(const operation *op) {
  uint8_t *to = side(op->to, op->bytes, true, "memset");
  if (!to) return CUDA_ERROR_INVALID_VALUE;
  for (uint64_t at = 0; at < op->bytes; at += op->width) memcpy(to + at, &op->pattern, op->width);
  return CUDA_SUCCESS;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static CUresult stream_until(CUevent event, uint64_t number);

static CUresult execute(CUstream stream, operation *op) {
  CUresult result = CUDA_SUCCESS;
  switch (op->kind) {
  case OP_LAUNCH:
    op->run->serial = ++sim.serial;
    if (!(sim.serial & 0xfff)) memory_forget_touched(); /* launches are told apart by 12 bits */
    result = launch_run(op->run);
    sim.launches++;
    sim.instructions += op->run->instructions;
    if (result) bad(result, "%s", op->run->report);
    break;
  case OP_COPY: {
    uint8_t *to = side(op->to, op->bytes, op->to_device, "copy"),
            *from = to ? side(op->from, op->bytes, op->from_device, "copy") : NULL;
    if (from)
      memmove(to, from, op->bytes);
    else
      result = CUDA_ERROR_INVALID_VALUE;
    break;
  }
  case OP_FILL:
    result = fill(op);
    break;
  case OP_RECORD:
    op->event->done = op->number;
    op->event->when = now_ms();
    break;
  case OP_WAIT:
    result = stream_until(op->event, op->number);
    break;
  case OP_FREE:
    if (!memory_destroy(op->to, MEMORY_DEVICE))
      result = bad(CUDA_ERROR_INVALID_VALUE, "free of 0x%llx, which is no allocation", (unsigned long long)op->to);
    break;
  case OP_CALL:
    op->call(op->data);
    break;
  }
  CUcontext c = stream ? stream->context : current_context();
  if (result && c && op->kind == OP_LAUNCH) c->sticky = result;
  operation_destroy(op);
  return result;
}

static operation *pop(CUstream s) {
  operation *op = s->first;
  if (op) s->first = op->next;
  if (!s->first) s->last = NULL;
  return op;
}

CUresult stream_drain(CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (operation *op; stream && (op = pop(stream));) {
    CUresult r = execute(stream, op);
    if (!result) result = r;
  }
  return result;
}

/* Runs an event's stream up to the event's record `number`. */
static CUresult stream_until(CUevent event, uint64_t number) {
  CUresult result = CUDA_SUCCESS;
  while (event->done < number) {
    CUstream s = event->stream;
    operation *op = s ? pop(s) : NULL;
    if (!op) break;
    CUresult r = execute(s, op);
    if (!result) result = r;
  }
  return result;
}

CUresult drain_for_default(void) {
  CUresult result = CUDA_SUCCESS;
  for (CUstream s = sim.streams; s; s = s->next) {
    if (s->non_blocking) continue;
    CUresult r = stream_drain(s);
    if (!result) result = r;
  }
  return result;
}

CUresult drain_all(void) {
  CUresult result = CUDA_SUCCESS;
  for (CUstream s = sim.streams; s; s = s->next) {
    CUresult r = stream_drain(s);
    if (!result) result = r;
  }
  return result;
}

/* A launch's failure is the context's: it shows at the next call, as with a real driver. */
static CUresult visible(const operation *op, CUresult result) { return op->kind == OP_LAUNCH ? CUDA_SUCCESS : result; }

CUresult stream_submit(CUstream stream, operation *op) {
  operation_kind kind = op->kind;
  if (!stream) {
    CUresult result = drain_for_default();
    if (result) {
      operation_destroy(op);
      return result;
    }
  } else if (sim.config.late_streams) {
    op->next = NULL;
    if (stream->last)
      stream->last->next = op;
    else
      stream->first = op;
    stream->last = op;
    return CUDA_SUCCESS;
  } else {
    stream_drain(stream);
  }
  return visible(&(operation){.kind = kind}, execute(stream, op));
}

/* --- streams ------------------------------------------------------------------------------------- */
CUresult stream_find(CUstream handle, CUstream *stream) {
  *stream = NULL;
  if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return CUDA_SUCCESS;
  for (CUstream s = sim.streams; s; s = s->next)
    if (s == handle && s->alive) {
      *stream = s;
      return s->context == current_context() ? CUDA_SUCCESS
                                             : bad(CUDA_ERROR_INVALID_HANDLE, "the stream belongs to another context");
    }
  return bad(CUDA_ERROR_INVALID_HANDLE, "the stream does not exist (any more)");
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  ENTER(NEED_CONTEXT);
  CUstream s = stream && flags < 2 ? calloc(1, sizeof *s) : NULL;
  if (!s) LEAVE(stream && flags < 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
  *s = (struct CUstream_st){
      .alive = true, .non_blocking = flags == 1, .context = current_context(), .next = sim.streams};
  sim.streams = *stream = s;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  (void)priority;
  return cuStreamCreate(stream, flags);
}
API CUresult cuStreamDestroy_v2(CUstream handle) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (!result && !s) result = CUDA_ERROR_INVALID_HANDLE;
  if (!result) {
    stream_drain(s);
    s->alive = false;
  }
  LEAVE(result);
}
API CUresult cuStreamSynchronize(CUstream handle) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (!result) result = s ? stream_drain(s) : drain_for_default();
  LEAVE(result ? result : current_context()->sticky);
}
API CUresult cuStreamQuery(CUstream handle) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  operation *op = result || !s ? NULL : pop(s);
  if (op) { /* who polls sees progress */
    result = execute(s, op);
    if (!result) result = CUDA_ERROR_NOT_READY;
  }
  LEAVE(result);
}
API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (!result && context) *context = s ? s->context : current_context();
  LEAVE(result);
}
API CUresult cuStreamIsCapturing(CUstream handle, int *status) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (!result && status) *status = 0;
  LEAVE(result);
}
API CUresult cuLaunchHostFunc(CUstream handle, void (*call)(void *), void *data) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  operation *op = result || !call ? NULL : operation_create(OP_CALL);
  if (op) {
    op->call = call;
    op->data = data;
    result = stream_submit(s, op);
  } else if (!result) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  LEAVE(result);
}

/* --- events -------------------------------------------------------------------------------------- */
bool event_valid(CUevent event) {
  for (CUevent e = sim.events; e; e = e->next)
    if (e == event) return e->alive;
  return false;
}
API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  ENTER(NEED_CONTEXT);
  (void)flags;
  CUevent e = event ? calloc(1, sizeof *e) : NULL;
  if (!e) LEAVE(event ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
  *e = (struct CUevent_st){.alive = true, .context = current_context(), .next = sim.events};
  sim.events = *event = e;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(NEED_CONTEXT);
  if (!event_valid(event)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the event does not exist (any more)"));
  event->alive = false;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuEventRecord(CUevent event, CUstream handle) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (!result && !event_valid(event)) result = bad(CUDA_ERROR_INVALID_HANDLE, "the event does not exist (any more)");
  operation *op = result ? NULL : operation_create(OP_RECORD);
  if (op) {
    op->event = event;
    op->number = ++event->recorded;
    event->stream = s;
    result = stream_submit(s, op);
  } else if (!result) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  LEAVE(result);
}
API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  ENTER(NEED_CONTEXT);
  (void)flags;
  CUstream s = NULL;
  CUresult result = stream_find(handle, &s);
  if (!result && !event_valid(event)) result = bad(CUDA_ERROR_INVALID_HANDLE, "the event does not exist (any more)");
  operation *op = result ? NULL : operation_create(OP_WAIT);
  if (op) {
    op->event = event;
    op->number = event->recorded;
    result = stream_submit(s, op);
  } else if (!result) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  LEAVE(result);
}
API CUresult cuEventSynchronize(CUevent event) {
  ENTER(NEED_CONTEXT);
  if (!event_valid(event)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the event does not exist (any more)"));
  CUresult result = stream_until(event, event->recorded);
  LEAVE(result ? result : current_context()->sticky);
}
API CUresult cuEventQuery(CUevent event) {
  ENTER(NEED_CONTEXT);
  if (!event_valid(event)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the event does not exist (any more)"));
  if (event->done == event->recorded) LEAVE(CUDA_SUCCESS);
  operation *op = event->stream ? pop(event->stream) : NULL;
  if (op) execute(event->stream, op);
  LEAVE(CUDA_ERROR_NOT_READY);
}
API CUresult cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end) {
  ENTER(NEED_CONTEXT);
  if (!ms) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!event_valid(begin) || !event_valid(end) || !begin->recorded || !end->recorded) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  if (begin->done != begin->recorded || end->done != end->recorded) LEAVE(CUDA_ERROR_NOT_READY);
  *ms = (float)(end->when - begin->when);
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end) { return cuEventElapsedTime_v2(ms, begin, end); }
