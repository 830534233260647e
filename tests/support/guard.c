/* guard.c: each block is its own mapping: a record page, an inaccessible page, the data's pages,
 * an inaccessible page. */
#include "guard.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct block {
  void *data, *base;
  size_t mapped;
  struct block *next;
} block;

static block *blocks; /* tests allocate from one thread */

void *guard_alloc(size_t bytes, size_t align, int front) {
  size_t page = sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page, mapped = room + 2 * page;
  if (room == 0) room = page, mapped = 3 * page;
  char *base = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  block *record = malloc(sizeof *record);
  if (base == MAP_FAILED || !record || mprotect(base + page, room, PROT_READ | PROT_WRITE)) {
    perror("guard_alloc");
    exit(99);
  }
  memset(base + page, 0xCC, room);
  size_t slack = front ? 0 : (room - bytes) / align * align;
  *record = (block){base + page + slack, base, mapped, blocks};
  blocks = record;
  return record->data;
}

void guard_free(void *data) {
  for (block **at = &blocks; *at; at = &(*at)->next) {
    if ((*at)->data != data) continue;
    block *record = *at;
    *at = record->next;
    munmap(record->base, record->mapped);
    free(record);
    return;
  }
  if (data) exit(99);
}
