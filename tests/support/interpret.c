/* interpret.c: running programs, and building them by hand. random_program.c makes random ones. */
#include "interpret.h"

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static uint64_t ones(int w) { return w == 64 ? UINT64_MAX : ((uint64_t)1 << w) - 1; }

int64_t number_of(int w, uint64_t bits) {
  bits &= ones(w);
  if (w == 1 || !(bits >> (w - 1) & 1)) return (int64_t)bits;
  return (int64_t)(bits | ~ones(w));
}

static int count_bits(flyi_op op, int w, uint64_t x) {
  int n = 0;
  if (op == FLYI_OP_POPCOUNT)
    for (int i = 0; i < w; i++) n += (int)(x >> i & 1);
  if (op == FLYI_OP_CTLZ)
    while (n < w && !(x >> (w - 1 - n) & 1)) n++;
  if (op == FLYI_OP_CTTZ)
    while (n < w && !(x >> n & 1)) n++;
  return n;
}

/* Truncated, and 2^(w - 1) / -1 wraps around, as it does in a mask; x and y are the operands' bits. */
static uint64_t divide(flyi_op op, int64_t a, int64_t b, uint64_t x, uint64_t y) {
  switch (op) {
  case FLYI_OP_SDIV:
    return b == -1 ? 0 - x : (uint64_t)(a / b);
  case FLYI_OP_SREM:
    return b == -1 ? 0 : (uint64_t)(a % b);
  case FLYI_OP_UDIV:
    return x / y;
  default:
    return x % y;
  }
}

static uint64_t shift(flyi_op op, int w, int64_t a, uint64_t x, uint64_t y) {
  if (op == FLYI_OP_SHL) return x << y;
  return op == FLYI_OP_ASHR && a < 0 && y ? x >> y | ones(w) << ((uint64_t)w - y) : x >> y;
}

static bool compare(flyi_op op, int64_t a, int64_t b, uint64_t x, uint64_t y) {
  switch (op) {
  case FLYI_OP_EQ:
    return x == y;
  case FLYI_OP_NE:
    return x != y;
  case FLYI_OP_SLT:
    return a < b;
  case FLYI_OP_SLE:
    return a <= b;
  case FLYI_OP_ULT:
    return x < y;
  default:
    return x <= y;
  }
}

/* An operator that has a result for all operands. */
static bool total(flyi_op op, int64_t a, int64_t b, uint64_t x, uint64_t y, uint64_t *r) {
  switch (op) {
  case FLYI_OP_ADD:
    return *r = x + y, true;
  case FLYI_OP_SUB:
    return *r = x - y, true;
  case FLYI_OP_MUL:
    return *r = x * y, true;
  case FLYI_OP_AND:
    return *r = x & y, true;
  case FLYI_OP_OR:
    return *r = x | y, true;
  case FLYI_OP_XOR:
    return *r = x ^ y, true;
  case FLYI_OP_SMAX:
    return *r = (uint64_t)(a > b ? a : b), true;
  case FLYI_OP_SMIN:
    return *r = (uint64_t)(a < b ? a : b), true;
  case FLYI_OP_UMAX:
    return *r = x > y ? x : y, true;
  case FLYI_OP_UMIN:
    return *r = x < y ? x : y, true;
  case FLYI_OP_ABS:
    return *r = a < 0 ? 0 - x : x, true;
  default:
    return false;
  }
}

bool concrete(flyi_op op, int w, int from, int64_t a, int64_t b, int64_t *out) {
  bool wide = op >= FLYI_OP_ZEXT && op <= FLYI_OP_ULE;
  int in = wide ? from : w;
  uint64_t x = (uint64_t)a & ones(in), y = (uint64_t)b & ones(in), r;
  switch (op) {
  case FLYI_OP_SDIV:
  case FLYI_OP_SREM:
  case FLYI_OP_UDIV:
  case FLYI_OP_UREM:
    if (y == 0) return false;
    r = divide(op, a, b, x, y);
    break;
  case FLYI_OP_SHL:
  case FLYI_OP_LSHR:
  case FLYI_OP_ASHR:
    if (y >= (uint64_t)w) return false;
    r = shift(op, w, a, x, y);
    break;
  case FLYI_OP_POPCOUNT:
  case FLYI_OP_CTLZ:
  case FLYI_OP_CTTZ:
    r = (uint64_t)count_bits(op, w, x);
    break;
  case FLYI_OP_ZEXT:
  case FLYI_OP_TRUNC:
    r = x;
    break;
  case FLYI_OP_SEXT:
    r = (uint64_t)(from == 1 ? -a : a);
    break;
  case FLYI_OP_EQ:
  case FLYI_OP_NE:
  case FLYI_OP_SLT:
  case FLYI_OP_SLE:
  case FLYI_OP_ULT:
  case FLYI_OP_ULE:
    r = compare(op, a, b, x, y);
    break;
  default:
    if (!total(op, a, b, x, y, &r)) return false;
  }
  *out = number_of(w, r);
  return true;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct machine {
  const program_case *c;
  const fly_geometry *g;
  int64_t *value;
  long steps;
} machine;

static int64_t clamp(int64_t x, int64_t count) { return x >= count ? count - 1 < 0 ? 0 : count - 1 : x < 0 ? 0 : x; }

static int64_t element(const void *data, int bytes, int64_t count, int64_t i) {
  uint64_t bits = 0;
  if (count == 0) return 0;
  expect(i >= 0 && i < count, "element %lld of %lld", (long long)i, (long long)count);
  memcpy(&bits, (const char *)data + i * bytes, (size_t)bytes);
  return number_of(8 * bytes, bits);
}

static int64_t token(const machine *m, bool query, int64_t b, int64_t h, int64_t position) {
  const fly_geometry *g = m->g;
  const fly_row_map *map = query ? &g->q_rows : &g->kv_rows;
  const int32_t *cu = query ? g->cu_seqlens_q : g->cu_seqlens_kv;
  b = clamp(b, g->batch), h = clamp(h, g->heads);
  int64_t start = cu ? cu[b] : 0, length = cu ? cu[b + 1] - cu[b] : query ? g->len_q : g->len_kv;
  int64_t offset = query ? g->q_offset : 0, row = clamp(position - offset, length);
  if (length == 0) return offset;
  return map->rows ? map->rows[b * map->stride_batch + h * map->stride_head + start + row] - start + offset
                   : row + offset;
}

static int64_t step(const machine *m, const flyi_instruction *i, int32_t index) {
  const flyi_program *p = &m->c->program;
  const int64_t *v = m->value;
  const fly_geometry *g = m->g;
  fly_buffer **buffers = m->c->bound.buffers;
  int64_t r = 0, b;
  switch (i->op) {
  case FLYI_OP_UNKNOWN:
    return number_of(i->width, ((uint64_t)(v[2] * 7919 + v[3] * 104729 + index) * 0x9E3779B97F4A7C15) >> 17);
  case FLYI_OP_CONST:
    return number_of(i->width, (uint64_t)i->k);
  case FLYI_OP_PARAM:
    return number_of(i->width, m->c->bound.slots[i->k]);
  case FLYI_OP_COUNT:
    return buffers[i->k]->count;
  case FLYI_OP_DIM:
    return buffers[i->k / 4]->shape[i->k % 4];
  case FLYI_OP_LOAD:
    return element(buffers[i->k]->data, (int)fly_type_size(buffers[i->k]->type), buffers[i->k]->count, v[i->a]);
  case FLYI_OP_TABLE:
    return element(p->table[i->k].data, p->table[i->k].bytes, p->table[i->k].count, v[i->a]);
  case FLYI_OP_TOKEN_Q:
    return token(m, true, v[i->a], v[i->b], v[i->c]);
  case FLYI_OP_TOKEN_KV:
    return token(m, false, v[i->a], v[i->b], v[i->c]);
  case FLYI_OP_LEN_Q:
    b = clamp(v[i->a], g->batch);
    return g->cu_seqlens_q ? g->cu_seqlens_q[b + 1] - g->cu_seqlens_q[b] : g->len_q;
  case FLYI_OP_LEN_KV:
    b = clamp(v[i->a], g->batch);
    return g->cu_seqlens_kv ? g->cu_seqlens_kv[b + 1] - g->cu_seqlens_kv[b] : g->len_kv;
  case FLYI_OP_SELECT:
    return v[i->a] ? v[i->b] : v[i->c];
  default:
    expect(concrete(i->op, i->width, flyi_value_width(p, i->a), v[i->a], v[i->b], &r), "op %d is undefined", i->op);
    return r;
  }
}

/* The edge that leaves a block; NULL: *answer. */
static const flyi_edge *leave(const machine *m, const flyi_block *b, int *answer) {
  const flyi_edge *edge = b->edges ? m->c->program.edge + b->edge : NULL;
  int64_t value = b->end == FLYI_END_JUMP ? 0 : m->value[b->value];
  switch (b->end) {
  case FLYI_END_RETURN:
    *answer = (int)value;
    return NULL;
  case FLYI_END_JUMP:
    return edge;
  case FLYI_END_BRANCH:
    return value ? edge : edge + 1;
  default:
    for (int k = 1; k < b->edges; k++)
      if (number_of(flyi_value_width(&m->c->program, b->value), (uint64_t)edge[k].match) == value) return edge + k;
    return edge;
  }
}

int interpret(const program_case *c, const fly_geometry *geometry, int b, int h, int q, int kv) {
  const flyi_program *p = &c->program;
  machine m = {.c = c, .g = geometry, .value = calloc((size_t)FLYI_VALUE_FIRST + p->instructions, sizeof(int64_t))};
  int64_t *v = m.value, arg[64];
  int answer = -1;
  v[0] = b, v[1] = h, v[2] = q, v[3] = kv;
  for (const flyi_block *block = p->block; block;) {
    for (int32_t k = block->phis; k < block->count; k++, m.steps++)
      v[FLYI_VALUE_FIRST + block->first + k] = step(&m, &p->instruction[block->first + k], block->first + k);
    if (m.steps++ > 1000000) break;
    const flyi_edge *edge = leave(&m, block, &answer);
    block = edge ? &p->block[edge->target] : NULL;
    for (int32_t k = 0; block && k < block->phis; k++) arg[k] = v[p->arg[edge->args + k]]; /* all at once */
    for (int32_t k = 0; block && k < block->phis; k++) v[FLYI_VALUE_FIRST + block->first + k] = arg[k];
  }
  free(v);
  return answer;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

int32_t put3(flyi_program *p, flyi_op op, int width, int32_t a, int32_t b, int32_t c) {
  return FLYI_VALUE_FIRST +
         flyi_program_add(p, (flyi_instruction){.op = (uint8_t)op, .width = (uint8_t)width, .a = a, .b = b, .c = c});
}

int32_t put(flyi_program *p, flyi_op op, int width, int32_t a, int32_t b) { return put3(p, op, width, a, b, 0); }

int32_t put_k(flyi_program *p, flyi_op op, int width, int32_t a, int64_t k) {
  return FLYI_VALUE_FIRST +
         flyi_program_add(p, (flyi_instruction){.op = (uint8_t)op, .width = (uint8_t)width, .a = a, .k = k});
}

void end_block(flyi_program *p, int32_t first, int phis, int loop, flyi_end end, int32_t value, int32_t edge) {
  flyi_program_add_block(p, (flyi_block){.first = first,
                                         .count = p->instructions - first,
                                         .phis = phis,
                                         .loop = loop,
                                         .end = (uint8_t)end,
                                         .value = value,
                                         .edge = edge,
                                         .edges = p->edges - edge});
}

void add_edge(flyi_program *p, int32_t target, int64_t match, const int32_t *args, int count) {
  flyi_edge edge = {target, p->args, match};
  for (int k = 0; k < count; k++) flyi_program_add_arg(p, args[k]);
  flyi_program_add_edge(p, edge);
}

void program_case_bind(program_case *c, const int64_t *parameters, int parameter_count, fly_buffer **buffers,
                       int buffer_count) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
  flyi_image *image = &c->mask.image;
  fly_error error;
  image->reads = 0xff;
  image->parameter_count = parameter_count, image->buffer_count = buffer_count;
  image->parameters = calloc((size_t)parameter_count + 1, sizeof *image->parameters);
  image->buffers = calloc((size_t)buffer_count + 1, sizeof *image->buffers);
  c->bound.slot_count = parameter_count + buffer_count * FLYI_BUFFER_SLOTS;
  c->bound.slots = calloc((size_t)c->bound.slot_count + 1, sizeof *c->bound.slots);
  c->bound.buffers = calloc((size_t)buffer_count + 1, sizeof *c->bound.buffers);
  for (int i = 0; i < parameter_count; i++) {
    image->parameters[i] = (flyi_parameter){.name = names[i], .type = FLY_I32};
    c->bound.slots[i] = (uint64_t)parameters[i];
  }
  for (int i = 0; i < buffer_count; i++) {
    image->buffers[i] = (fly_buffer_info){names[i], buffers[i]->type, buffers[i]->rank};
    c->bound.buffers[i] = buffers[i];
  }
  ck_fly_ok(flyi_program_encode(&c->program, &c->bytes, &error), error);
  image->program = (flyi_section){c->bytes.data, c->bytes.size};
  c->bound.mask = &c->mask;
  c->bound.references = c->mask.references = 1000; /* never freed by the library */
}

void program_case_free(program_case *c) {
  for (int i = 0; i < c->mask.image.buffer_count; i++) fly_buffer_release(&c->bound.buffers[i]);
  free(c->mask.image.parameters), free(c->mask.image.buffers), free(c->bound.slots), free(c->bound.buffers);
  flyi_bytes_free(&c->bytes);
  flyi_program_free(&c->program);
  memset(c, 0, sizeof *c);
}
