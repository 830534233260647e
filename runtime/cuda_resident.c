/* cuda_resident.c: what handles keep on their devices for objects: copies of maps and buffers, modules of kernels.
 * Input: an object's list and a way to make its bytes. Output: a device address that is good for what comes later
 * on the stream.
 *
 * A resident hangs on two lists: its object's, which owns the struct, and its handle's. Whichever ends first frees
 * what is on the device; the object's end frees the struct. An object's list only grows while the object lives, so
 * it is read without a lock; for one handle it grows under the handle's lock, so nothing is copied twice. */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum { PIECE_ALIGN = 256 };

/* ---- the lists ------------------------------------------------------------------------------------------------- */

flyi_resident *flyi_resident_find(flyi_residents *list, const fly_cuda *cuda, flyi_hash key) {
  for (flyi_resident *r = atomic_load_explicit(list, memory_order_acquire); r; r = r->next)
    if (r->cuda == cuda && flyi_hash_equal(r->key, key)) return r;
  return NULL;
}

fly_status flyi_resident_add(flyi_residents *list, const flyi_resident *made, flyi_resident **out, fly_error *error) {
  flyi_resident *r = flyi_alloc(1, sizeof *r);
  if (!r) return flyi_no_memory(error);
  *r = *made;
  fly_cuda *cuda = r->cuda;
  atomic_fetch_add_explicit(&cuda->holds, 1, memory_order_relaxed);
  r->alive = true;
  r->before = NULL, r->after = cuda->first;
  if (r->after) r->after->before = r;
  cuda->first = r;
  cuda->resident += r->bytes;
  cuda->uploads += r->memory != 0;
  r->next = atomic_load_explicit(list, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(list, &r->next, r, memory_order_release, memory_order_relaxed));
  *out = r;
  return FLY_OK;
}

/* Frees what is on the device; the context is current and the lock held. What the driver refuses to free is its own. */
static void end(flyi_resident *r) {
  const flyi_cuda_driver *d = &r->cuda->driver;
  if (r->ready) d->event_destroy(r->ready);
  if (r->memory) d->free(r->memory);
  if (r->module) d->module_unload(r->module);
  r->cuda->resident -= r->bytes;
  r->ready = NULL, r->memory = 0, r->module = NULL, r->alive = false;
  free(r->function);
  r->function = NULL;
  if (r->before)
    r->before->after = r->after;
  else
    r->cuda->first = r->after;
  if (r->after) r->after->before = r->before;
}

void flyi_residents_close(fly_cuda *cuda) {
  bool pushed;
  bool entered = !flyi_cuda_enter(cuda, &pushed, NULL); /* otherwise the context is gone, and all of it */
  pthread_mutex_lock(&cuda->lock);
  while (cuda->first) {
    flyi_resident *r = cuda->first;
    if (!entered) r->ready = NULL, r->memory = 0, r->module = NULL;
    end(r);
  }
  pthread_mutex_unlock(&cuda->lock);
  if (entered) flyi_cuda_leave(cuda, pushed);
}

void flyi_residents_free(flyi_residents *list) {
  flyi_resident *r = atomic_load_explicit(list, memory_order_acquire);
  while (r) {
    flyi_resident *next = r->next;
    fly_cuda *cuda = r->cuda;
    bool pushed = false;
    pthread_mutex_lock(&cuda->lock);
    if (r->alive) {
      bool entered = !flyi_cuda_enter(cuda, &pushed, NULL);
      if (!entered) r->ready = NULL, r->memory = 0, r->module = NULL;
      end(r);
      if (entered) flyi_cuda_leave(cuda, pushed);
    }
    pthread_mutex_unlock(&cuda->lock);
    flyi_cuda_drop(cuda);
    free(r);
    r = next;
  }
  atomic_store_explicit(list, NULL, memory_order_relaxed);
}

/* ---- bytes on their way ---------------------------------------------------------------------------------------- */

void *flyi_staging_add(flyi_staging *s, size_t count, size_t size, size_t *offset) {
  size_t bytes, end_of;
  *offset = s->size;
  if (s->failed) return NULL;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX / 4 || s->size > PTRDIFF_MAX / 4) {
    s->failed = true;
    return NULL;
  }
  end_of = s->size + (bytes + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
  if (s->dry) {
    s->size = end_of;
    return NULL;
  }
  if (end_of > s->capacity) {
    size_t capacity = s->capacity * 2 > end_of ? s->capacity * 2 : end_of;
    uint8_t *data = flyi_grow(s->data, capacity, 1);
    if (!data) {
      s->failed = true;
      return NULL;
    }
    s->data = data, s->capacity = capacity;
  }
  if (end_of > s->size) memset(s->data + s->size, 0, end_of - s->size);
  s->size = end_of;
  return s->data ? s->data + *offset : NULL; /* nothing was added yet */
}

void flyi_staging_free(flyi_staging *s) {
  free(s->data);
  *s = (flyi_staging){0};
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

/* Later work on the stream waits for the copy, unless it is known to be done. An event that was recorded on the
 * same stream costs nothing there; which stream that was cannot be remembered: the per-thread default stream has
 * one handle for all. */
static fly_status wait_for(flyi_resident *r, flyi_cuda_stream stream, fly_error *error) {
  const flyi_cuda_driver *d = &r->cuda->driver;
  if (!r->ready) return FLY_OK;
  int code = d->event_query(r->ready);
  if (code == 0) {
    flyi_cuda_event done = r->ready;
    r->ready = NULL;
    code = d->event_destroy(done);
  } else if (code == FLYI_CUDA_NOT_READY) {
    code = d->stream_wait(stream, r->ready, 0);
  }
  return code ? flyi_cuda_fail(d, code, error, "the stream cannot wait for a copy to the device") : FLY_OK;
}

/* Memory, the copy and an event behind it. */
static fly_status copy(flyi_resident *r, const flyi_staging *s, flyi_cuda_stream stream, fly_error *error) {
  const flyi_cuda_driver *d = &r->cuda->driver;
  r->bytes = s->size ? s->size : PIECE_ALIGN;
  int code = d->alloc(&r->memory, r->bytes);
  if (code) return flyi_cuda_fail(d, code, error, "%zu bytes of device memory for a copy of a map or buffer", r->bytes);
  if (!(code = d->event_create(&r->ready, FLYI_CUDA_EVENT_NO_TIMING)) &&
      (!s->size || !(code = d->write(r->memory, s->data, s->size, stream))))
    code = d->event_record(r->ready, stream);
  if (!code) return FLY_OK;
  fly_status status = flyi_cuda_fail(d, code, error, "%zu bytes of a map or buffer to the device", r->bytes);
  if (r->ready) d->event_destroy(r->ready);
  d->free(r->memory);
  return status;
}

static fly_status make(flyi_residents *list, flyi_resident *made, flyi_cuda_stream stream, flyi_stage_fn *stage,
                       const void *object, flyi_resident **out, fly_error *error) {
  flyi_staging staging = {0};
  fly_status status = stage(object, &staging, error);
  if (!status && staging.failed) status = flyi_no_memory(error);
  if (!status && !(status = copy(made, &staging, stream, error)) &&
      (status = flyi_resident_add(list, made, out, error))) {
    made->cuda->driver.event_destroy(made->ready);
    made->cuda->driver.free(made->memory);
  }
  flyi_staging_free(&staging);
  return status;
}

fly_status flyi_resident_upload(flyi_residents *list, fly_cuda *cuda, flyi_hash key, flyi_cuda_stream stream,
                                flyi_stage_fn *stage, const void *object, flyi_device_memory *out, fly_error *error) {
  fly_status status = FLY_OK;
  *out = 0;
  pthread_mutex_lock(&cuda->lock);
  flyi_resident *r = flyi_resident_find(list, cuda, key);
  if (r) {
    status = wait_for(r, stream, error);
  } else {
    flyi_resident made = {.cuda = cuda, .key = key};
    status = make(list, &made, stream, stage, object, &r, error);
  }
  if (!status) *out = r->memory;
  pthread_mutex_unlock(&cuda->lock);
  return status;
}
