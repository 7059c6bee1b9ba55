// How a warp turns a stored 16x64 block into the A fragments of its four k16 steps: plain BF16, or
// W12 decoded in registers. Both give the same 16 registers a lane, so that the products agree bit
// for bit. Register 4 t + h + 2 p of lane 4 g + q: row g + 8 h, columns 16 t + 8 p + 2 q, + 1.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"

namespace specfarm {

__device__ __forceinline__ uint32_t rotate_right(uint32_t v, int by) {
  return __funnelshift_r(v, v, by);
}

// Bits of `set` where the mask is set, of `clear` elsewhere: one instruction, which the compiler
// would make two of.
template <uint32_t kMask>
__device__ __forceinline__ uint32_t select_bits(uint32_t set, uint32_t clear) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(out) : "n"(kMask), "r"(set), "r"(clear));
  return out;
}

// What completes the exponents.
struct Window {
  uint32_t base_pair;  // first exponent of the window, at bits 7 and 23
  uint32_t one;        // 1, unknown to the compiler, so that adding stays a multiply-add: it runs
                       // beside the integer pipe, which the decoding fills
};

// Both formats work in two steps: `load` does what a block needs in any case, `finish` what depends
// on its escapes. Addresses are this lane's 16 bytes of a block, or of a plane, in shared memory.
struct RawFormat {
  static constexpr int kBlockBytes = 2048;
  static constexpr bool kEscapes = false;

  static __device__ __forceinline__ void load(uint32_t block, uint32_t (&a)[16]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const uint4 v = shared_at<uint4>(block + 512 * t);
      a[4 * t] = v.x, a[4 * t + 1] = v.y, a[4 * t + 2] = v.z, a[4 * t + 3] = v.w;
    }
  }

  template <bool kPatched>
  static __device__ __forceinline__ void finish(uint32_t, const Window&, uint32_t (&)[16]) {}
};

struct W12Format {
  static constexpr int kBlockBytes = 1536;
  static constexpr bool kEscapes = true;
  static constexpr uint32_t kHigh = 0x78007800u;  // the exponent bits that only escapes use

  // One register, its escape bits still to be cleared or filled in: code bits where the mask is
  // clear, sign and mantissa where it is set.
  static __device__ __forceinline__ uint32_t merge(uint32_t code, uint32_t sign) {
    return select_bits<0x807F807Fu>(sign, code);
  }

  static __device__ __forceinline__ void load(uint32_t block, uint32_t (&a)[16]) {
    const uint4 code = shared_at<uint4>(block);
    const uint32_t codes[4] = {code.x, code.y, code.z, code.w};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 v = shared_at<uint4>(block + 512 + 512 * half);
      const uint32_t sign[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = codes[2 * half + i];
        uint32_t* r = a + 8 * half + 4 * i;
        r[0] = merge(word, sign[2 * i]);
        r[1] = merge(rotate_right(word, 4), rotate_right(sign[2 * i], 8));
        r[2] = merge(rotate_right(word, 8), sign[2 * i + 1]);
        r[3] = merge(rotate_right(word, 12), rotate_right(sign[2 * i + 1], 8));
      }
    }
  }

  // The plane is laid out as the sign words are; it is read and cleared.
  template <bool kPatched>
  static __device__ __forceinline__ void finish(uint32_t plane, const Window& window,
                                                uint32_t (&a)[16]) {
    if constexpr (kPatched) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 v = shared_at<uint4>(plane + 512 * half);
        shared_at<uint4>(plane + 512 * half) = make_uint4(0, 0, 0, 0);
        const uint32_t high[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t* r = a + 8 * half + 2 * i;
          r[0] = select_bits<kHigh>(high[i], r[0]);
          r[1] = select_bits<kHigh>(rotate_right(high[i], 8), r[1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
      a[i] = (kPatched ? a[i] : a[i] & ~kHigh) * window.one + window.base_pair;
  }
};

}  // namespace specfarm
