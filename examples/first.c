/* first.c: a mask from its source to attention. Prints how the keys that a query sees share its attention. */
#include <flymask/flymask.h>
#include <stdio.h>

enum { QUERIES = 6, DIM = 4 };

/* A query sees itself and the `left` keys before it. */
static const char source[] = "#include <flymask/mask.h>\n"
                             "FLY_PARAM(int, left, 1);\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  return kv <= q && q - kv <= left;\n"
                             "}\n";

int main(void) {
  fly_mask *mask = NULL;
  fly_bound *bound = NULL;
  fly_kernel *kernel = NULL;
  fly_error error = {.status = FLY_OK};
  float q[QUERIES * DIM], k[QUERIES * DIM], v[QUERIES * QUERIES], out[QUERIES * QUERIES];
  for (int i = 0; i < QUERIES * DIM; i++) q[i] = k[i] = 0.1f * (float)(i % 7);
  for (int i = 0; i < QUERIES * QUERIES; i++) v[i] = i / QUERIES == i % QUERIES; /* out: the weights themselves */

  fly_arg left = FLY_INT("left", 2);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = DIM, .value_dim = QUERIES};
  if (fly_mask_compile(source, "window.c", NULL, &mask, &error) || fly_mask_bind(mask, &left, 1, &bound, &error) ||
      fly_kernel_create(mask, &desc, &kernel, &error))
    goto done;

  fly_attention call = {FLY_INIT(fly_attention),
                        .kernel = kernel,
                        .bound = bound,
                        .q = fly_tensor_dense(q, FLY_F32, 1, 1, QUERIES, DIM),
                        .k = fly_tensor_dense(k, FLY_F32, 1, 1, QUERIES, DIM),
                        .v = fly_tensor_dense(v, FLY_F32, 1, 1, QUERIES, QUERIES),
                        .out = fly_tensor_dense(out, FLY_F32, 1, 1, QUERIES, QUERIES)};
  if (fly_attention_forward(&call, &error)) goto done;
  for (int i = 0; i < QUERIES; i++)
    for (int j = 0; j < QUERIES; j++) printf("%.2f%c", out[i * QUERIES + j], j < QUERIES - 1 ? ' ' : '\n');
done:
  if (error.status) fprintf(stderr, "%s:%d:%d: %s\n", error.file, error.line, error.column, error.message);
  fly_kernel_release(&kernel);
  fly_bound_release(&bound);
  fly_mask_release(&mask);
  return error.status != FLY_OK;
}
