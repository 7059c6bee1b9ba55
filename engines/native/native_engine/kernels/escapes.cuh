// The escapes of one row tile, read two blocks ahead of their use.
#pragma once
#include "skinny_params.cuh"

namespace specfarm {

// Loads into a register that keeps its value where `wanted` is false: a select after the load
// would wait for it on the spot.
__device__ __forceinline__ void load_if(bool wanted, const uint32_t* from, uint32_t& to) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p ld.global.nc.u32 %0, [%2];\n}"
      : "+r"(to)
      : "r"(static_cast<uint32_t>(wanted)), "l"(from));
}

// Follows a warp over the k blocks first, first + stride, ... < limit of a row tile. Blocks of
// even and odd ordinal keep their entries in registers of their own, kOdd chooses.
class EscapeStream {
 public:
  __device__ __forceinline__ void start(const SkinnyParams& p, int tile, int first, int stride,
                                        int limit, int lane) {
    meta_ = p.escape_meta + static_cast<int64_t>(tile) * p.kblocks;
    entries_ = p.entries + p.tile_start[tile];
    lane_ = lane;
    limit_ = limit;
    stride_ = stride;
    next_kblock_ = first + lane * stride;
    entry_[0] = entry_[1] = chunk_ = next_chunk_ = 0;
    load_chunk(chunk_);
    load_chunk(next_chunk_);
    ahead_ = 0;
    fetch<0>();
    fetch<1>();
  }

  template <int kOdd>
  __device__ __forceinline__ uint32_t count() const {
    return meta_now_[kOdd] & 2047u;
  }

  // Writes the exponents of the current block into the warp's plane; all lanes take part.
  template <int kOdd>
  __device__ __forceinline__ void write(uint8_t* plane) const {
    __syncwarp();
    if (lane_ < count<kOdd>()) plane[entry_[kOdd] >> 8] = static_cast<uint8_t>(entry_[kOdd]);
#pragma unroll 1
    for (uint32_t o = lane_ + 32; o < count<kOdd>(); o += 32) {
      const uint32_t entry = __ldg(entries_ + (meta_now_[kOdd] >> 11) + o);
      plane[entry >> 8] = static_cast<uint8_t>(entry);
    }
    __syncwarp();
  }

  // Puts the window's first exponent back.
  template <int kOdd>
  __device__ __forceinline__ void restore(uint8_t* plane, uint32_t base) const {
    __syncwarp();
    if (lane_ < count<kOdd>()) plane[entry_[kOdd] >> 8] = static_cast<uint8_t>(base);
#pragma unroll 1
    for (uint32_t o = lane_ + 32; o < count<kOdd>(); o += 32)
      plane[__ldg(entries_ + (meta_now_[kOdd] >> 11) + o) >> 8] = static_cast<uint8_t>(base);
  }

  // Turns from this block to the one two further on.
  template <int kOdd>
  __device__ __forceinline__ void fetch() {
    if (kOdd == 0 && ahead_ == 32) {
      ahead_ = 0;
      chunk_ = next_chunk_;
      load_chunk(next_chunk_);
    }
    const uint32_t meta = __shfl_sync(~0u, chunk_, ahead_++);
    meta_now_[kOdd] = meta;
    load_if(lane_ < (meta & 2047u), entries_ + (meta >> 11) + lane_, entry_[kOdd]);
  }

 private:
  // Past the limit a lane keeps an old value: at worst entries nobody uses are read.
  __device__ __forceinline__ void load_chunk(uint32_t& to) {
    load_if(next_kblock_ < limit_, meta_ + next_kblock_, to);
    next_kblock_ += 32 * stride_;
  }

  const uint32_t* meta_;
  const uint32_t* entries_;
  uint32_t chunk_, next_chunk_, lane_;
  uint32_t meta_now_[2], entry_[2];
  int next_kblock_, stride_, limit_, ahead_;
};

}  // namespace specfarm
