// The escapes of one row tile, looked up 32 blocks at a time and read one block with escapes ahead.
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

__device__ __forceinline__ void prefetch_if(bool wanted, const uint32_t* from) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p prefetch.global.L2 [%1];\n}" ::"r"(
                   static_cast<uint32_t>(wanted)),
               "l"(from));
}

// Follows a warp over the k blocks first, first + stride, ... < limit of a row tile. A block
// without escapes costs one bit test: `pending`, bit 0 is the current block.
class EscapeStream {
 public:
  uint32_t pending = 0;

  __device__ __forceinline__ void start(const SkinnyParams& p, int tile, int first, int stride,
                                        int limit, int lane) {
    meta_ = p.escape_meta + static_cast<int64_t>(tile) * p.kblocks;
    entries_ = p.entries + p.tile_start[tile];
    lane_ = lane;
    limit_ = limit;
    stride_ = stride;
    kblock_ = first + lane * stride;
    next_chunk_ = entry_ = 0;
    load_if(kblock_ < limit_, meta_ + kblock_, next_chunk_);
  }

  // The next 32 blocks.
  __device__ __forceinline__ void begin_chunk() {
    const bool valid = kblock_ < limit_;
    chunk_ = next_chunk_;
    kblock_ += 32 * stride_;
    load_if(kblock_ < limit_, meta_ + kblock_, next_chunk_);
    const bool any = valid && count(chunk_) != 0;
    prefetch_if(any, entries_ + (chunk_ >> 11));
    pending = __ballot_sync(~0u, any);
    ordinal_ = 0;
    if (pending) fetch(__ffs(pending) - 1);
  }

  // Writes the exponents of the current block into the warp's plane; all lanes take part.
  __device__ __forceinline__ void write(uint8_t* plane) {
    __syncwarp();
    meta_now_ = fetched_;
    entry_now_ = entry_;
    each(plane, [](uint32_t e) { return static_cast<uint8_t>(e); });
    __syncwarp();
    const uint32_t later = pending >> 1;
    if (later) fetch(ordinal_ + __ffs(later));
  }

  // Puts the window's first exponent back.
  __device__ __forceinline__ void restore(uint8_t* plane, uint32_t base) const {
    __syncwarp();
    each(plane, [base](uint32_t) { return static_cast<uint8_t>(base); });
  }

  __device__ __forceinline__ void advance() {
    pending >>= 1;
    ++ordinal_;
  }

 private:
  static __device__ __forceinline__ uint32_t count(uint32_t meta) { return meta & 2047u; }

  __device__ __forceinline__ void fetch(int ordinal) {
    fetched_ = __shfl_sync(~0u, chunk_, ordinal);
    load_if(lane_ < count(fetched_), entries_ + (fetched_ >> 11) + lane_, entry_);
  }

  template <class Value>
  __device__ __forceinline__ void each(uint8_t* plane, Value value) const {
    if (lane_ < count(meta_now_)) plane[entry_now_ >> 8] = value(entry_now_);
#pragma unroll 1
    for (uint32_t o = lane_ + 32; o < count(meta_now_); o += 32) {
      const uint32_t entry = __ldg(entries_ + (meta_now_ >> 11) + o);
      plane[entry >> 8] = value(entry);
    }
  }

  const uint32_t* meta_;
  const uint32_t* entries_;
  uint32_t chunk_, next_chunk_, fetched_, entry_, meta_now_, entry_now_, lane_;
  int kblock_, stride_, limit_, ordinal_;
};

}  // namespace specfarm
