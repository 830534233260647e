/* question.c: a question about a mask is a mask itself: the one that sees the pairs for which the answer is yes.
 *
 * Input: a watched mask or score modifier (watch.h), a question, a geometry. From the module a mask is made that
 * returns whether the planted calls of the place said so on the way; its program is searched like that of any mask,
 * together with that of the mask whose pairs count, and its code compiled only where the analysis leaves pairs open.
 * So an answer is exact. A modifier's score becomes a constant, one after the other of a few. */
#include <stdlib.h>
#include <string.h>

#include <llvm-c/DebugInfo.h>

#include "question.h"

enum { MOST_PLANES = 64, ANALYSIS_LOOKS = 1 << 14, CODE_LOOKS = 1 << 18 };
static const float scores[] = {0, 1, -1, 30, -30};           /* softmax of more than that decides alone */

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

static LLVMValueRef is_not_finite(LLVMBuilderRef b, LLVMValueRef score) {
  LLVMValueRef most = LLVMConstReal(LLVMTypeOf(score), __builtin_inf());
  return LLVMBuildFCmp(b, LLVMRealUEQ, score, most, ""); /* or unordered */
}

/* The value that the function returns instead. */
static LLVMValueRef returned(LLVMBuilderRef b, const flyi_question *q, LLVMValueRef flag, LLVMValueRef result) {
  LLVMValueRef happens = LLVMBuildLoad2(b, LLVMGetAllocatedType(flag), flag, "");
  return q->kind == FLYI_ASK_NOT_FINITE ? LLVMBuildOr(b, happens, is_not_finite(b, result), "") : happens;
}

/* Replaces the planted calls by a flag, and returns it instead of the function's result. */
static void rewrite(const flyi_subject *s, const flyi_question *q, LLVMValueRef function) {
  LLVMContextRef context = LLVMGetModuleContext(LLVMGetGlobalParent(function));
  LLVMTypeRef i1 = LLVMInt1TypeInContext(context);
  LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderBefore(b, LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(function)));
  LLVMValueRef flag = LLVMBuildAlloca(b, i1, "");
  LLVMBuildStore(b, LLVMConstNull(i1), flag);
  for (EACH_BLOCK(block, function)) {
    for (EACH_INSTRUCTION_SAFE(i, next, block)) {
      int place = place_of(i);
      if (place < 0 && !LLVMIsAReturnInst(i)) continue;
      LLVMPositionBuilderBefore(b, i);
      if (place < 0) {
        LLVMSetOperand(i, 0, returned(b, q, flag, LLVMGetOperand(i, 0)));
        continue;
      }
      if (q->kind != FLYI_ASK_NOT_FINITE && is_asked(s, q, place))
        LLVMBuildStore(b, LLVMBuildOr(b, LLVMBuildLoad2(b, i1, flag, ""), answer_of(b, q, i), ""), flag);
      LLVMInstructionEraseFromParent(i);
    }
  }
  LLVMDisposeBuilder(b);
  LLVMValueRef planted = LLVMGetNamedFunction(LLVMGetGlobalParent(function), FLYI_WATCH_FUNCTION);
  if (planted) LLVMDeleteFunction(planted);
}

/* @score's blocks in a @mask, where the score is a parameter no more; *reads: whether they used it. */
static void make_constant(LLVMModuleRef module, float value, bool *reads) {
  LLVMValueRef score = LLVMGetNamedFunction(module, "score"), s = LLVMGetParam(score, 0);
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(context), types[] = {i32, i32, i32, i32};
  LLVMValueRef mask = LLVMAddFunction(module, "mask",
                                      LLVMFunctionType(LLVMInt1TypeInContext(context), types, 4, false));
  for (LLVMBasicBlockRef block; (block = LLVMGetFirstBasicBlock(score));) {
    LLVMRemoveBasicBlockFromParent(block);
    LLVMAppendExistingBasicBlock(mask, block);
  }
  *reads = LLVMGetFirstUse(s) != NULL;
  LLVMReplaceAllUsesWith(s, LLVMConstReal(LLVMTypeOf(s), (double)value));
  for (unsigned i = 0; i < 4; i++) LLVMReplaceAllUsesWith(LLVMGetParam(score, 1 + i), LLVMGetParam(mask, i));
  LLVMDeleteFunction(score);
}

static LLVMValueRef function_of(const flyi_subject *s, LLVMModuleRef module) {
  return LLVMGetNamedFunction(module, s->is_score ? "score" : "mask");
}

/* score: the modifier's; *reads: whether the answer depends on it. */
static fly_status make_mask(const flyi_subject *s, const flyi_question *q, float score, bool *reads, LLVMModuleRef *out,
                            fly_error *error) {
  LLVMModuleRef module = LLVMCloneModule(s->module);
  LLVMStripModuleDebugInfo(module);
  rewrite(s, q, function_of(s, module));
  *reads = false;
  fly_status status = flyi_passes(module, "function(mem2reg,adce),globaldce", NULL, error);
  if (status) {
    LLVMDisposeModule(module);
    return status;
  }
  if (s->is_score) make_constant(module, score, reads);
  *out = module;
  return FLY_OK;
}

/* ---- searching --------------------------------------------------------------------------------------------------- */

typedef struct hunt {
  const flyi_subject *subject;
  const flyi_question *question;
  const fly_geometry *geometry;
  flyi_program program, seen_program; /* the second: of the mask whose pairs count */
  flyi_code code;                     /* none: the nodes alone */
  flyi_mask_args *args, *seen_args;
  flyi_budget budget;
  float score;
} hunt;

static flyi_found search_plane(hunt *t, int64_t b, int64_t h, flyi_witness *witness, fly_error *error) {
  const fly_bound *seen = t->subject->seen;
  flyi_arrays arrays = {0};
  flyi_nodes nodes = {0}, seen_nodes = {0};
  flyi_searched masks[FLYI_MOST_SEARCHED] = {{&nodes, t->code.tile, t->args}, {&seen_nodes, NULL, t->seen_args}};
  flyi_found found = FLYI_FOUND_ERROR;
  if (seen) masks[1].tile = seen->mask->code.tile;
  fly_status status = flyi_decode(&t->program, t->subject->bound, t->geometry, b, h, &arrays, &nodes, error);
  if (!status && seen) status = flyi_decode(&t->seen_program, seen, t->geometry, b, h, &arrays, &seen_nodes, error);
  if (!status) {
    witness->b = b, witness->h = h;
    found = flyi_find_pair(masks, seen ? 2 : 1, (int32_t)b, (int32_t)h, &t->budget, &witness->q, &witness->kv);
    if (found == FLYI_FOUND_ERROR) flyi_no_memory(error);
  }
  flyi_nodes_free(&nodes), flyi_nodes_free(&seen_nodes);
  flyi_arrays_free(&arrays);
  return found;
}

/* All (b, h), or the first where nothing reads them; at most MOST_PLANES of them. */
static flyi_found search_all(hunt *t, flyi_witness *witness, fly_error *error) {
  const fly_geometry *g = t->geometry;
  uint32_t reads = t->program.reads | t->seen_program.reads;
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

static fly_status compile(hunt *t, fly_error *error) {
  const flyi_subject *s = t->subject;
  flyi_bytes object = {0};
  LLVMModuleRef module;
  bool reads;
  fly_status status = make_mask(s, t->question, t->score, &reads, &module, error);
  if (status) return status;
  status = flyi_make_object(module, s->declarations, s->isa, &object, error);
  if (!status) status = flyi_jit_load((flyi_section){object.data, object.size}, &t->code, error);
  flyi_bytes_free(&object);
  return status ? status : flyi_mask_args_create(s->bound, t->geometry, &t->args, error);
}

static fly_status parse(hunt *t, bool *reads_s, fly_error *error) {
  const flyi_subject *s = t->subject;
  const fly_bound *seen = s->seen;
  flyi_bytes bytes = {0};
  LLVMModuleRef module;
  uint32_t reads;
  fly_status status = make_mask(s, t->question, t->score, reads_s, &module, error);
  if (status) return status;
  status = flyi_analyze(module, s->declarations, &bytes, &reads, error);
  LLVMDisposeModule(module);
  if (!status)
    status = flyi_program_parse((flyi_section){bytes.data, bytes.size}, &s->bound->mask->image, &t->program, error);
  flyi_bytes_free(&bytes);
  if (status || !seen) return status;
  status = flyi_program_parse(seen->mask->image.program, &seen->mask->image, &t->seen_program, error);
  return status ? status : flyi_mask_args_create(seen, t->geometry, &t->seen_args, error);
}

static flyi_budget budget_of(const flyi_subject *s, int64_t looks) {
  int64_t until = flyi_nanoseconds() + s->most;
  return (flyi_budget){looks, until < s->until ? until : s->until};
}

/* With one score. */
static flyi_found ask(const flyi_subject *subject, const flyi_question *question, const fly_geometry *geometry,
                      float score, flyi_witness *witness, fly_error *error) {
  hunt t = {.subject = subject, .question = question, .geometry = geometry, .score = score};
  flyi_found found = FLYI_FOUND_ERROR;
  if (flyi_nanoseconds() > subject->until) return FLYI_FOUND_OPEN;
  witness->s = score;
  if (parse(&t, &witness->reads_s, error)) goto done;
  t.budget = budget_of(subject, ANALYSIS_LOOKS);
  found = search_all(&t, witness, error);
  if (found != FLYI_FOUND_OPEN) goto done;
  found = FLYI_FOUND_ERROR;
  if (compile(&t, error)) goto done;
  t.budget = budget_of(subject, CODE_LOOKS);
  found = search_all(&t, witness, error);
done:
  flyi_mask_args_free(t.args), flyi_mask_args_free(t.seen_args);
  if (t.code.unload) t.code.unload(&t.code);
  flyi_program_free(&t.program), flyi_program_free(&t.seen_program);
  return found;
}

flyi_found flyi_ask(const flyi_subject *subject, const flyi_question *question, const fly_geometry *geometry,
                    flyi_witness *witness, fly_error *error) {
  bool open = false;
  *witness = (flyi_witness){0};
  for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) {
    flyi_found found = ask(subject, question, geometry, scores[i], witness, error);
    if (found == FLYI_FOUND_PAIR || found == FLYI_FOUND_ERROR) return found;
    open |= found == FLYI_FOUND_OPEN;
    if (!witness->reads_s) break;
  }
  return open ? FLYI_FOUND_OPEN : FLYI_FOUND_NONE;
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

static bool is_captured(LLVMValueRef value) {
  const char *name = LLVMIsAGlobalVariable(value) ? LLVMGetValueName2(value, &(size_t){0}) : "";
  return flyi_starts(name, "fly.data.") || flyi_starts(name, "fly.dim.");
}

bool flyi_depends_on_pair_alone(const flyi_subject *subject, int place) {
  trace t = {.mask = function_of(subject, subject->module)};
  unsigned q = subject->is_score ? 3 : 2;
  bool found = false, captured = false;
  for (EACH_BLOCK(block, t.mask))
    for (EACH_INSTRUCTION(i, block))
      if (place_of(i) == place) remember(&t, LLVMGetOperand(i, 1));
  for (int at = 0; at < t.count && !captured && !t.failed; at++) { /* grows on the way */
    LLVMValueRef value = t.seen[at];
    captured = is_captured(value);
    found |= value == LLVMGetParam(t.mask, q) || value == LLVMGetParam(t.mask, q + 1) || LLVMIsAAllocaInst(value);
    bool phi = LLVMIsAPHINode(value) != NULL;
    int operands = phi ? (int)LLVMCountIncoming(value) : LLVMIsAInstruction(value) ? LLVMGetNumOperands(value) : 0;
    for (int k = 0; k < operands && !t.failed; k++)
      remember(&t, phi ? LLVMGetIncomingValue(value, (unsigned)k) : LLVMGetOperand(value, (unsigned)k));
  }
  free(t.seen);
  return found && !captured;
}

fly_status flyi_result_reads_score(const flyi_subject *subject, bool *reads, fly_error *error) {
  LLVMModuleRef module = LLVMCloneModule(subject->module);
  LLVMStripModuleDebugInfo(module);
  LLVMValueRef score = LLVMGetNamedFunction(module, "score");
  for (EACH_BLOCK(block, score))
    for (EACH_INSTRUCTION_SAFE(i, next, block))
      if (place_of(i) >= 0) LLVMInstructionEraseFromParent(i);
  fly_status status = flyi_passes(module, "default<O1>", NULL, error);
  *reads = !status && LLVMGetFirstUse(LLVMGetParam(score, 0)) != NULL;
  LLVMDisposeModule(module);
  return status;
}
