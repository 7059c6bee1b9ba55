// y[m, n] = sum_k x[m, k] w[n, k] for few tokens m: one thread block a multiprocessor, a producer
// that streams weights and activations into a ring, consumer warps that each own a row tile or a
// share of its k blocks. Weights are the row side of the product, tokens the other.
#pragma once
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "escapes.cuh"
#include "product.cuh"
#include "ring.cuh"
#include "skinny_params.cuh"
#include "weight_formats.cuh"
#include "work_range.cuh"

namespace specfarm {

template <class Format, int kTokenTiles, bool kGrouped>
struct Consumer {
  using Multiply = Product<kTokenTiles, kGrouped>;
  using Sums = float[kTokenTiles][4];

  const SkinnyParams& p;
  const WorkRange& work;
  const SharedLayout& layout;
  int lane;
  int row, part;    // row tile of a pass, share of the k blocks
  uint32_t planes;  // of this share of this row tile, in shared memory

  // The four warps of a group agree on the share; spare ones spread over the schedulers.
  __device__ __forceinline__ Consumer(const SkinnyParams& p_, const WorkRange& work_,
                                      const SharedLayout& layout_, int warp, int lane_,
                                      uint32_t memory)
      : p(p_), work(work_), layout(layout_), lane(lane_) {
    row = kGrouped ? warp / 4 / p.split * 4 + (warp + warp / 4) % 4 : warp / p.split;
    part = kGrouped ? warp / 4 % p.split : warp % p.split;
    planes = pinned(memory + layout.ring + (row * p.split + part) * p.chunk * kPlaneBytes);
  }

  __device__ __forceinline__ void clear_planes() const {
    if (!Format::kEscapes || row >= p.row_warps) return;
    for (int i = lane; i < p.chunk * kPlaneBytes / 16; i += 32)
      shared_at<uint4>(planes + 16 * i) = make_uint4(0, 0, 0, 0);
    __syncwarp();
  }

  // Every lane arrives for its own loads. The arrival's address depends on the sums, hence on every
  // load from the stage: an arrive that only follows the loads in program order can be issued
  // before they return, and the next copy would overwrite the slot.
  __device__ __forceinline__ void release(const Ring& ring, const Sums& acc) const {
    uint32_t seen = 0;
#pragma unroll
    for (int n = 0; n < (Multiply::kWarpgroup ? 1 : kTokenTiles); ++n)
      seen ^= __float_as_uint(acc[n][0]);
    barrier_arrive(ring.empty() + (seen & p.zero));
  }

  // Chunks part, part + split, ... of the k range.
  __device__ __forceinline__ void pass(Ring& ring, int index, Sums& acc) const {
    const Multiply product(lane);
    const int rows = work.rows(p, index), tile = work.tile_first + index * p.row_warps + row;
    const int first = part * p.chunk;
    const bool mine = row < rows;
    const uint32_t w_mine = pinned(layout.w_offset + escape_bytes(p, rows) +
                                   (first * rows + row) * Format::kBlockBytes + 16 * lane);
    const uint32_t w_step = pinned(rows * Format::kBlockBytes);
    const uint32_t starts = pinned(layout.w_offset + (part * rows + row) * 2);
    const uint32_t entries = pinned(layout.w_offset + (p.split * rows + 1) * 2);
    const uint32_t x_mine = first * kTokenTiles * 1024;
    const Window window{pinned(p.base * 0x00800080u), pinned(p.zero + 1)};
    int left = work.k_count - first;  // k blocks from this chunk on
#pragma unroll 1
    for (int step = 0; step < work.steps; ++step, left -= work.per_step) {
      barrier_wait(ring.full(), ring.phase);
      const int here = min(p.chunk, left);
      if (here > 0 && (kGrouped || mine)) {
        uint32_t w = ring.at + w_mine, x = ring.at + x_mine, plane = planes + 16 * lane;
        uint32_t a[16], escaped = 0;
        if (mine) {
          Format::load(w, a);
          if constexpr (Format::kEscapes)
            escaped = put_chunk(p, planes, ring.at + starts, ring.at + entries, tile,
                                work.k_first + work.k_count - left, here, lane);
        } else {
          leave_unset(a);
        }
#pragma unroll 1
        for (int j = here;;) {
          if (mine) {
            if (Format::kEscapes && (escaped & 1))
              Format::template finish<true>(plane, window, a);
            else
              Format::template finish<false>(plane, window, a);
          }
          product.add(acc, a, x);
          if (--j == 0) break;
          x += kTokenTiles * 1024, plane += kPlaneBytes, escaped >>= 1;
          if (mine) Format::load(w += w_step, a);
        }
      }
      release(ring, acc);
      ring.next();
    }
  }

  // A spare warp of a group multiplies whatever its registers hold, into sums that nobody reads.
  static __device__ __forceinline__ void leave_unset(uint32_t (&a)[16]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "=r"(a[i]));
  }

  __device__ __forceinline__ void run(Ring ring) const {
#pragma unroll 1
    for (int i = 0; i < work.passes; ++i) {
      Sums acc = {};
      pass(ring, i, acc);
      const bool mine = row < work.rows(p, i);
      if (p.split * p.cluster > 1) {  // the host makes sure that there is one pass
        sync_warps(1, consumer_warps(p) * 32);
        if (mine) publish_partials<kTokenTiles>(ring.first, acc, row * p.split + part, lane);
      } else if (mine) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n)
          store_tile(p, acc[n], work.tile_first + i * p.row_warps + row, n, lane);
      }
    }
  }
};

template <class Format, int kTokenTiles, bool kGrouped>
__global__ void __launch_bounds__(kMaxWarps * 32, 1)
    skinny_kernel(const __grid_constant__ SkinnyParams p, const __grid_constant__ CUtensorMap x_map) {
  extern __shared__ __align__(1024) uint8_t dynamic_memory[];
  const uint32_t memory = pinned(shared_address(dynamic_memory));
  const SharedLayout layout(p, Format::kBlockBytes, kTokenTiles);
  const WorkRange work(p);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the compiler now knows it is uniform
  const int lane = pinned<int>(threadIdx.x % 32);
  const int consumers = consumer_warps(p);
  const Ring ring(memory, layout);
  Producer<Format> producer(p, &x_map, work, layout);
  const Consumer<Format, kTokenTiles, kGrouped> consumer(p, work, layout, warp, lane, memory);
  int early = 0;
  if (warp == consumers) {
    for (int i = lane; i < p.stages; i += 32) {
      barrier_init(ring.full() + i * layout.stage, 1);
      barrier_init(ring.empty() + i * layout.stage, consumers * 32);
    }
    barrier_init_fence();
    __syncwarp();
    if (lane == 0) early = producer.begin(ring);
    __syncwarp();
  } else {
    consumer.clear_planes();
  }
  __syncthreads();
  if (warp < consumers)
    consumer.run(ring);
  else if (lane == 0)
    producer.run(ring, early);
  if (p.split * p.cluster == 1) return;
  if (p.cluster > 1) {
    __syncwarp();
    cluster_sync();
  } else if (warp < consumers) {
    sync_warps(1, consumers * 32);
  }
  if (warp < consumers) reduce_and_store<kTokenTiles>(p, work, memory, warp, lane);
  if (p.cluster > 1) {
    __syncwarp();
    cluster_sync();  // a peer may still be reading this block's partial sums
  }
}

}  // namespace specfarm
