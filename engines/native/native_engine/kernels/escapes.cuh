// The escapes of one row tile, read two blocks ahead of their use.
#pragma once
#include "skinny_params.cuh"

namespace specfarm {

// Walks the k blocks a warp takes: block ordinal i stands for k block
// first + (i / unroll * split) * unroll + i % unroll.
struct BlockWalk {
  int first, limit, split, unroll;
  __device__ __forceinline__ int kblock(int i) const {
    return first + (i / unroll) * split * unroll + i % unroll;
  }
};

class EscapeStream {
 public:
  __device__ __forceinline__ void start(const SkinnyParams& p, int tile, BlockWalk walk, int lane) {
    walk_ = walk;
    lane_ = lane;
    meta_ = p.escape_meta + static_cast<int64_t>(tile) * p.kblocks;
    entries_ = p.entries + p.tile_start[tile];
    chunk_ = load_chunk(0);
    next_chunk_ = load_chunk(32);
    ordinal_ = 0;
    meta0_ = __shfl_sync(~0u, chunk_, 0);
    meta1_ = __shfl_sync(~0u, chunk_, 1);
    entry0_ = load_entry(meta0_);
    entry1_ = load_entry(meta1_);
  }

  __device__ __forceinline__ uint32_t count() const { return meta0_ & 2047u; }

  // Writes the exponents of the current block into the warp's plane; all lanes take part.
  __device__ __forceinline__ void write(uint8_t* plane) const {
    __syncwarp();
    for (uint32_t o = lane_; o < count(); o += 32) {
      const uint32_t e = entry(o);
      plane[e >> 8] = static_cast<uint8_t>(e);
    }
    __syncwarp();
  }

  // Puts the window's first exponent back.
  __device__ __forceinline__ void restore(uint8_t* plane, uint32_t base) const {
    __syncwarp();
    for (uint32_t o = lane_; o < count(); o += 32)
      plane[entry(o) >> 8] = static_cast<uint8_t>(base);
  }

  __device__ __forceinline__ void advance() {
    const int ahead = ordinal_ + 2;
    if ((ahead & 31) == 0) {
      chunk_ = next_chunk_;
      next_chunk_ = load_chunk(ahead + 32);
    }
    meta0_ = meta1_, entry0_ = entry1_;
    meta1_ = __shfl_sync(~0u, chunk_, ahead & 31);
    entry1_ = load_entry(meta1_);
    ++ordinal_;
  }

 private:
  __device__ __forceinline__ uint32_t load_chunk(int i) const {
    const int kblock = walk_.kblock(i + lane_);
    return kblock < walk_.limit ? __ldg(meta_ + kblock) : 0u;
  }
  __device__ __forceinline__ uint32_t load_entry(uint32_t meta) const {
    return lane_ < (meta & 2047u) ? __ldg(entries_ + (meta >> 11) + lane_) : 0u;
  }
  __device__ __forceinline__ uint32_t entry(uint32_t o) const {
    return o < 32 ? entry0_ : __ldg(entries_ + (meta0_ >> 11) + o);
  }

  BlockWalk walk_;
  const uint32_t* meta_;
  const uint32_t* entries_;
  uint32_t chunk_, next_chunk_, meta0_, meta1_, entry0_, entry1_;
  uint32_t lane_;
  int ordinal_;
};

}  // namespace specfarm
