// How a warp turns a stored 16x64 block into mma A fragments: plain BF16, or W12 decoded in
// registers. Both give the same 16 registers a lane, so that the products agree bit for bit.
#pragma once
#include "skinny_params.cuh"

namespace specfarm {

__device__ __forceinline__ uint4 load16(const uint8_t* p) {
  return *reinterpret_cast<const uint4*>(p);
}

__device__ __forceinline__ uint32_t rotate_right(uint32_t v, int by) {
  return __funnelshift_r(v, v, by);
}

struct RawFormat {
  static constexpr int kBlockBytes = 2048;
  static constexpr bool kEscapes = false;

  // Returns a word that depends on every load, so that the slot is released after them.
  static __device__ __forceinline__ uint32_t fragments(const uint8_t* block, int lane,
                                                       uint32_t (&a)[16], uint32_t, uint32_t,
                                                       const uint8_t*, bool) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const uint4 v = load16(block + 512 * t + 16 * lane);
      a[4 * t] = v.x, a[4 * t + 1] = v.y, a[4 * t + 2] = v.z, a[4 * t + 3] = v.w;
    }
    return a[0] ^ a[4] ^ a[8] ^ a[12];
  }
};

struct W12Format {
  static constexpr int kBlockBytes = 1536;
  static constexpr bool kEscapes = true;

  // One register: code bits where the mask is clear, sign and mantissa where it is set.
  static __device__ __forceinline__ uint32_t merge(uint32_t code, uint32_t sign) {
    const uint32_t mixed = (sign & 0x807F807Fu) | (code & ~0x807F807Fu);
    return mixed & 0x87FF87FFu;
  }

  static __device__ __forceinline__ void decode_step(uint32_t code, uint32_t sign0, uint32_t sign1,
                                                     uint32_t (&r)[4]) {
    r[0] = merge(code, sign0);
    r[1] = merge(rotate_right(code, 4), rotate_right(sign0, 8));
    r[2] = merge(rotate_right(code, 8), sign1);
    r[3] = merge(rotate_right(code, 12), rotate_right(sign1, 8));
  }

  // Adds the exponent of two weights: bytes `selector` of `plane`, times 128. The multiply-add
  // runs beside the integer pipe, which the decoding fills.
  static __device__ __forceinline__ uint32_t add_exponents(uint32_t r, uint32_t plane,
                                                           uint32_t selector) {
    return __byte_perm(plane, 0, selector) * 128u + r;
  }

  static __device__ __forceinline__ uint32_t fragments(const uint8_t* block, int lane,
                                                       uint32_t (&a)[16], uint32_t base_pair,
                                                       uint32_t one, const uint8_t* scratch,
                                                       bool patched) {
    const uint4 code = load16(block + 16 * lane);
    const uint4 low = load16(block + 512 + 16 * lane);
    const uint4 high = load16(block + 1024 + 16 * lane);
    const uint32_t codes[4] = {code.x, code.y, code.z, code.w};
    const uint32_t signs[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      uint32_t r[4];
      decode_step(codes[t], signs[2 * t], signs[2 * t + 1], r);
#pragma unroll
      for (int i = 0; i < 4; ++i) a[4 * t + i] = r[i];
    }
    if (!patched) {
#pragma unroll
      for (int i = 0; i < 16; ++i) a[i] = a[i] * one + base_pair;
    } else {
      const uint4 first = load16(scratch + 16 * lane);
      const uint4 second = load16(scratch + 512 + 16 * lane);
      const uint32_t planes[8] = {first.x,  first.y,  first.z,  first.w,
                                  second.x, second.y, second.z, second.w};
#pragma unroll
      for (int i = 0; i < 16; ++i)
        a[i] = add_exponents(a[i], planes[i / 2], i % 2 ? 0x4342u : 0x4140u);
    }
    return code.x ^ low.x ^ high.x;
  }
};

}  // namespace specfarm
