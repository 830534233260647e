/* guard_heap.c: every block of the library before an inaccessible page, and inaccessible itself once it is freed.
 *
 * Linked into a test executable by flymask_guard_heap(): flyi_alloc and its like are then the functions below, and so
 * are free and realloc, which get blocks of the C library too. A block is a header page and pages of its own in one
 * reserved range, so that an address alone tells whose it is; nothing is used twice. What does not fit (too many blocks
 * at once, the range at its end) comes from the C library, as does everything while FLYMASK_GUARD_HEAP is 0. */
#include "guard_heap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, MOST_BLOCKS = 20000 }; /* a process has 65,530 mappings, a block takes two */

#define RANGE ((size_t)4 << 40)

void *__real_flyi_alloc(size_t count, size_t size);
void *__real_flyi_alloc_aligned(size_t bytes);
void *__real_flyi_grow(void *old, size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *block);
void *__wrap_flyi_alloc(size_t count, size_t size);
void *__wrap_flyi_alloc_aligned(size_t bytes);
void *__wrap_flyi_grow(void *old, size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *block);

typedef struct header {
  size_t size, mapped; /* of the data; of header and data, in whole pages */
} header;

static char *range; /* NULL: off. Set before main, and never again */
static atomic_size_t used;
static atomic_long alive, guarded;

__attribute__((constructor)) static void reserve(void) {
  const char *wish = getenv("FLYMASK_GUARD_HEAP");
  if (wish && strcmp(wish, "0") == 0) return;
  void *at = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) range = at;
}

long guard_heap_count(void) { return atomic_load(&guarded); }

static bool is_guarded(const void *block) {
  return range && (const char *)block >= range && (const char *)block < range + RANGE;
}

/* Data starts in the page behind its header's: what is left free before it is less than a page. */
static header *header_of(void *block) { return (header *)(((uintptr_t)block & ~(uintptr_t)(PAGE - 1)) - PAGE); }

/* A zeroed block that ends right before an inaccessible page: exactly where the size is a multiple of the alignment.
 * NULL: none is to be had. */
static void *take(size_t size, size_t align) {
  if (!range || size > RANGE / 4 || align > PAGE) return NULL;
  if (!size) size = 1;
  size_t room = (size + PAGE - 1) / PAGE * PAGE, whole = room + 2 * PAGE;
  if (atomic_fetch_add(&alive, 1) >= MOST_BLOCKS) goto none;
  size_t at = atomic_fetch_add(&used, whole);
  if (at > RANGE - whole) goto none;
  header *h = (header *)(range + at);
  if (mprotect(h, PAGE + room, PROT_READ | PROT_WRITE)) goto none;
  *h = (header){size, PAGE + room};
  atomic_fetch_add(&guarded, 1);
  return (char *)h + PAGE + (room - size) / align * align;
none:
  atomic_fetch_sub(&alive, 1);
  return NULL;
}

/* For what a block of this size can hold: int32_t in any number; int64_t and structs, whose sizes are multiples. */
static size_t alignment(size_t size) { return size % 16 == 0 ? 16 : size % 8 == 0 ? 8 : 4; }

/* In place of `plain`, which the library's allocator gave: that may fail where a test wants it to. */
static void *instead(void *plain, size_t size, size_t align) {
  void *block = plain ? take(size, align) : NULL;
  if (block) __real_free(plain);
  return block ? block : plain;
}

void *__wrap_flyi_alloc(size_t count, size_t size) {
  void *plain = __real_flyi_alloc(count, size);
  return instead(plain, count * size, alignment(count * size));
}

void *__wrap_flyi_alloc_aligned(size_t bytes) {
  const size_t whole = bytes ? (bytes + 63) / 64 * 64 : 64;
  void *block = instead(__real_flyi_alloc_aligned(bytes), whole, 64);
  if (block) memset(block, 0xCC, whole);
  return block;
}

void *__wrap_flyi_grow(void *old, size_t count, size_t size) {
  void *plain = __real_flyi_grow(old, count, size);
  return old ? plain : instead(plain, count * size, alignment(count * size));
}

void __wrap_free(void *block) {
  if (!is_guarded(block)) {
    __real_free(block);
    return;
  }
  int saved = errno;
  header *h = header_of(block);
  mmap(h, h->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  atomic_fetch_sub(&alive, 1);
  errno = saved;
}

/* Guarded blocks stay so. */
void *__wrap_realloc(void *old, size_t size) {
  if (!is_guarded(old)) return __real_realloc(old, size);
  void *block = take(size, alignment(size));
  if (!block) block = __real_realloc(NULL, size);
  if (!block) return NULL;
  size_t had = header_of(old)->size;
  memcpy(block, old, had < size ? had : size);
  __wrap_free(old);
  return block;
}
