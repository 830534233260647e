/* copies.h: the queue of a warp's asynchronous copies, for the files that begin them. */
#ifndef SIMCUDA_COPIES_H
#define SIMCUDA_COPIES_H

#include "tables.h"

typedef enum copy_kind {
  COPY_GROUP,   /* cp.async: waited for by groups of each thread */
  COPY_BULK,    /* global to shared, completes on an mbarrier by bytes */
  COPY_ARRIVAL, /* cp.async.mbarrier.arrive: no data, an arrival when the thread's copies have landed */
  COPY_STORE,   /* shared to global, in bulk groups */
} copy_kind;

typedef struct copy {
  copy_kind kind;
  uint32_t lane, group, bytes, from_bytes;
  uint32_t shared; /* address of the destination, or of the source of a store */
  uint8_t *global; /* the other side */
  bool landed;     /* the data have been moved, the wait is yet to come */
  uint32_t mbarrier;
} copy;

struct copy_queue {
  copy *items;
  uint32_t count, room;
  uint32_t groups[LANES], bulk_groups[LANES]; /* committed so far */
};

bool copies_add(warp *w, const instr *i, copy c);
void copies_move(const warp *w, copy *c); /* the data, if that has not been done */
/* Operand k of lane l, 32 or 64 bits as mode's bit k says. */
static inline uint64_t copy_operand(const warp *w, const instr *i, uint32_t k, uint32_t l) {
  return i->mode >> k & 1 ? r64(w, i->s[k])[l] : r32(w, i->s[k])[l];
}
bool copy_addresses(decoder *d); /* the first two operands: offsets go to imm and target */
bool decode_bulk(decoder *d);    /* bulk.c: after cp.async.bulk */

#endif
