/* gated.c: gated sums of attentions, forward and backward. Input: parts with a mask, a map and a gate each, over the
 * same Q, K, V. Output: their gated sum, or all gradients. The parts run one after the other as attention calls. The
 * forward pass sums them as the last one writes its rows, while they are in a cache; in the backward pass, a pass over
 * rows for each part makes its share of d_out and the gradient of its gate. */
#include <stdlib.h>
#include <string.h>

#include "gated.h"

enum { CHUNK_ROWS = 128 };

extern const flyi_gate_code FLYI_BUILDS(flyi_gate_);

const flyi_gate_code *flyi_gate_code_of(flyi_isa isa) {
  static const flyi_gate_code *const all[] = {FLYI_BUILDS(&flyi_gate_)};
  return all[flyi_isa_build(isa)];
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* One pass over rows. */
typedef struct pass {
  const flyi_gated *g;
  const flyi_projection *projection;
  const fly_tensor *out; /* of each part */
  const fly_tensor *to; /* forward: the sum. backward: a part's share of d_out, data NULL where no attention wants it */
  int closing;          /* forward: the part that runs last; -1: none */
  int part;             /* backward: of which part; -1: forward */
  flyi_gate_cpu *scratch; /* [workers][count] */
} pass;

static int64_t chunks_of(const flyi_gated *g) { return (g->rows + CHUNK_ROWS - 1) / CHUNK_ROWS; }

static void place_logits(const pass *p, int part, int64_t b, int64_t h, int64_t row, flyi_gate_cpu *out) {
  const fly_gate *gate = &p->g->parts[part].gate;
  if (flyi_gate_projected(gate)) {
    flyi_projection_place(p->projection, part, b, h, row, out);
    return;
  }
  out->channels = (int32_t)gate->logits.shape[3];
  out->logits = flyi_plane_row(&gate->logits, b, h, row);
  out->logits_stride = gate->logits.stride[2], out->logits_type = gate->logits.type;
  out->d_logits = gate->d_logits.data ? flyi_plane_row(&gate->d_logits, b, h, row) : NULL;
  out->d_logits_stride = gate->d_logits.stride[2];
}

static void run_rows(const pass *p, int64_t b, int64_t h, int64_t row, int64_t rows, int worker) {
  const flyi_gated *g = p->g;
  int first = p->part < 0 ? 0 : p->part, count = p->part < 0 ? g->c.count : 1;
  flyi_gate_cpu *gates = p->scratch + (int64_t)worker * g->c.count;
  for (int i = 0; i < count; i++) {
    const fly_tensor *out = &p->out[first + i];
    gates[i] = (flyi_gate_cpu){.out = flyi_plane_row(out, b, h, row), .out_stride = out->stride[2]};
    place_logits(p, first + i, b, h, row, &gates[i]);
  }
  flyi_gated_cpu call = {
      .parts = gates, .count = count, .rows = (int32_t)rows, .dim = (int32_t)g->value_dim, .type = g->c.out.type};
  if (p->part < 0) {
    call.out = flyi_plane_row(p->to, b, h, row), call.out_stride = p->to->stride[2];
    g->code->forward(&call);
  } else {
    call.d_out = flyi_plane_row(&g->c.d_out, b, h, row), call.d_out_stride = g->c.d_out.stride[2];
    if (p->to->data) gates[0].d_out = flyi_plane_row(p->to, b, h, row), gates[0].d_out_stride = p->to->stride[2];
    g->code->backward(&call);
  }
}

static void run_chunk(void *context, int64_t item, int worker) {
  const pass *p = context;
  const flyi_gated *g = p->g;
  int64_t row = item % chunks_of(g) * CHUNK_ROWS, h = item / chunks_of(g) % g->heads,
          b = item / chunks_of(g) / g->heads;
  run_rows(p, b, h, row, flyi_min64(g->rows - row, CHUNK_ROWS), worker);
}

/* Rows that the last attention has just written. */
static void run_after(void *context, int64_t b, int64_t h, int64_t row, int64_t count, int worker) {
  run_rows(context, b, h, row, count, worker);
}

static int add_beside(const fly_tensor *t, int64_t b, int64_t h, int64_t row, int64_t count, int n,
                      flyi_beside_cpu *out) {
  int64_t size = (int64_t)fly_type_size(t->type);
  if (n == FLYI_BESIDE) return n;
  out[n] = (flyi_beside_cpu){flyi_plane_row(t, b, h, row), t->stride[2] * size, (int32_t)(t->shape[3] * size),
                             (int32_t)count};
  return n + 1;
}

/* The other parts' outputs, the sum if it isn't the last part's output, and gates for each channel. */
static int beside(void *context, int64_t b, int64_t h, int64_t row, int64_t count, flyi_beside_cpu *out) {
  const pass *p = context;
  int n = 0;
  for (int i = 0; i < p->g->c.count; i++)
    if (i != p->closing) n = add_beside(&p->out[i], b, h, row, count, n, out);
  if (p->out[p->closing].data != p->to->data) n = add_beside(p->to, b, h, row, count, n, out);
  for (int i = 0; i < p->g->c.count; i++) {
    const fly_tensor *logits = &p->g->parts[i].gate.logits;
    if (logits->data && logits->shape[3] > 1) n = add_beside(logits, b, h, row, count, n, out);
  }
  return n;
}

static void run_pass(const flyi_gated *g, pass *p) {
  flyi_parallel(&g->threads, g->batch * g->heads * chunks_of(g), run_chunk, p);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static fly_tensor dense_like(const fly_tensor *t) {
  return fly_tensor_dense(NULL, t->type, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
}

/* What the parts' calls work in, tensors of this call, and its projection: one block that the library keeps for the
 * next call, because fresh pages would cost a twentieth of it. */
typedef struct room {
  char *memory;
  size_t attention; /* bytes of it for a part's call */
} room;

static size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t bytes_of(const fly_tensor *t) {
  size_t rows = (size_t)(t->shape[0] * t->shape[1] * t->shape[2]);
  return round_up(rows * (size_t)t->shape[3] * fly_type_size(t->type));
}

static fly_status attention_bytes(const flyi_gated *g, bool backward, size_t *most, fly_error *error) {
  for (int i = 0; i < g->c.count; i++) {
    size_t bytes;
    fly_attention a = g->parts[i].attention;
    if (!backward) a.out = g->c.out;
    a.d_out = g->c.d_out;
    fly_status status = backward ? fly_attention_backward_workspace(&a, &bytes, error)
                                 : fly_attention_workspace(&a, &bytes, error);
    if (status) return status;
    if (bytes > *most) *most = round_up(bytes);
  }
  return FLY_OK;
}

/* r->attention is set. The tensors without data get their place, and so does the projection, which is made. */
static fly_status open_room(const flyi_gated *g, bool backward, fly_tensor *tensors, int count, room *r,
                            flyi_projection *projection, fly_error *error) {
  size_t projected, all;
  if (!flyi_projection_plan(projection, g, backward, &projected)) return flyi_no_memory(error);
  projected = round_up(projected);
  bool fits = !__builtin_add_overflow(r->attention, projected, &all);
  for (int i = 0; i < count && fits; i++)
    fits = tensors[i].data || !__builtin_add_overflow(all, bytes_of(&tensors[i]), &all);
  if (!fits || !(r->memory = flyi_workspace_take(all))) return flyi_no_memory(error);
  char *at = r->memory + r->attention + projected;
  for (int i = 0; i < count; i++)
    if (!tensors[i].data) tensors[i].data = at, at += bytes_of(&tensors[i]);
  flyi_projection_create(projection, backward, r->memory + r->attention);
  return FLY_OK;
}

static void fill_zeros(const fly_tensor *t) {
  for (int64_t b = 0; b < t->shape[0]; b++)
    for (int64_t h = 0; h < t->shape[1]; h++)
      for (int64_t r = 0; r < t->shape[2]; r++)
        memset(flyi_plane_row(t, b, h, r), 0, (size_t)t->shape[3] * fly_type_size(t->type));
}

bool flyi_gated_covers(const flyi_gated *g, int part) {
  const fly_geometry *geometry = &g->parts[part].attention.geometry;
  if (geometry->cu_seqlens_q) return geometry->cu_seqlens_q[geometry->batch] == g->rows;
  return !geometry->len_q || geometry->len_q == g->rows;
}

static fly_status open_pass(const flyi_gated *g, const flyi_projection *projection, const fly_tensor *outs, pass *p,
                            fly_error *error) {
  int workers = flyi_worker_count(&g->threads, INT64_MAX);
  *p = (pass){.g = g, .projection = projection, .out = outs, .part = -1};
  p->scratch = flyi_alloc((size_t)workers * g->c.count, sizeof *p->scratch);
  return p->scratch ? FLY_OK : flyi_no_memory(error);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* The part to run last, so that its rows are summed as they come: one that writes all rows in order. -1: none. */
static int closing_part(const flyi_gated *g) {
  int part = -1;
  for (int i = 0; i < g->c.count; i++) {
    const fly_attention *a = &g->parts[i].attention;
    if (!a->out_rows.rows && !a->geometry.q_rows.rows && flyi_gated_covers(g, i)) part = i;
  }
  return part;
}

/* Where each part writes: its own tensor, or one for this call (still without data), one of them the result's. */
static void place_outs(const flyi_gated *g, int closing, fly_tensor *outs) {
  int last = -1;
  for (int i = 0; i < g->c.count; i++)
    if (!g->parts[i].attention.out.data) last = i;
  if (closing >= 0 && !g->parts[closing].attention.out.data) last = closing;
  for (int i = 0; i < g->c.count; i++) {
    outs[i] = g->parts[i].attention.out;
    if (!outs[i].data) outs[i] = i == last ? g->c.out : dense_like(&g->c.out);
  }
}

static fly_status attend(const flyi_gated *g, int part, const fly_tensor *out, const room *r, const flyi_after *after,
                         fly_error *error) {
  fly_attention a = g->parts[part].attention;
  a.out = *out, a.workspace = r->memory, a.workspace_size = r->attention;
  if (!flyi_gated_covers(g, part)) fill_zeros(out);
  return flyi_attention_forward(&a, after, error);
}

static fly_status attend_all(const flyi_gated *g, int closing, const fly_tensor *outs, const room *r, pass *p,
                             fly_error *error) {
  fly_status status;
  p->to = &g->c.out, p->closing = closing;
  for (int i = 0; i < g->c.count; i++)
    if (i != closing && (status = attend(g, i, &outs[i], r, NULL, error))) return status;
  if (closing >= 0) return attend(g, closing, &outs[closing], r, &(flyi_after){run_after, beside, p}, error);
  run_pass(g, p);
  return FLY_OK;
}

fly_status fly_gated_forward(const fly_gated_call *call, fly_error *error) {
  flyi_gated g;
  flyi_projection projection = {0};
  fly_tensor *outs = NULL;
  pass p = {0};
  room room = {0};
  fly_status status = flyi_gated_check(call, false, &g, error);
  if (!status && g.c.cuda) {
    status = flyi_cuda_gated_call(&g, false, error);
    goto done;
  }
  if (status) goto done;
  if (!(outs = flyi_alloc(g.c.count, sizeof *outs))) {
    status = flyi_no_memory(error);
    goto done;
  }
  int closing = closing_part(&g);
  place_outs(&g, closing, outs);
  if ((status = attention_bytes(&g, false, &room.attention, error)) ||
      (status = open_pass(&g, &projection, outs, &p, error)) ||
      (status = open_room(&g, false, outs, g.c.count, &room, &projection, error)))
    goto done;
  status = attend_all(&g, closing, outs, &room, &p, error);
done:
  flyi_workspace_give(room.memory);
  free(p.scratch), free(outs), free(g.parts);
  return status;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* One part: its share of d_out into `share`, the gradient of its gate, and its gradients of q, k and v. */
static fly_status back_part(const flyi_gated *g, pass *p, int part, const fly_tensor *share, const room *r,
                            fly_error *error) {
  fly_attention a = g->parts[part].attention;
  p->part = part, p->to = share;
  run_pass(g, p);
  if (!share->data) return FLY_OK;
  a.d_out = *share, a.workspace = r->memory, a.workspace_size = r->attention;
  a.add_gradients = part > 0;
  return fly_attention_backward(&a, error);
}

fly_status fly_gated_backward(const fly_gated_call *call, fly_error *error) {
  flyi_gated g;
  flyi_projection projection = {0};
  fly_tensor share = {0}, *outs = NULL;
  pass p = {0};
  room room = {0};
  fly_status status = flyi_gated_check(call, true, &g, error);
  if (!status && g.c.cuda) {
    status = flyi_cuda_gated_call(&g, true, error);
    goto done;
  }
  if (status) goto done;
  if (!(outs = flyi_alloc(g.c.count, sizeof *outs))) {
    status = flyi_no_memory(error);
    goto done;
  }
  for (int i = 0; i < g.c.count; i++) outs[i] = g.parts[i].attention.out;
  share = dense_like(&g.c.out);
  bool attention = g.c.d_q.data || g.c.d_k.data || g.c.d_v.data;
  if ((attention && (status = attention_bytes(&g, true, &room.attention, error))) ||
      (status = open_pass(&g, &projection, outs, &p, error)) ||
      (status = open_room(&g, true, &share, attention, &room, &projection, error)))
    goto done;
  for (int i = 0; i < g.c.count; i++)
    if ((status = back_part(&g, &p, i, &share, &room, error))) goto done;
  flyi_projection_backward(&projection);
done:
  flyi_workspace_give(room.memory);
  free(p.scratch), free(outs), free(g.parts);
  return status;
}
