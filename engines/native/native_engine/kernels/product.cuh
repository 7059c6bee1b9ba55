// The product of a decoded 16x64 block with the activations of its k block, added to the sums.
// `x` is the shared address of the activations: 8 kTokenTiles rows of 128 bytes, 128-byte swizzle.
#pragma once
#include "async_copy.cuh"

namespace specfarm {

// wgmma reads the activations once for four warps, straight from shared memory; elsewhere every
// warp loads them into registers.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasWarpgroups = true;
#else
constexpr bool kHasWarpgroups = false;
#endif

// Four asynchronous steps and their end in one statement, so that the compiler can touch neither
// the sums nor the fragments while they are in use. a0 .. a15 and x are operand numbers.
#define SPECFARM_STEP(n, sums, a, b, c, d, x)                                        \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" sums "}, {%" #a ", %" \
  #b ", %" #c ", %" #d "}, " x ", 1, 1, 1, 0;\n"
#define SPECFARM_BLOCK(n, sums, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, \
                       a15, x)                                                                   \
  "{\n.reg .b64 x1, x2, x3;\n"                                                                   \
  "add.s64 x1, %" #x ", 2;\nadd.s64 x2, %" #x ", 4;\nadd.s64 x3, %" #x ", 6;\n"                  \
  "wgmma.fence.sync.aligned;\n" SPECFARM_STEP(n, sums, a0, a1, a2, a3, "%" #x)                   \
      SPECFARM_STEP(n, sums, a4, a5, a6, a7, "x1") SPECFARM_STEP(n, sums, a8, a9, a10, a11, "x2") \
          SPECFARM_STEP(n, sums, a12, a13, a14, a15, "x3")                                       \
  "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}\n"

#define SPECFARM_SUMS1 "%0, %1, %2, %3"
#define SPECFARM_SUMS2 SPECFARM_SUMS1 ", %4, %5, %6, %7"
#define SPECFARM_SUMS3 SPECFARM_SUMS2 ", %8, %9, %10, %11"
#define SPECFARM_SUMS4 SPECFARM_SUMS3 ", %12, %13, %14, %15"
#define SPECFARM_SUMS6 SPECFARM_SUMS4 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define SPECFARM_SUMS8 SPECFARM_SUMS6 ", %24, %25, %26, %27, %28, %29, %30, %31"

#define SPECFARM_OUT(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SPECFARM_OUT1 SPECFARM_OUT(0)
#define SPECFARM_OUT2 SPECFARM_OUT1, SPECFARM_OUT(1)
#define SPECFARM_OUT3 SPECFARM_OUT2, SPECFARM_OUT(2)
#define SPECFARM_OUT4 SPECFARM_OUT3, SPECFARM_OUT(3)
#define SPECFARM_OUT6 SPECFARM_OUT4, SPECFARM_OUT(4), SPECFARM_OUT(5)
#define SPECFARM_OUT8 SPECFARM_OUT6, SPECFARM_OUT(6), SPECFARM_OUT(7)
#define SPECFARM_IN                                                                               \
  "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]),         \
      "r"(a[8]), "r"(a[9]), "r"(a[10]), "r"(a[11]), "r"(a[12]), "r"(a[13]), "r"(a[14]), "r"(a[15]), \
      "l"(x)

#define SPECFARM_WARPGROUP_PRODUCT(tiles, n, ...)                                               \
  __device__ __forceinline__ void warpgroup_product(float (&c)[tiles][4],                       \
                                                    const uint32_t (&a)[16], uint64_t x) {      \
    asm volatile(SPECFARM_BLOCK(n, SPECFARM_SUMS##tiles, __VA_ARGS__)                           \
                 : SPECFARM_OUT##tiles                                                          \
                 : SPECFARM_IN                                                                  \
                 : "memory");                                                                   \
  }

SPECFARM_WARPGROUP_PRODUCT(1, 8, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
SPECFARM_WARPGROUP_PRODUCT(2, 16, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
SPECFARM_WARPGROUP_PRODUCT(3, 24, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                           28)
SPECFARM_WARPGROUP_PRODUCT(4, 32, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                           32)
SPECFARM_WARPGROUP_PRODUCT(6, 48, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39,
                           40)
SPECFARM_WARPGROUP_PRODUCT(8, 64, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                           48)

// Descriptor of the activations for wgmma: groups of 8 rows 1024 bytes apart, 128-byte swizzle.
__device__ __forceinline__ uint64_t activations_descriptor(uint32_t x) {
  return 1ull << 62 | 64ull << 32 | 1ull << 16 | x >> 4;
}

__device__ __forceinline__ void warp_mma(float (&c)[4], const uint32_t* a, uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 matrices: 8 tokens x 32 columns as the B fragments of two k16 steps.
__device__ __forceinline__ uint4 load_matrices(uint32_t at) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

template <int kTokenTiles, bool kGrouped>
struct Product {
  static constexpr bool kWarpgroup = kHasWarpgroups && kGrouped;
  static constexpr bool kTracksLoads = !kWarpgroup && kTokenTiles <= 2;

  uint32_t lane_offset;  // of this lane's row of the activations' first half

  __device__ __forceinline__ explicit Product(int lane)
      : lane_offset(pinned((lane & 7) * 128 + ((lane >> 3) ^ (lane & 7)) * 16)) {}

  // Where `kTracksLoads`: returns a value that depends on every load behind the operands.
  __device__ __forceinline__ uint32_t add(float (&c)[kTokenTiles][4], const uint32_t (&a)[16],
                                          uint32_t x) const {
    uint32_t loaded = kTracksLoads ? a[0] ^ a[4] ^ a[8] ^ a[12] : 0;
    if constexpr (kWarpgroup) {
      warpgroup_product(c, a, activations_descriptor(x));
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t at = x + (lane_offset ^ (64 * half));
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          const uint4 b = load_matrices(at + 1024 * n);
          warp_mma(c[n], a + 8 * half, b.x, b.y);
          warp_mma(c[n], a + 8 * half + 4, b.z, b.w);
          if constexpr (kTracksLoads) loaded ^= b.x;
        }
      }
    }
    return loaded;
  }
};

}  // namespace specfarm
