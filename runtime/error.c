/* error.c: how the library says that something failed, how it gets memory, and fingerprints.
 *
 * An error never allocates: it is written into the caller's fly_error. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime.h"

const char *fly_status_name(fly_status status) {
  switch (status) {
  case FLY_OK: return "ok";
  case FLY_ERROR_ARGUMENT: return "argument";
  case FLY_ERROR_MEMORY: return "memory";
  case FLY_ERROR_SOURCE: return "source";
  case FLY_ERROR_TOOL: return "tool";
  case FLY_ERROR_IMAGE: return "image";
  case FLY_ERROR_IO: return "io";
  case FLY_ERROR_UNSUPPORTED: return "unsupported";
  case FLY_ERROR_INTERNAL: return "internal";
  case FLY_ERROR_DEVICE: return "device";
  }
  return "unknown";
}

static void fill(fly_error *error, fly_status status, const char *file, int line, int column, const char *format,
                 va_list arguments) {
  if (!error) return;
  char message[sizeof error->message]; /* a copy first: the arguments may point into *error */
  vsnprintf(message, sizeof message, format, arguments);
  char name[sizeof error->file];
  snprintf(name, sizeof name, "%s", file ? file : "");
  *error = (fly_error){.status = status, .line = line, .column = column};
  memcpy(error->message, message, sizeof message);
  memcpy(error->file, name, sizeof name);
}

fly_status flyi_fail(fly_error *error, fly_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fill(error, status, NULL, 0, 0, format, arguments);
  va_end(arguments);
  return status;
}

fly_status flyi_fail_at(fly_error *error, const char *file, int line, int column, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fill(error, FLY_ERROR_SOURCE, file, line, column, format, arguments);
  va_end(arguments);
  return FLY_ERROR_SOURCE;
}

fly_status flyi_no_memory(fly_error *error) { return flyi_fail(error, FLY_ERROR_MEMORY, "out of memory"); }

/* Counts down to the allocation that is to fail; 0 and below: none. */
static atomic_long allocations_left;

void flyi_fail_allocation(long nth) { atomic_store(&allocations_left, nth); }

static bool must_fail(void) {
  return atomic_load_explicit(&allocations_left, memory_order_relaxed) > 0 &&
         atomic_fetch_sub(&allocations_left, 1) == 1;
}

void *flyi_alloc(size_t count, size_t size) {
  if (must_fail()) return NULL;
  return calloc(count ? count : 1, size ? size : 1); /* never NULL for 0 */
}

/* Large workspaces want large pages: first touches of small ones, and looking them up, cost as much as the work. */
void *flyi_alloc_aligned(size_t bytes) {
  enum { PAGE = 2 << 20, LARGE = 2 * PAGE };
  if (must_fail() || bytes > SIZE_MAX - PAGE) return NULL;
  size_t align = bytes >= LARGE ? PAGE : 64, size = bytes ? (bytes + align - 1) / align * align : align;
  void *memory = aligned_alloc(align, size);
  if (memory && bytes >= LARGE) madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

void *flyi_grow(void *old, size_t count, size_t size) {
  if (must_fail() || (size && count > SIZE_MAX / size)) return NULL;
  return realloc(old, count && size ? count * size : 1);
}

bool flyi_bytes_add(flyi_bytes *bytes, const void *data, size_t size) {
  if (size > SIZE_MAX / 2 - bytes->size) return false;
  if (bytes->size + size > bytes->capacity) {
    size_t capacity = bytes->capacity ? bytes->capacity : 256;
    while (capacity < bytes->size + size) capacity *= 2;
    uint8_t *grown = flyi_grow(bytes->data, capacity, 1);
    if (!grown) return false;
    bytes->data = grown;
    bytes->capacity = capacity;
  }
  if (size) memcpy(bytes->data + bytes->size, data, size);
  bytes->size += size;
  return true;
}

void flyi_bytes_free(flyi_bytes *bytes) {
  free(bytes->data);
  *bytes = (flyi_bytes){0};
}

flyi_hash flyi_hash_bytes(const void *data, size_t size) {
  XXH128_hash_t hash = XXH3_128bits(data, size);
  return (flyi_hash){hash.low64, hash.high64};
}
