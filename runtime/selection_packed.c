/* selection_packed.c: selected blocks in packed documents. Each document becomes a selection of its own, whose blocks
 * begin with it, so that none reaches into another; calls go through the documents one after the other, over views of
 * their rows of the packed tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "selection.h"

#define REFUSE(error, ...) flyi_fail(error, FLY_ERROR_ARGUMENT, __VA_ARGS__)

fly_tensor flyi_document_rows(const fly_tensor *t, int64_t first, int64_t last) {
  fly_tensor view = *t;
  if (!view.data) return view;
  view.data = (char *)view.data + first * view.stride[2] * (int64_t)fly_type_size(view.type);
  view.shape[2] = last - first;
  return view;
}

/* The document's number in front of what went wrong in it. */
static fly_status name_document(int64_t document, fly_status status, fly_error *error) {
  if (!error) return status;
  char message[sizeof error->message];
  memcpy(message, error->message, sizeof message);
  message[sizeof message - 1] = 0;
  return flyi_fail(error, status, "document %" PRId64 ": %.900s", document, message);
}

fly_status flyi_selection_pack(const flyi_packing *p, fly_selection **out, fly_error *error) {
  fly_geometry shape = {FLY_INIT(fly_geometry), .batch = p->documents, .heads = p->heads, .cu_seqlens_q = p->cu_seqlens,
                        .cu_seqlens_kv = p->cu_seqlens};
  flyi_domain domain;
  fly_status status = flyi_domain_check(&shape, &domain, error);
  if (status) return status;
  if (!p->documents) return REFUSE(error, "batch is 0: with cu_seqlens it must say how many documents there are");
  fly_selection *s = flyi_alloc(1, sizeof *s);
  if (!s) return flyi_no_memory(error);
  s->references = 1;
  s->batch = 1, s->heads = p->heads, s->block = p->block;
  s->len_q = s->len_kv = p->cu_seqlens[p->documents];
  s->cu = flyi_grow(NULL, (size_t)p->documents + 1, sizeof *s->cu);
  s->document = flyi_alloc((size_t)p->documents + 1, sizeof *s->document);
  if (!s->cu || !s->document) {
    fly_selection_release(&s);
    return flyi_no_memory(error);
  }
  memcpy(s->cu, p->cu_seqlens, ((size_t)p->documents + 1) * sizeof *s->cu);
  s->documents = p->documents;
  for (int64_t i = 0; i < s->documents && !status; i++) {
    if (s->cu[i] == s->cu[i + 1]) continue;
    status = p->select(p->context, i, &s->document[i], error);
    if (status)
      status = name_document(i, status, error);
    else if (s->document[i]->rows > s->rows)
      s->rows = s->document[i]->rows;
    if (!status && s->document[i]->key_blocks > s->key_blocks) s->key_blocks = s->document[i]->key_blocks;
  }
  if (status)
    fly_selection_release(&s);
  else
    *out = s;
  return status;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static fly_attention document_call(const fly_selection *s, const fly_attention *call, int64_t i) {
  fly_attention own = *call;
  fly_tensor *all[] = {&own.q,     &own.k,     &own.v,   &own.out, &own.lse,
                       &own.d_out, &own.d_lse, &own.d_q, &own.d_k, &own.d_v};
  for (size_t t = 0; t < sizeof all / sizeof *all; t++) *all[t] = flyi_document_rows(all[t], s->cu[i], s->cu[i + 1]);
  return own;
}

static fly_status check_rows(const fly_selection *s, const fly_attention *call, fly_error *error) {
  const struct {
    const char *name;
    const fly_tensor *tensor;
  } all[] = {{"q", &call->q},     {"k", &call->k},         {"v", &call->v},         {"out", &call->out},
             {"lse", &call->lse}, {"d_out", &call->d_out}, {"d_lse", &call->d_lse}, {"d_q", &call->d_q},
             {"d_k", &call->d_k}, {"d_v", &call->d_v}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const fly_tensor *t = all[i].tensor;
    if (t->data && (t->shape[0] != 1 || t->shape[2] != s->len_q))
      return REFUSE(error,
                    "%s.shape is [%" PRId64 ", .., %" PRId64 ", ..]: the selection's documents are [1, .., %" PRId64
                    ", ..]",
                    all[i].name, t->shape[0], t->shape[2], s->len_q);
  }
  return FLY_OK;
}

fly_status flyi_packed_run(const fly_selection *s, const fly_attention *call, flyi_selection_run run,
                           fly_error *error) {
  fly_status status = check_rows(s, call, error);
  for (int64_t i = 0; i < s->documents && !status; i++) {
    if (!s->document[i]) continue;
    fly_attention own = document_call(s, call, i);
    if ((status = run(s->document[i], &own, error))) status = name_document(i, status, error);
  }
  return status;
}

fly_status flyi_packed_workspace(const fly_selection *s, const fly_attention *call, flyi_selection_size size,
                                 size_t *bytes, fly_error *error) {
  fly_status status = check_rows(s, call, error);
  for (int64_t i = 0; i < s->documents && !status; i++) {
    size_t need = 0;
    if (!s->document[i]) continue;
    fly_attention own = document_call(s, call, i);
    if ((status = size(s->document[i], &own, &need, error))) status = name_document(i, status, error);
    if (need > *bytes) *bytes = need;
  }
  if (status) *bytes = 0;
  return status;
}

void flyi_packed_bitmap(const fly_selection *s, uint8_t *bitmap) {
  memset(bitmap, 0, (size_t)(s->heads * s->len_q * s->key_blocks));
  for (int64_t i = 0; i < s->documents; i++) {
    const fly_selection *own = s->document[i];
    for (int64_t h = 0; own && h < s->heads; h++)
      flyi_selection_plane_bitmap(own, h, bitmap + (h * s->len_q + s->cu[i]) * s->key_blocks, s->key_blocks);
  }
}
