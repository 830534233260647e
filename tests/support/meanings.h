/* meanings.h: masks that use pointers, structs, local arrays, copies, builtins, attributes, unions, clean-ups. */
#ifndef TEST_MEANINGS_H
#define TEST_MEANINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct meaning {
  const char *source;
  bool (*expected)(int b, int h, int q, int kv);
} meaning;

extern const meaning meanings[];
extern const size_t meaning_count;

enum { MEANING_DOC = 10 };
extern const int32_t meaning_doc[MEANING_DOC]; /* what the sources capture as `doc` */

#endif
