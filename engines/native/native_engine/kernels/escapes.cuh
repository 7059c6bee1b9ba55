// The escapes of one row tile, looked up 32 blocks at a time and read one block with escapes ahead.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"

namespace specfarm {

__device__ __forceinline__ void prefetch_if(bool wanted, const uint32_t* from) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p prefetch.global.L2 [%1];\n}" ::"r"(
                   static_cast<uint32_t>(wanted)),
               "l"(from));
}

// Follows a warp over the k blocks first, first + stride, ... < limit of a row tile. A block
// without escapes costs one bit test of `pending`, whose bit 0 is the current block: it holds
// kChunk blocks and above them a sentinel that asks for the next chunk. What is read ahead goes to
// shared memory, as registers with loads under way would be waited for at the next branch.
class EscapeStream {
 public:
  uint32_t pending;

  // `scratch` is the warp's. Asks for the first chunk; nothing waits for it here.
  __device__ __forceinline__ void start(const SkinnyParams& p, uint8_t* scratch, int tile,
                                        int first, int stride, int limit, int lane) {
    plane_ = reinterpret_cast<uint16_t*>(scratch);
    words_ = reinterpret_cast<uint32_t*>(scratch + kPlaneBytes) + lane;
    lane_ = lane;
    next_ = static_cast<uint32_t>(tile) * p.kblocks + first + lane * stride;
    limit_ = static_cast<uint32_t>(tile) * p.kblocks + limit;
    stride_ = stride;
    chunk_ = 0;
    const uint32_t to = shared_address(words_);
    lane_copy_if(lane == kChunk || next_ < limit_, to,
                 lane < kChunk ? p.escape_meta + next_ : p.tile_start + tile);
    copy_meta(p, kChunk, to + 128);
    pending = 1;
  }

  // True when the current block has escapes; call it where bit 0 of `pending` is set.
  __device__ __forceinline__ bool has_any(const SkinnyParams& p) {
    if (pending == 1) begin_chunk(p);
    return pending & 1;
  }

  // Writes the exponents of the current block into the warp's plane and asks for the entries of the
  // next block that has any; all lanes take part.
  __device__ __forceinline__ void write(const SkinnyParams& p) {
    next_meta_ = __shfl_sync(~0u, now_, next_of(pending >> 1));
    wait_for_lane_copies();
    entry_ = words_[64];
    __syncwarp();
    if (lane_ < count(meta_)) plane_[entry_ >> 8] = in_place(entry_);
    if (count(meta_) > 32) rest(p, [](uint32_t entry) { return entry; });
    ask(p, next_meta_);
    __syncwarp();
  }

  // Puts the window's first exponent back.
  __device__ __forceinline__ void restore(const SkinnyParams& p) {
    __syncwarp();
    if (lane_ < count(meta_)) plane_[entry_ >> 8] = in_place(p.base);
    if (count(meta_) > 32) rest(p, [&p](uint32_t) { return static_cast<uint32_t>(p.base); });
    meta_ = next_meta_;
  }

 private:
  static constexpr int kChunk = 31;

  static __device__ __forceinline__ uint32_t count(uint32_t meta) { return meta & 2047u; }
  static __device__ __forceinline__ uint16_t in_place(uint32_t exponent) {
    return static_cast<uint16_t>((exponent & 255u) << 7);
  }

  // Place in the chunk of the first block of `later` with escapes, or of the sentinel that ends
  // it: the sentinel's distance from bit 31 tells how far the chunk has been walked. Lane 31 holds
  // no meta word, so that the sentinel has none.
  static __device__ __forceinline__ int next_of(uint32_t later) {
    return __clz(later) + __ffs(later) - 1;
  }

  __device__ __forceinline__ void ask(const SkinnyParams& p, uint32_t meta) {
    const uint32_t* from = p.entries + (tile_start_ + (meta >> 11) + lane_);
    lane_copy_if(lane_ < count(meta), shared_address(words_ + 64), from);
  }

  // Lane i holds the meta word of block i of the chunk. The next chunk's words are here already:
  // its entries are called into the L2 cache, and the words after it asked for.
  __device__ __forceinline__ void begin_chunk(const SkinnyParams& p) {
    wait_for_lane_copies();
    const uint32_t word = words_[chunk_];
    if (chunk_ == 0) tile_start_ = __shfl_sync(~0u, word, kChunk);  // lane 31 of the first words
    now_ = lane_ < kChunk && next_ < limit_ ? word : 0u;
    next_ += kChunk * stride_;
    const uint32_t later = lane_ < kChunk && next_ < limit_ ? words_[chunk_ ^ 32] : 0u;
    copy_meta(p, kChunk, shared_address(words_ + chunk_));
    chunk_ ^= 32;
    prefetch_if(count(now_) != 0, p.entries + (tile_start_ + (now_ >> 11)));
    prefetch_if(count(later) != 0, p.entries + (tile_start_ + (later >> 11)));
    pending = __ballot_sync(~0u, count(now_) != 0) | 1u << kChunk;
    meta_ = __shfl_sync(~0u, now_, next_of(pending));
    ask(p, meta_);
  }

  // Asks for the meta word of the block `blocks` further on.
  __device__ __forceinline__ void copy_meta(const SkinnyParams& p, int blocks, uint32_t to) const {
    const uint32_t at = next_ + blocks * stride_;
    lane_copy_if(lane_ < kChunk && at < limit_, to, p.escape_meta + at);
  }

  // Entries past the 32 read ahead.
  template <class Exponent>
  __device__ __forceinline__ void rest(const SkinnyParams& p, Exponent exponent) const {
    const uint32_t* entries = p.entries + (tile_start_ + (meta_ >> 11));
#pragma unroll 1
    for (uint32_t o = lane_ + 32; o < count(meta_); o += 32) {
      const uint32_t entry = __ldg(entries + o);
      plane_[entry >> 8] = in_place(exponent(entry));
    }
  }

  uint16_t* plane_;
  uint32_t* words_;  // this lane's meta words of two chunks, then its entry
  uint32_t tile_start_, now_, meta_, next_meta_, entry_, next_, limit_;
  int lane_, stride_, chunk_;
};

}  // namespace specfarm
