/* question.c: a question about a mask is a mask itself: the one that sees the pairs for which the answer is yes.
 *
 * Input: a watched mask (watch.h), a question, a geometry. From the module a mask is made that returns whether the
 * planted calls of the place said so on the way; its program is searched like that of any mask, and its code compiled
 * only where the analysis leaves pairs open. So an answer is exact. */
#include <stdlib.h>
#include <string.h>

#include <llvm-c/DebugInfo.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "question.h"

enum { MOST_PLANES = 64, ANALYSIS_LOOKS = 1 << 14, CODE_LOOKS = 1 << 18 };
static const int64_t most_nanoseconds = INT64_C(2000000000); /* for one question */

/* ---- the mask of a question -------------------------------------------------------------------------------------- */

/* The place of a planted call; -1: another instruction. */
static int place_of(LLVMValueRef instruction) {
  size_t size;
  if (!LLVMIsACallInst(instruction)) return -1;
  if (strcmp(LLVMGetValueName2(LLVMGetCalledValue(instruction), &size), FLYI_WATCH_FUNCTION) != 0) return -1;
  return (int)LLVMConstIntGetZExtValue(LLVMGetOperand(instruction, 0));
}

static bool is_asked(const flyi_subject *s, const flyi_question *q, int place) {
  return q->place >= 0 ? place == q->place : s->watch->place[place].kind != FLYI_WATCH_CLAUSE;
}

static LLVMValueRef answer_of(LLVMBuilderRef b, const flyi_question *q, LLVMValueRef call) {
  LLVMValueRef happens = LLVMGetOperand(call, 1), value = LLVMGetOperand(call, 2);
  LLVMValueRef limit = LLVMConstInt(LLVMTypeOf(value), (uint64_t)q->limit, true);
  switch (q->kind) {
  case FLYI_ASK_HAPPENS:
    return happens;
  case FLYI_ASK_HAPPENS_NOT:
    return LLVMBuildNot(b, happens, "");
  case FLYI_ASK_BELOW:
    return LLVMBuildICmp(b, LLVMIntSLT, value, limit, "");
  default:
    return LLVMBuildICmp(b, LLVMIntSGT, value, limit, "");
  }
}

/* Replaces the planted calls by a flag, and returns it instead of the mask's answer. */
static void rewrite(const flyi_subject *s, const flyi_question *q, LLVMModuleRef module) {
  LLVMValueRef mask = LLVMGetNamedFunction(module, "mask");
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef i1 = LLVMInt1TypeInContext(context);
  LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(mask)));
  LLVMValueRef flag = LLVMBuildAlloca(b, i1, "");
  LLVMBuildStore(b, LLVMConstNull(i1), flag);
  for (EACH_BLOCK(block, mask)) {
    for (EACH_INSTRUCTION_SAFE(i, next, block)) {
      int place = place_of(i);
      if (place < 0 && !LLVMIsAReturnInst(i)) continue;
      LLVMPositionBuilderBefore(b, i);
      if (place < 0) {
        LLVMSetOperand(i, 0, LLVMBuildLoad2(b, i1, flag, ""));
        continue;
      }
      if (is_asked(s, q, place))
        LLVMBuildStore(b, LLVMBuildOr(b, LLVMBuildLoad2(b, i1, flag, ""), answer_of(b, q, i), ""), flag);
      LLVMInstructionEraseFromParent(i);
    }
  }
  LLVMDisposeBuilder(b);
  LLVMValueRef function = LLVMGetNamedFunction(module, FLYI_WATCH_FUNCTION);
  if (function) LLVMDeleteFunction(function);
}

static fly_status make_mask(const flyi_subject *s, const flyi_question *q, LLVMModuleRef *out, fly_error *error) {
  LLVMModuleRef module = LLVMCloneModule(s->module);
  LLVMStripModuleDebugInfo(module);
  rewrite(s, q, module);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef failed = LLVMRunPasses(module, "function(mem2reg,dce),globaldce", NULL, options);
  LLVMDisposePassBuilderOptions(options);
  *out = module;
  if (!failed) return FLY_OK;
  LLVMConsumeError(failed);
  LLVMDisposeModule(module);
  return flyi_fail(error, FLY_ERROR_INTERNAL, "a question about the mask cannot be put");
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

typedef struct hunt {
  const flyi_subject *subject;
  const fly_geometry *geometry;
  flyi_program program;
  flyi_code code; /* none: the nodes alone */
  flyi_mask_args *args;
  flyi_budget budget;
} hunt;

static flyi_found search_plane(hunt *t, int64_t b, int64_t h, flyi_witness *witness, fly_error *error) {
  flyi_arrays arrays = {0};
  flyi_nodes nodes = {0};
  flyi_found found = FLYI_FOUND_ERROR;
  if (!flyi_decode(&t->program, t->subject->bound, t->geometry, b, h, &arrays, &nodes, error)) {
    *witness = (flyi_witness){b, h, 0, 0};
    found = flyi_find_pair(&nodes, t->code.tile, t->args, (int32_t)b, (int32_t)h, &t->budget, &witness->q,
                           &witness->kv);
    if (found == FLYI_FOUND_ERROR) flyi_no_memory(error);
  }
  flyi_nodes_free(&nodes);
  flyi_arrays_free(&arrays);
  return found;
}

/* All (b, h), or the first where the question reads neither; at most MOST_PLANES of them. */
static flyi_found search_all(hunt *t, flyi_witness *witness, fly_error *error) {
  const fly_geometry *g = t->geometry;
  uint32_t reads = t->program.reads;
  bool by_b = reads & (FLYI_READS_B | FLYI_READS_LEN_Q | FLYI_READS_LEN_KV) || g->cu_seqlens_q || g->q_rows.rows;
  bool by_h = reads & FLYI_READS_H;
  int64_t batch = by_b ? g->batch : 1, heads = by_h ? g->heads : 1;
  bool open = batch * heads > MOST_PLANES;
  for (int64_t i = 0; i < batch * heads && i < MOST_PLANES; i++) {
    int64_t b = i / heads, h = i % heads;
    if (flyi_len_q(g, b) == 0 || flyi_len_kv(g, b) == 0) continue;
    flyi_found found = search_plane(t, b, h, witness, error);
    if (found == FLYI_FOUND_PAIR || found == FLYI_FOUND_ERROR) return found;
    open |= found == FLYI_FOUND_OPEN;
  }
  return open ? FLYI_FOUND_OPEN : FLYI_FOUND_NONE;
}

static fly_status compile(hunt *t, const flyi_question *q, fly_error *error) {
  const flyi_subject *s = t->subject;
  flyi_bytes object = {0};
  LLVMModuleRef module;
  fly_status status = make_mask(s, q, &module, error);
  if (status) return status;
  status = flyi_make_object(module, s->declarations, s->isa, &object, error);
  if (!status) status = flyi_jit_load((flyi_section){object.data, object.size}, &t->code, error);
  flyi_bytes_free(&object);
  return status ? status : flyi_mask_args_create(s->bound, t->geometry, &t->args, error);
}

static fly_status parse(hunt *t, const flyi_question *q, fly_error *error) {
  const flyi_subject *s = t->subject;
  flyi_bytes bytes = {0};
  LLVMModuleRef module;
  uint32_t reads;
  fly_status status = make_mask(s, q, &module, error);
  if (status) return status;
  status = flyi_analyze(module, s->declarations, &bytes, &reads, error);
  LLVMDisposeModule(module);
  if (!status)
    status = flyi_program_parse((flyi_section){bytes.data, bytes.size}, &s->bound->mask->image, &t->program, error);
  flyi_bytes_free(&bytes);
  return status;
}

flyi_found flyi_ask(const flyi_subject *subject, const flyi_question *question, const fly_geometry *geometry,
                    flyi_witness *witness, fly_error *error) {
  hunt t = {.subject = subject, .geometry = geometry};
  flyi_found found = FLYI_FOUND_ERROR;
  if (flyi_nanoseconds() > subject->until) return FLYI_FOUND_OPEN;
  if (parse(&t, question, error)) goto done;
  t.budget = (flyi_budget){ANALYSIS_LOOKS, flyi_nanoseconds() + most_nanoseconds};
  found = search_all(&t, witness, error);
  if (found != FLYI_FOUND_OPEN) goto done;
  found = FLYI_FOUND_ERROR;
  if (compile(&t, question, error)) goto done;
  t.budget = (flyi_budget){CODE_LOOKS, flyi_nanoseconds() + most_nanoseconds};
  found = search_all(&t, witness, error);
done:
  flyi_mask_args_free(t.args);
  if (t.code.unload) t.code.unload(&t.code);
  flyi_program_free(&t.program);
  return found;
}

/* ---- what a condition depends on --------------------------------------------------------------------------------- */

typedef struct trace {
  LLVMValueRef mask;
  LLVMValueRef *seen;
  int count, capacity;
  bool failed;
} trace;

static bool remember(trace *t, LLVMValueRef value) {
  for (int i = 0; i < t->count; i++)
    if (t->seen[i] == value) return false;
  if (t->count == t->capacity) {
    int capacity = 2 * t->capacity + 64;
    LLVMValueRef *grown = flyi_grow(t->seen, (size_t)capacity, sizeof(LLVMValueRef));
    if (!grown) return t->failed = true, false;
    t->seen = grown, t->capacity = capacity;
  }
  t->seen[t->count++] = value;
  return true;
}

bool flyi_depends_on_pair(const flyi_subject *subject, int place) {
  trace t = {.mask = LLVMGetNamedFunction(subject->module, "mask")};
  bool found = false;
  for (EACH_BLOCK(block, t.mask))
    for (EACH_INSTRUCTION(i, block))
      if (place_of(i) == place) remember(&t, LLVMGetOperand(i, 1));
  for (int at = 0; at < t.count && !found && !t.failed; at++) { /* grows on the way */
    LLVMValueRef value = t.seen[at];
    found = value == LLVMGetParam(t.mask, 2) || value == LLVMGetParam(t.mask, 3) || LLVMIsAAllocaInst(value);
    bool phi = LLVMIsAPHINode(value) != NULL;
    int operands = phi ? (int)LLVMCountIncoming(value) : LLVMIsAInstruction(value) ? LLVMGetNumOperands(value) : 0;
    for (int k = 0; k < operands && !t.failed; k++)
      remember(&t, phi ? LLVMGetIncomingValue(value, (unsigned)k) : LLVMGetOperand(value, (unsigned)k));
  }
  free(t.seen);
  return found;
}
