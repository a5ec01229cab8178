/* A stand-in for libcudart that runs three kernels of FlashInfer on the processor: what a kernel
   check calls, and how it calls it, can so be tried where there is no GPU. Device memory is the
   host's. REPROBUILD_FAKE_WRONG in the environment spoils one result. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
typedef struct { dim3 grid, block; size_t shared; void *stream; void *attributes; unsigned count; } launch;
typedef _Float16 half;

static struct { const void *function; const char *name; } known[64];
static int count;
static dim3 last_grid, last_block;

void **__cudaRegisterFatBinary(void *binary) { static void *handle; (void)binary; return &handle; }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t size, int constant, int global) {
  (void)handle; (void)host; (void)device; (void)name; (void)external; (void)size; (void)constant;
  (void)global;
}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, void *t, void *b, void *bd, void *gd, int *warp) {
  (void)handle; (void)device; (void)limit; (void)t; (void)b; (void)bd; (void)gd; (void)warp;
  if (count < 64) { known[count].function = host; known[count++].name = name; }
}
int __cudaGetKernel(const void **kernel, const void *entry) { *kernel = entry; return 0; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  (void)shared; (void)stream; last_grid = grid; last_block = block; return 0;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
  *grid = last_grid; *block = last_block; *shared = 0; *stream = 0; return 0;
}
int cudaGetDeviceCount(int *n) { *n = 1; return 0; }
int cudaGetDevice(int *n) { *n = 0; return 0; }
int cudaSetDevice(int n) { return n != 0; }
int cudaGetLastError(void) { return 0; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device; *value = attribute == 75 ? 9 : 0; return 0;
}
const char *cudaGetErrorString(int error) { return error ? "failed" : "no error"; }
const char *cudaGetErrorName(int error) { return error ? "failed" : "none"; }
int cudaMalloc(void **pointer, size_t size) { return (*pointer = malloc(size)) == 0; }
int cudaFree(void *pointer) { free(pointer); return 0; }
int cudaMemcpy(void *to, const void *from, size_t size, int way) {
  (void)way; memcpy(to, from, size); return 0;
}

static float load(int bf16, const void *data, int64_t at) {
  if (!bf16) return (float)((const half *)data)[at];
  uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16; float value;
  memcpy(&value, &bits, 4); return value;
}
static void store(int bf16, void *data, int64_t at, float value) {
  if (!bf16) { ((half *)data)[at] = (half)value; return; }
  uint32_t bits; memcpy(&bits, &value, 4);
  ((uint16_t *)data)[at] = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static void silu(int bf16, void **args, unsigned rows) {
  void *out = *(void **)args[0]; const void *in = *(void **)args[1]; int d = *(int *)args[2];
  for (int64_t row = 0; row < rows; row++)
    for (int64_t col = 0; col < d; col++) {
      float x = load(bf16, in, row * 2 * d + col), y = load(bf16, in, row * 2 * d + d + col);
      store(bf16, out, row * d + col, x / (1.0f + expf(-x)) * y);
    }
  if (getenv("REPROBUILD_FAKE_WRONG")) store(bf16, out, (int64_t)rows * d - 1, 1000.0f);
}

static float e4m3(uint8_t code) {
  int exponent = (code >> 3) & 15, fraction = code & 7;
  float value = exponent ? ldexpf(1.0f + fraction / 8.0f, exponent - 7) : ldexpf(fraction, -9);
  return code & 128 ? -value : value;
}

static void dequantize(int bf16, void **args) {
  static const float table[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const uint8_t *data = *(void **)args[0], *scales = *(void **)args[1];
  float scale = **(float **)args[2]; void *out = *(void **)args[3];
  int64_t rows = *(int *)args[4], width = *(int *)args[5];
  for (int64_t at = 0; at < rows * width; at++) {
    int code = data[at / 2] >> (at % 2 * 4) & 15;
    float value = code & 8 ? -table[code & 7] : table[code & 7];
    store(bf16, out, at, value * e4m3(scales[at / 16]) * scale);
  }
}

typedef struct {
  const float *logits; const int64_t *ids; const int32_t *table; int32_t *chosen; float *weights;
  uint32_t tokens, topk, experts, shared; float scaling;
} routing;

static void route(const routing *p) {
  for (uint32_t token = 0; token < p->tokens; token++) {
    uint32_t fused = p->topk + p->shared; float sum = 0, weight[32];
    for (uint32_t k = 0; k < p->topk; k++) {
      int32_t expert = p->table[p->ids[token] * p->topk + k];
      float x = p->logits[(int64_t)token * p->experts + expert];
      sum += weight[k] = sqrtf(fmaxf(x, 0) + log1pf(expf(-fabsf(x))));
      p->chosen[token * fused + k] = expert;
    }
    for (uint32_t k = 0; k < fused; k++)
      p->weights[token * fused + k] = k < p->topk ? weight[k] / sum : 1 / p->scaling;
    for (uint32_t k = p->topk; k < fused; k++)
      p->chosen[token * fused + k] = (int32_t)(p->experts + k - p->topk);
  }
}

static int run(const void *function, unsigned blocks, void **args) {
  for (int at = 0; at < count; at++) {
    if (known[at].function != function) continue;
    int bf16 = strstr(known[at].name, "nv_bfloat16") != 0;
    if (strstr(known[at].name, "act_and_mul_kernel")) return silu(bf16, args, blocks), 0;
    if (strstr(known[at].name, "nvfp4_dequant_vectorized")) return dequantize(bf16, args), 0;
    if (strstr(known[at].name, "moe_hash_topk_fused")) return route(args[0]), 0;
  }
  return 98; /* cudaErrorInvalidDeviceFunction */
}
int cudaLaunchKernelExC(const launch *config, const void *function, void **args) {
  return run(function, config->grid.x, args);
}
int __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                       void *stream) {
  (void)block; (void)shared; (void)stream; return run(kernel, grid.x, args);
}
