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

// How the exponents are completed: all of a block by the window's first one, or each weight by its
// own byte of `plane` (this lane's piece) in a block with escapes.
struct PlainWindow {
  static constexpr bool kPatched = false;
  uint32_t base_pair;  // first exponent of the window, at bits 7 and 23
  uint32_t one;        // 1, unknown to the compiler, so that adding stays a multiply-add
};

struct PatchedWindow {
  static constexpr bool kPatched = true;
  const uint8_t* plane;
  uint32_t one;
};

struct RawFormat {
  static constexpr int kBlockBytes = 2048;
  static constexpr bool kEscapes = false;

  // `block` points to this lane's piece. Registers of steps 2 kHalf and
  // 2 kHalf + 1.
  template <int kHalf, class Window>
  static __device__ __forceinline__ void fragments(const uint8_t* block, uint32_t (&a)[8],
                                                   const Window&) {
    const uint4 v = load16(block + 1024 * kHalf);
    const uint4 w = load16(block + 1024 * kHalf + 512);
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
    a[4] = w.x, a[5] = w.y, a[6] = w.z, a[7] = w.w;
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
                                                     uint32_t* r) {
    r[0] = merge(code, sign0);
    r[1] = merge(rotate_right(code, 4), rotate_right(sign0, 8));
    r[2] = merge(rotate_right(code, 8), sign1);
    r[3] = merge(rotate_right(code, 12), rotate_right(sign1, 8));
  }

  // The exponents are added by multiply-adds: they run beside the integer pipe, which the decoding fills.
  template <int kHalf, class Window>
  static __device__ __forceinline__ void fragments(const uint8_t* block, uint32_t (&a)[8],
                                                   const Window& window) {
    const uint2 code = *reinterpret_cast<const uint2*>(block + 8 * kHalf);
    const uint4 sign = load16(block + 512 + 512 * kHalf);
    decode_step(code.x, sign.x, sign.y, a);
    decode_step(code.y, sign.z, sign.w, a + 4);
    uint32_t add[8];
    if constexpr (Window::kPatched) {
      const uint4 low = load16(window.plane + 1024 * kHalf);
      const uint4 high = load16(window.plane + 1024 * kHalf + 512);
      add[0] = low.x, add[1] = low.y, add[2] = low.z, add[3] = low.w;
      add[4] = high.x, add[5] = high.y, add[6] = high.z, add[7] = high.w;
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) add[i] = window.base_pair;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = a[i] * window.one + add[i];
  }
};

}  // namespace specfarm
