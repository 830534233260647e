/* cuda.h: the same calls on NVIDIA GPUs. A part of flymask.h. */
#ifndef FLYMASK_API_CUDA_H
#define FLYMASK_API_CUDA_H

#include <flymask/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 15. NVIDIA GPUs --------------------------------------------------------------------------------------------- */

/* A kernel whose target is a GPU's ("sm_80", or "cuda" for any from sm_80 on) is called as every other:
 * fly_attention_forward and fly_attention_backward, with `cuda` and `stream` of the call set. Tensor data, lse and
 * workspace are then pointers to memory of the device; masks, buffers, maps, geometry, row maps and cu_seqlens stay
 * what they are on the host. A call checks, launches on the stream and returns: results are there when the stream gets
 * there, and tensors must live until then. (Where it first copies to the device, the driver may wait for the stream:
 * see fly_cuda.) A workspace that is not given is taken from the driver's pool in the order of the stream: for backward
 * calls that repeat, keep one. threads and parallel_for concern the block map alone. Row maps and cu_seqlens are
 * checked on the host, in each call row by row; those of a fly_sa once.
 *
 * Few queries over 512 keys or more: where the queries, times the query heads of a key/value head, are 16 or less (64,
 * where the usual way would leave multiprocessors without work), the keys are split into as many parts as fill the
 * device, of 256 keys at least, and the parts merged by LSE: the result also depends on the number of multiprocessors.
 *
 * fly_merge, fly_gated_... and fly_selection_... work on the device likewise, with `cuda` and `stream` of their calls.
 * Projected gates are multiplied in f32 (for at most 2^31 - 1 tokens). Row maps and selections stay on the host:
 * fly_moba_select always waits for the device, for what queries chose there.
 *
 * Weights of the softmax below 2^-126 count as 0 on a GPU, so that a row whose LSE is more than 87 above a sink adds
 * nothing to the sink's gradient.
 *
 * libcuda.so.1 is looked for when a fly_cuda is created, and not before: without it everything else works as ever. */

/* A CUDA context as this library uses it, and what calls have put there. The first call on a context with a kernel
 * loads its code; the first with a map or a captured buffer copies it (and may wait for the stream while it does);
 * later ones find it there. Each copy is freed with the object it is of, or with the last reference to the fly_cuda,
 * whichever comes first, by the driver's cuMemFree, which waits for the device. A call without a map builds one on the
 * host and copies it, its row maps and cu_seqlens each time, and fly_merge its list of partial results: they too may
 * wait for the stream.
 *
 * Objects and fly_cuda may be released in any order and by any thread. The context has to outlive the last reference: a
 * primary context (that of PyTorch and of the CUDA runtime) is retained, so that it does; one made by cuCtxCreate must
 * not be destroyed before. It need not be current where calls are made: each makes it so for its own duration. */
typedef struct fly_cuda fly_cuda;

typedef struct fly_cuda_desc {
  size_t size;
  bool primary; /* the primary context of `device`, made if need be, instead of the one current on the calling thread */
  int device;   /* its ordinal */
} fly_cuda_desc;

/* desc NULL: the context that is current. FLY_ERROR_DEVICE: no driver, no device; FLY_ERROR_ARGUMENT: no such device,
 * or no context is current; FLY_ERROR_UNSUPPORTED: a device below sm_80 or without memory pools, or a driver before
 * CUDA 11.2. Kernels for sm_89 and sm_90 need a driver for CUDA 11.8, those for sm_120 one for 12.8: a call whose
 * kernel the driver does not take says so. */
FLY_API fly_status fly_cuda_create(const fly_cuda_desc *desc, fly_cuda **out, fly_error *error);
FLY_API fly_cuda *fly_cuda_retain(fly_cuda *cuda);
FLY_API void fly_cuda_release(fly_cuda **cuda);

typedef struct fly_cuda_info {
  char name[128];      /* of the device */
  char target[16];     /* "sm_80": what it runs natively; it runs kernels for lower targets too */
  int device;          /* its ordinal */
  int multiprocessors;
  int shared_memory;   /* bytes that a block may use */
  int driver_version;  /* 12040: CUDA 12.4 */
  size_t memory;       /* bytes, of the device */
  size_t resident;     /* bytes that copies of maps and buffers take now */
  int64_t uploads;     /* such copies made so far */
} fly_cuda_info;

FLY_API void fly_cuda_get_info(const fly_cuda *cuda, fly_cuda_info *info);

/* Device memory, for programs that use no other CUDA library: aligned to 256 bytes, not initialised. fly_cuda_free sets
 * the pointer to NULL and waits for the device. */
FLY_API fly_status fly_cuda_alloc(fly_cuda *cuda, size_t bytes, void **out, fly_error *error);
FLY_API void fly_cuda_free(fly_cuda *cuda, void **memory);
/* Copies in the order of the stream. Write: `host` may be used again when it returns; read: the bytes are there. */
FLY_API fly_status fly_cuda_write(fly_cuda *cuda, void *device, const void *host, size_t bytes, void *stream,
                                  fly_error *error);
FLY_API fly_status fly_cuda_read(fly_cuda *cuda, void *host, const void *device, size_t bytes, void *stream,
                                 fly_error *error);
/* Waits for the stream. An error of a kernel that ran there shows here, or at any later call. */
FLY_API fly_status fly_cuda_synchronize(fly_cuda *cuda, void *stream, fly_error *error);

#ifdef __cplusplus
}
#endif
#endif
