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
// without escapes costs one bit test of `pending`, whose bit 0 is the current block: it holds
// kChunk blocks and above them a sentinel that asks for the next chunk.
class EscapeStream {
 public:
  uint32_t pending;

  // Asks for the first chunk; nothing waits for it here.
  __device__ __forceinline__ void start(const SkinnyParams& p, int tile, int first, int stride,
                                        int limit, int lane) {
    row_ = static_cast<uint32_t>(tile) * p.kblocks;
    lane_ = lane;
    limit_ = limit;
    stride_ = stride;
    kblock_ = first + lane * stride;
    chunk_ = tile_start_ = entry_ = 0;
    load_if(true, p.tile_start + tile, tile_start_);
    load_if(kblock_ < limit_, p.escape_meta + row_ + kblock_, chunk_);
    pending = 1;
  }

  // True when the current block has escapes; call it where bit 0 of `pending` is set.
  __device__ __forceinline__ bool has_any(const SkinnyParams& p) {
    if (pending == 1) begin_chunk(p);
    return pending & 1;
  }

  // Writes the exponents of the current block into the warp's plane; all lanes take part.
  __device__ __forceinline__ void write(const SkinnyParams& p, uint16_t* plane) {
    __syncwarp();
    meta_now_ = fetched_;
    entry_now_ = entry_;
    if (lane_ < count(meta_now_)) plane[entry_now_ >> 8] = in_place(entry_now_);
    if (count(meta_now_) > 32) write_rest(p, plane);
    __syncwarp();
    fetched_ = __shfl_sync(~0u, now_, next_of(pending >> 1));
  }

  // Puts the window's first exponent back and asks for the entries of the next block that has any.
  __device__ __forceinline__ void restore(const SkinnyParams& p, uint16_t* plane) {
    __syncwarp();
    if (lane_ < count(meta_now_)) plane[entry_now_ >> 8] = in_place(p.base);
    if (count(meta_now_) > 32) restore_rest(p, plane);
    load_if(lane_ < count(fetched_), at(p, fetched_) + lane_, entry_);
  }

 private:
  static constexpr int kChunk = 31;

  static __device__ __forceinline__ uint32_t count(uint32_t meta) { return meta & 2047u; }
  static __device__ __forceinline__ uint16_t in_place(uint32_t exponent) {
    return static_cast<uint16_t>((exponent & 255u) << 7);
  }
  __device__ __forceinline__ const uint32_t* at(const SkinnyParams& p, uint32_t meta) const {
    return p.entries + (tile_start_ + (meta >> 11));
  }

  // Place in the chunk of the first block of `later` with escapes, or of the sentinel that ends
  // it: the sentinel's distance from bit 31 tells how far the chunk has been walked. Lane 31 holds
  // no meta word, so that the sentinel has none.
  static __device__ __forceinline__ int next_of(uint32_t later) {
    return __clz(later) + __ffs(later) - 1;
  }

  // Lane i holds the meta word of block i of the chunk and asks for that of the next chunk.
  __device__ __forceinline__ void begin_chunk(const SkinnyParams& p) {
    const bool valid = lane_ < kChunk && kblock_ < limit_;
    now_ = valid ? chunk_ : 0u;
    kblock_ += kChunk * stride_;
    load_if(kblock_ < limit_, p.escape_meta + row_ + kblock_, chunk_);
    const bool any = count(now_) != 0;
    prefetch_if(any, at(p, now_));
    pending = __ballot_sync(~0u, any) | 1u << kChunk;
    fetched_ = __shfl_sync(~0u, now_, next_of(pending));
    load_if(lane_ < count(fetched_), at(p, fetched_) + lane_, entry_);
  }

  __device__ __forceinline__ void write_rest(const SkinnyParams& p, uint16_t* plane) const {
#pragma unroll 1
    for (uint32_t o = lane_ + 32; o < count(meta_now_); o += 32) {
      const uint32_t entry = __ldg(at(p, meta_now_) + o);
      plane[entry >> 8] = in_place(entry);
    }
  }

  __device__ __forceinline__ void restore_rest(const SkinnyParams& p, uint16_t* plane) const {
#pragma unroll 1
    for (uint32_t o = lane_ + 32; o < count(meta_now_); o += 32)
      plane[__ldg(at(p, meta_now_) + o) >> 8] = in_place(p.base);
  }

  uint32_t row_, tile_start_, now_, chunk_, fetched_, entry_, meta_now_, entry_now_, lane_;
  int kblock_, stride_, limit_;
};

}  // namespace specfarm
