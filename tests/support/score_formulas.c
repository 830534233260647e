/* score_formulas.c: the score modifiers of scores/ from their papers. */
#include "score_formulas.h"

enum { BATCH = FORMULA_BATCH, HEADS = FORMULA_HEADS, QUERIES = FORMULA_QUERIES, KEYS = FORMULA_KEYS };
enum { DISTANCES = 101, DIM = 6, CHANNELS = 32 };

/* What the formulas read: the same data as the buffers. */
static float table[HEADS * DISTANCES], slopes[HEADS], reversed[HEADS], waves[DISTANCES];
static float q_rope[BATCH * HEADS * QUERIES * DIM], k_rope[BATCH * KEYS * DIM];
static int16_t hops[QUERIES * KEYS];

static void make_data(void) {
  test_random random = {3};
  for (int i = 0; i < HEADS * DISTANCES; i++) table[i] = (float)test_normal(&random);
  for (int h = 0; h < HEADS; h++) slopes[h] = reversed[HEADS - 1 - h] = 0.25f + 0.5f * (float)h;
  for (size_t i = 0; i < sizeof q_rope / sizeof *q_rope; i++) q_rope[i] = (float)test_normal(&random);
  for (size_t i = 0; i < sizeof k_rope / sizeof *k_rope; i++) k_rope[i] = (float)test_normal(&random);
  for (int m = 0; m < DISTANCES; m++) {
    double sum = 0;
    for (int i = 1; i <= CHANNELS / 2; i++) sum += cos(m / pow(10000, 2.0 * i / CHANNELS));
    waves[m] = (float)sum;
  }
  for (int i = 0; i < QUERIES * KEYS; i++) hops[i] = (int16_t)(test_next(&random) >> 40 & 127) - 10;
}

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

/* Slopes by recurrence: the first is 2^(-8 / heads), each further one that times the one before. */
static double alibi(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  double ratio = pow(2, -8.0 / HEADS), m = ratio;
  for (int i = 0; i < h; i++) m *= ratio;
  *slope = 1;
  return s - m * (q > kv ? q - kv : kv - q);
}

static double alibi_slopes(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  *slope = 1;
  return q > kv ? s + slopes[h] * (kv - q) : s + slopes[h] * (q - kv);
}

/* tanh by exponentials; 1 / cosh^2 is its derivative. */
static double softcap(double s, int b, int h, int q, int kv, double *slope) {
  (void)b, (void)h, (void)q, (void)kv;
  double x = s / 5, up = exp(x), down = exp(-x);
  *slope = 4 / ((up + down) * (up + down));
  return 5 * (up - down) / (up + down);
}

static double relative_bias(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  int distance = kv - q, most = (DISTANCES - 1) / 2;
  if (distance > most) distance = most;
  if (distance < -most) distance = -most;
  *slope = 1;
  return s + table[h * DISTANCES + most + distance];
}

/* The buckets by thresholds: bucket 8 + i of 16 begins where distance / 8 reaches 16^(i / 8). */
static int bucket_of(int distance, int buckets, double max_distance) {
  int exact = buckets / 2, bucket = exact;
  if (distance < exact) return distance;
  while (bucket < buckets - 1 &&
         distance >= exact * pow(max_distance / exact, (double)(bucket + 1 - exact) / (buckets - exact)) - 1e-9)
    bucket++;
  return bucket;
}

static double t5_both(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  int bucket = kv > q ? 16 + bucket_of(kv - q, 16, 128) : bucket_of(q - kv, 16, 128);
  *slope = 1;
  return s + table[bucket * HEADS + h];
}

static double t5_causal(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  *slope = 1;
  return s + table[bucket_of(kv > q ? 0 : q - kv, 32, 128) * HEADS + h];
}

/* What f32 costs: waves[m], of 16 cosines, is off by half an ulp of at most 16, 2^-21; waves[m] - waves[0], at most 32,
 * rounds by 2^-20 and is divided, as that is, by 2 or more; the quotient, at most 16, rounds by 2^-21. The last sum
 * rounds by 2^-24 of itself, which is less than this times its size. */
#define SANDWICH_ERROR ((0x1p-21 + 0x1p-20) / 2 + 0x1p-21)

/* The position embeddings of q and kv, multiplied: sines with sines, cosines with cosines; then less what they are at
 * distance 0, and compressed by 8 / HEADS, 16 / HEADS, ... */
static double sandwich(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  if (kv < q - (DISTANCES - 1)) kv = q - (DISTANCES - 1);
  if (kv > q + (DISTANCES - 1)) kv = q + (DISTANCES - 1);
  double product = 0, length = 0;
  for (int c = 1; c <= CHANNELS / 2; c++) {
    double wave = exp(-log(10000) * c / (CHANNELS / 2)), q_sin = sin(q * wave), q_cos = cos(q * wave);
    product += q_sin * sin(kv * wave) + q_cos * cos(kv * wave);
    length += q_sin * q_sin + q_cos * q_cos;
  }
  *slope = 1;
  return s + (product - length) * HEADS / (8 * h + 8);
}

static double kerple(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  *slope = 1;
  return s - slopes[h] * log(1 + slopes[HEADS - 1 - h] * fabs((double)q - kv));
}

static double graph_distance(double s, int b, int h, int q, int kv, double *slope) {
  (void)b;
  unsigned far = (unsigned)(int)hops[q * KEYS + kv]; /* below 0: very far */
  *slope = 1;
  return s + table[h * DISTANCES + (far < DISTANCES ? far : DISTANCES - 1)];
}

static double rope_scores(double s, int b, int h, int q, int kv, double *slope) {
  double sum = 0;
  for (int i = DIM; i-- > 0;)
    sum += (double)q_rope[((b * HEADS + h) * QUERIES + q - FORMULA_OFFSET) * DIM + i] *
           k_rope[(b * KEYS + kv) * DIM + i];
  *slope = 1;
  return s + 0.5 * sum;
}

static double temperature(double s, int b, int h, int q, int kv, double *slope) {
  (void)b, (void)h, (void)kv;
  *slope = q + 1 > 100 ? log1p(q) / log(100) : 1;
  return s * *slope;
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

typedef struct captured {
  const char *name;
  fly_type type;
  int rank;
  int64_t shape[4];
  const void *data;
} captured;

/* As FLY_INT and FLY_REAL, which are no constant expressions. */
#define INT(NAME, VALUE) {.name = (NAME), .kind = FLY_ARG_INTEGER, .integer = (VALUE)}
#define REAL(NAME, VALUE) {.name = (NAME), .kind = FLY_ARG_REAL, .real = (VALUE)}

static const struct {
  const char *name;
  score_formula *formula;
  fly_arg values[3]; /* parameters */
  int value_count;
  captured buffers[2];
  double tolerance;
} library[] = {
    {"alibi", alibi, {INT("heads", HEADS)}, 1, {{0}}, 4e-5},
    {"alibi_slopes", alibi_slopes, {{0}}, 0, {{"slopes", FLY_F32, 1, {HEADS}, slopes}}, 4e-5},
    {"softcap", softcap, {REAL("cap", 5)}, 1, {{0}}, 2e-6},
    {"relative_bias", relative_bias, {{0}}, 0, {{"bias", FLY_F32, 2, {HEADS, DISTANCES}, table}}, 1e-6},
    {"t5_bias", t5_both, {{0}}, 0, {{"bias", FLY_F32, 2, {32, HEADS}, table}}, 1e-6},
    {"t5_bias", t5_causal, {INT("bidirectional", 0)}, 1, {{"bias", FLY_F32, 2, {32, HEADS}, table}}, 1e-6},
    {"sandwich", sandwich, {INT("heads", HEADS)}, 1, {{"waves", FLY_F32, 1, {DISTANCES}, waves}}, SANDWICH_ERROR},
    {"kerple", kerple, {{0}}, 0, {{"r1", FLY_F32, 1, {HEADS}, slopes}, {"r2", FLY_F32, 1, {HEADS}, reversed}}, 1e-5},
    {"graph_distance",
     graph_distance,
     {{0}},
     0,
     {{"hops", FLY_I16, 2, {QUERIES, KEYS}, hops}, {"bias", FLY_F32, 2, {HEADS, DISTANCES}, table}},
     1e-6},
    {"rope_scores",
     rope_scores,
     {REAL("scale", 0.5), INT("q_offset", FORMULA_OFFSET)},
     2,
     {{"q_rope", FLY_F32, 4, {BATCH, HEADS, QUERIES, DIM}, q_rope}, {"k_rope", FLY_F32, 3, {BATCH, KEYS, DIM}, k_rope}},
     1e-5},
    {"temperature", temperature, {INT("train", 100)}, 1, {{0}}, 2e-6},
};
enum { LIBRARY = sizeof library / sizeof *library };

const char *score_library_name(int index) { return index < LIBRARY ? library[index].name : NULL; }

void score_library_open(score_library *out, int index) {
  fly_error error;
  make_data();
  int count = library[index].value_count;
  *out = (score_library){
      .name = library[index].name, .formula = library[index].formula, .tolerance = library[index].tolerance};
  memcpy(out->values, library[index].values, (size_t)count * sizeof *out->values);
  for (int k = 0; k < 2 && library[index].buffers[k].name; k++) {
    const captured *x = &library[index].buffers[k];
    ck_fly_ok(fly_buffer_create(x->type, x->rank, x->shape, x->data, &out->buffers[k], &error), error);
    out->values[count++] = FLY_CAPTURE(x->name, out->buffers[k]);
  }
  out->value_count = count;
}

void score_library_close(score_library *entry) {
  fly_buffer_release(&entry->buffers[0]), fly_buffer_release(&entry->buffers[1]);
}
