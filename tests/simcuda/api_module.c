/* api_module.c: modules, functions, launches, occupancy. A module's text is parsed when it is loaded, its kernels are
 * decoded then as well; an instruction that is not known is the launch's error, by line. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "state.h"

/* --- ptxas --------------------------------------------------------------------------------------- */
/* Where it is asked for, the real assembler must accept the text too. */
static CUresult assemble(const char *text) {
  char path[] = "/tmp/simcuda-XXXXXX", arch[32], *end;
  int file = mkstemp(path), status = 1;
  size_t length = strlen(text);
  if (file < 0) return bad(CUDA_ERROR_UNKNOWN, "no temporary file for ptxas");
  bool written = write(file, text, length) == (ssize_t)length;
  close(file);
  const char *target = strstr(text, ".target");
  snprintf(arch, sizeof arch, "-arch=%.20s", target ? target + 8 : "sm_80");
  end = arch + 6;
  while (*end == '_' || (*end >= '0' && *end <= '9') || (*end >= 'a' && *end <= 'z')) end++;
  *end = 0;
  pid_t child = written ? fork() : -1;
  if (child == 0) {
    execlp(sim.ptxas, sim.ptxas, arch, path, "-o", "/dev/null", (char *)NULL);
    _exit(127);
  }
  if (child > 0) waitpid(child, &status, 0);
  unlink(path);
  if (child > 0 && WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 127)) return CUDA_SUCCESS;
  return bad(CUDA_ERROR_INVALID_PTX, "ptxas %s rejects the module", arch);
}

/* --- modules ------------------------------------------------------------------------------------- */
bool module_valid(CUmodule module) {
  for (CUmodule m = sim.modules; m; m = m->next)
    if (m == module) return m->alive;
  return false;
}

CUresult module_destroy(CUmodule module) {
  for (CUfunction f = module->functions, next; f; f = next) {
    next = f->next;
    program_release(f->p);
    free(f);
  }
  for (uint32_t k = 0; k < module->m.global_count; k++)
    memory_destroy(module->m.globals[k]->base, module->m.globals[k]->kind);
  free(module->m.globals);
  ptx_release(module->m.ptx);
  module->m = (sim_module){0};
  module->functions = NULL;
  module->alive = false;
  return CUDA_SUCCESS;
}

static CUresult place_variables(CUmodule module) {
  ptx_module *ptx = module->m.ptx;
  uint32_t count = 0;
  for (ptx_var *v = ptx->vars; v; v = v->next) count++;
  module->m.globals = calloc(count + 1, sizeof *module->m.globals);
  if (!module->m.globals) return CUDA_ERROR_OUT_OF_MEMORY;
  for (ptx_var *v = ptx->vars; v; v = v->next) {
    if ((v->space != S_GLOBAL && v->space != S_CONST) || v->is_extern) continue;
    allocation *a = memory_create(v->bytes, v->space == S_CONST ? MEMORY_CONST : MEMORY_VARIABLE, module->context);
    if (!a) return CUDA_ERROR_OUT_OF_MEMORY;
    module->m.globals[module->m.global_count++] = a;
    memset(a->host, 0, v->bytes); /* as the ISA says of variables without a value */
    if (v->data) memcpy(a->host, v->data, v->bytes);
    v->address = a->base;
  }
  return CUDA_SUCCESS;
}

static CUresult decode_kernels(CUmodule module) {
  for (ptx_function *f = module->m.ptx->functions; f; f = f->next) {
    if (!f->is_entry) continue;
    CUfunction made = calloc(1, sizeof *made);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    made->module = module;
    made->next = module->functions;
    module->functions = made;
    made->p = program_create(&module->m, f);
    if (!made->p) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

static CUresult load(CUmodule module, const char *text) {
  char message[300];
  if (strncmp(text,
              "\x7f"
              "ELF",
              4) == 0)
    return bad(CUDA_ERROR_NO_BINARY_FOR_GPU, "a binary image: only PTX text can be run here");
  module->m.ptx = ptx_parse(text, message, sizeof message);
  if (!module->m.ptx) return bad(CUDA_ERROR_INVALID_PTX, "%s", message);
  const ptx_module *ptx = module->m.ptx;
  if (ptx->version > 90)
    return bad(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX version %d.%d is newer than 9.0", ptx->version / 10,
               ptx->version % 10);
  if (ptx->target > sim.config.arch || (ptx->target_specific && ptx->target != sim.config.arch))
    return bad(CUDA_ERROR_NO_BINARY_FOR_GPU, "PTX for sm_%d%s on a device of sm_%d", ptx->target,
               ptx->target_specific ? "a" : "", sim.config.arch);
  CUresult result = sim.ptxas ? assemble(text) : CUDA_SUCCESS;
  if (!result) result = place_variables(module);
  if (!result) result = decode_kernels(module);
  return result;
}

/* Text that begins in the log buffer of cuModuleLoadDataEx. */
static void write_log(unsigned count, const int *options, void **values) {
  enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 };
  char *log = NULL;
  size_t room = 0;
  for (unsigned k = 0; k < count; k++) {
    if (options[k] == ERROR_LOG) log = values[k];
    if (options[k] == ERROR_LOG_SIZE) room = (size_t)(uintptr_t)values[k];
  }
  if (log && room) snprintf(log, room, "%s", sim.report);
}

API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, int *options, void **values) {
  ENTER(NEED_CONTEXT);
  if (!out || !image) LEAVE(CUDA_ERROR_INVALID_VALUE);
  CUmodule module = calloc(1, sizeof *module);
  if (!module) LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
  *module = (struct CUmod_st){.alive = true, .context = current_context()};
  CUresult result = load(module, image);
  if (result) {
    if (options && values) write_log(count, options, values);
    module_destroy(module);
    free(module);
    *out = NULL;
    LEAVE(result);
  }
  module->next = sim.modules;
  sim.modules = *out = module;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuModuleLoadData(CUmodule *out, const void *image) {
  return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}
API CUresult cuModuleUnload(CUmodule module) {
  ENTER(NEED_CONTEXT);
  if (!module_valid(module)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the module does not exist (any more)"));
  CUresult result = drain_all();
  module_destroy(module);
  LEAVE(result);
}
API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  ENTER(NEED_CONTEXT);
  if (!out || !name) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *out = NULL;
  if (!module_valid(module)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the module does not exist (any more)"));
  for (CUfunction f = module->functions; f; f = f->next)
    if (!strcmp(f->p->entry->name, name)) *out = f;
  LEAVE(*out ? CUDA_SUCCESS : bad(CUDA_ERROR_NOT_FOUND, "no kernel %s in the module", name));
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name) {
  ENTER(NEED_CONTEXT);
  if (!name) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!module_valid(module)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the module does not exist (any more)"));
  ptx_var *v = ptx_find_var(module->m.ptx, name);
  if (!v || (v->space != S_GLOBAL && v->space != S_CONST) || v->is_extern) LEAVE(CUDA_ERROR_NOT_FOUND);
  if (pointer) *pointer = v->address;
  if (bytes) *bytes = v->bytes;
  LEAVE(CUDA_SUCCESS);
}

/* --- functions ----------------------------------------------------------------------------------- */
bool function_valid(CUfunction function) {
  for (CUmodule m = sim.modules; m; m = m->next)
    for (CUfunction f = m->functions; f; f = f->next)
      if (f == function) return m->alive;
  return false;
}

/* What is alive at once in the order of the text; the assembler spills what is beyond 255. */
static uint32_t registers_of(const program *p) {
  return p->registers < 16 ? 16 : p->registers > 255 ? 255 : p->registers;
}
static uint32_t most_threads(const program *p) {
  const uint32_t *r = p->entry->required_threads;
  uint32_t most = p->entry->max_threads ? p->entry->max_threads : r[0] ? r[0] * r[1] * r[2] : 1024;
  return most;
}

API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  ENTER(NEED_CONTEXT);
  if (!value) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!function_valid(function)) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  const program *p = function->p;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = (int)most_threads(p);
    break;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    *value = (int)p->shared_static;
    break;
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    *value = (int)p->local_bytes;
    break;
  case CU_FUNC_ATTRIBUTE_NUM_REGS:
    *value = (int)registers_of(p);
    break;
  case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    *value = function->module->m.ptx->target;
    break;
  case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
    *value = sim.config.arch;
    break;
  case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    *value = (int)(p->max_dynamic ? p->max_dynamic : (48u << 10) - p->shared_static);
    break;
  default:
    *value = 0;
    break;
  }
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  ENTER(NEED_CONTEXT);
  if (!function_valid(function)) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) LEAVE(CUDA_SUCCESS);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if ((uint64_t)value + function->p->shared_static > sim.config.shared_block)
    LEAVE(bad(CUDA_ERROR_INVALID_VALUE, "%d + %u bytes of shared memory: the device has %u a block", value,
              function->p->shared_static, sim.config.shared_block));
  function->p->max_dynamic = (uint32_t)value;
  LEAVE(CUDA_SUCCESS);
}
API CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
  ENTER(NEED_CONTEXT);
  (void)config;
  LEAVE(function_valid(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                         size_t dynamic) {
  ENTER(NEED_CONTEXT);
  if (!blocks || threads <= 0) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (!function_valid(function)) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  const program *p = function->p;
  uint32_t warps = ((uint32_t)threads + 31) / 32, small = sim.config.arch == 86 || sim.config.arch == 89;
  uint64_t shared = ((p->shared_static + dynamic + 127) & ~UINT64_C(127)) + 1024,
           whole = sim.config.shared_block + 1024u;
  uint64_t n = (small ? 1536u : 2048u) / 32 / warps, regs = ((registers_of(p) * 32 + 255) & ~255u) * warps;
  if (whole / shared < n) n = whole / shared;
  if (65536 / regs < n) n = 65536 / regs;
  if (n > (small ? 16 : 32)) n = small ? 16 : 32;
  *blocks = (uint32_t)threads > most_threads(p) ? 0 : (int)n;
  LEAVE(CUDA_SUCCESS);
}

/* --- launches ------------------------------------------------------------------------------------ */
static CUresult check_shape(const program *p, const uint32_t grid[3], const uint32_t block[3], uint32_t dynamic) {
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  const uint32_t *exact = p->entry->required_threads;
  if (p->error[0]) return bad(CUDA_ERROR_INVALID_PTX, "kernel %s: %s", p->entry->name, p->error);
  if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024 || block[2] > 64 || grid[0] > INT32_MAX ||
      grid[1] > 65535 || grid[2] > 65535)
    return bad(CUDA_ERROR_INVALID_VALUE, "kernel %s: grid (%u,%u,%u), block (%u,%u,%u)", p->entry->name, grid[0],
               grid[1], grid[2], block[0], block[1], block[2]);
  if (threads > most_threads(p) || (exact[0] && memcmp(exact, block, 3 * sizeof *exact) != 0))
    return bad(CUDA_ERROR_INVALID_VALUE, "kernel %s: %llu threads, it was compiled for %u", p->entry->name,
               (unsigned long long)threads, most_threads(p));
  uint32_t limit = p->max_dynamic ? p->max_dynamic : p->shared_static < 48u << 10 ? (48u << 10) - p->shared_static : 0;
  if (dynamic > limit || (uint64_t)dynamic + p->shared_static > sim.config.shared_block)
    return bad(CUDA_ERROR_INVALID_VALUE, "kernel %s: %u bytes of dynamic shared memory, %u are allowed", p->entry->name,
               dynamic, limit);
  if (((registers_of(p) + 7) & ~7u) * threads > 65536)
    return bad(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "kernel %s: about %u registers a thread, %llu threads",
               p->entry->name, registers_of(p), (unsigned long long)threads);
  return CUDA_SUCCESS;
}

static CUresult copy_params(const program *p, uint8_t *to, void **params, void **extra) {
  if (params) {
    uint32_t k = 0;
    for (const ptx_var *v = p->entry->params; v; v = v->next, k++) {
      if (!params[k]) return CUDA_ERROR_INVALID_VALUE;
      memcpy(to + v->address, params[k], v->bytes);
    }
    return CUDA_SUCCESS;
  }
  if (!extra)
    return p->param_bytes ? bad(CUDA_ERROR_INVALID_VALUE, "kernel %s: parameters are missing", p->entry->name)
                          : CUDA_SUCCESS;
  const void *buffer = NULL;
  size_t bytes = 0;
  for (; *extra; extra += 2) {
    if ((uintptr_t)extra[0] == 1)
      buffer = extra[1];
    else if ((uintptr_t)extra[0] == 2)
      bytes = *(const size_t *)extra[1];
    else
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (!buffer || bytes < p->param_bytes)
    return bad(CUDA_ERROR_INVALID_VALUE, "kernel %s: %zu bytes of parameters, %u are wanted", p->entry->name, bytes,
               p->param_bytes);
  memcpy(to, buffer, p->param_bytes);
  return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned dynamic, CUstream handle, void **params, void **extra) {
  ENTER(NEED_CONTEXT);
  CUstream s = NULL;
  uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  if (!function_valid(function)) LEAVE(bad(CUDA_ERROR_INVALID_HANDLE, "the function does not exist (any more)"));
  CUresult result = stream_find(handle, &s);
  if (!result && function->module->context != current_context())
    result = bad(CUDA_ERROR_INVALID_HANDLE, "the function belongs to another context");
  if (!result) result = check_shape(function->p, grid, block, dynamic);
  operation *op = result ? NULL : operation_create(OP_LAUNCH);
  if (!op) LEAVE(result ? result : CUDA_ERROR_OUT_OF_MEMORY);
  launch *run = op->run = calloc(1, sizeof *run);
  if (run) run->params = calloc(1, function->p->param_bytes + 16u);
  if (!run || !run->params) {
    operation_destroy(op);
    LEAVE(CUDA_ERROR_OUT_OF_MEMORY);
  }
  run->p = function->p;
  run->kernel = function->p->entry->name;
  memcpy(run->grid, grid, sizeof grid);
  memcpy(run->block, block, sizeof block);
  run->dynamic = dynamic;
  run->total_shared = function->p->shared_static + dynamic;
  run->config = sim.config;
  result = copy_params(function->p, run->params, params, extra);
  if (result) {
    operation_destroy(op);
    LEAVE(result);
  }
  LEAVE(stream_submit(s, op));
}
