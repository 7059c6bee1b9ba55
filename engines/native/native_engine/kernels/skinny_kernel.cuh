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
  const LaunchPlan& plan;
  int lane;
  int row, part;    // row tile of a pass, share of the k blocks
  uint32_t planes;  // of this share of this row tile, in shared memory

  // The four warps of a group agree on the share; spare ones spread over the schedulers.
  __device__ __forceinline__ Consumer(const SkinnyParams& p_, const WorkRange& work_,
                                      const LaunchPlan& plan_, int warp, int lane_,
                                      uint32_t memory)
      : p(p_), work(work_), plan(plan_), lane(lane_) {
    row = kGrouped ? warp / 4 / p.split * 4 + (warp + warp / 4) % 4 : warp / p.split;
    part = kGrouped ? warp / 4 % p.split : warp % p.split;
    planes = pinned(memory + plan.ring + (row * p.split + part) * p.chunk * kPlaneBytes);
  }

  __device__ __forceinline__ void clear_planes() const {
    if constexpr (Format::kEscapes) {
      if (row >= p.row_warps) return;
#pragma unroll 1
      for (int i = lane; i < p.chunk * kPlaneBytes / 16; i += 32)
        shared_at<uint4>(planes + 16 * i) = make_uint4(0, 0, 0, 0);
      __syncwarp();
    }
  }

  // Every lane arrives for its own loads. The arrival's address depends on them all: an arrive that
  // only follows the loads in program order can be issued before they return, and the next copy
  // would overwrite the slot. The sums depend on every load from the stage; with few tokens it
  // costs too much to wait for them, and `loaded` depends on the loads for its last block.
  __device__ __forceinline__ void release(const Ring& ring, const Sums& acc, uint32_t loaded) const {
    uint32_t seen = loaded;
    if constexpr (!Multiply::kTracksLoads) {
#pragma unroll
      for (int n = 0; n < (Multiply::kWarpgroup ? 1 : kTokenTiles); ++n)
        seen ^= __float_as_uint(acc[n][0]);
    }
    barrier_arrive(ring.empty() + (seen & p.zero));
  }

  // Chunks part, part + split, ... of the k range.
  __device__ __forceinline__ void pass(Ring& ring, int index, Sums& acc) const {
    const Multiply product(lane);
    const int rows = work.rows(p, index), tile = work.tile_first + index * p.row_warps + row;
    const int first = part * p.chunk;
    const bool mine = row < rows;
    const uint32_t w_mine = pinned(plan.w_offset + escape_bytes(p, rows) +
                                   (first * rows + row) * Format::kBlockBytes + 16 * lane);
    const uint32_t w_step = pinned(rows * Format::kBlockBytes);
    const uint32_t starts = pinned(plan.w_offset + (part * rows + row) * 2);
    const uint32_t entries = pinned(plan.w_offset + (p.split * rows + 1) * 2);
    const uint32_t x_mine = first * kTokenTiles * 1024;
    const Window window{pinned(p.base * 0x00800080u), pinned(p.zero + 1)};
    int left = kGrouped || mine ? work.k_count - first : 0;  // k blocks from this chunk on
#pragma unroll 1
    for (int step = 0; step < work.steps; ++step, left -= plan.per_step) {
      barrier_wait(ring.full, ring.phase);
      const int here = min(p.chunk, left);
      uint32_t loaded = 0;
      if (here > 0) {
        uint32_t w = ring.at + w_mine, x = ring.at + x_mine, plane = planes + 16 * lane;
        uint32_t a[16], escaped = 0;
        if (!kGrouped || mine) {
          Format::load(w, a);
          if constexpr (Format::kEscapes)
            escaped = put_chunk(p, planes, ring.at + starts, ring.at + entries, tile,
                                work.k_first + work.k_count - left, here, lane);
        } else {
          leave_unset(a);
        }
#pragma unroll 1
        for (int j = here;;) {
          if (!kGrouped || mine) {
            if (Format::kEscapes && (escaped & 1))
              Format::template finish<true>(plane, window, a);
            else
              Format::template finish<false>(plane, window, a);
          }
          loaded = product.add(acc, a, x);
          if (--j == 0) break;
          x += kTokenTiles * 1024, plane += kPlaneBytes, escaped >>= 1;
          if (!kGrouped || mine) Format::load(w += w_step, a);
        }
      }
      release(ring, acc, loaded);
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
      if (p.cluster > 1) {  // the host makes sure that there is one pass
        cluster_wait();
        if (mine)
          send_partials<kTokenTiles>(p, work, ring.first + plan.exchange, acc, row, part, lane);
      } else if (p.split > 1) {
        sync_warps(1, plan.consumers * 32);
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
    skinny_kernel(const __grid_constant__ SkinnyParams p, const __grid_constant__ LaunchPlan plan,
                  const __grid_constant__ CUtensorMap x_map) {
  extern __shared__ __align__(1024) uint8_t dynamic_memory[];
  const uint32_t unpinned = shared_address(dynamic_memory);
  const WorkRange work(p, plan);
  const Ring unpinned_ring(unpinned, plan);
  Producer<Format> producer(p, plan, &x_map, work);
  int early = 0;
  if (threadIdx.x == plan.consumers * 32) {  // nothing comes before the first weights are asked for
    if (p.cluster > 1) {
      barrier_init(unpinned + plan.exchange, 1);
      barrier_expect(unpinned + plan.exchange, plan.received[work.tiles > p.each][work.rank]);
    }
    early = producer.begin(unpinned_ring);
  } else if (threadIdx.x == 0) {
    Ring stage = unpinned_ring;
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i, stage.next())
      barrier_init(stage.empty(), plan.consumers * 32);
  }
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the compiler now knows it is uniform
  const int lane = pinned<int>(threadIdx.x % 32);
  const uint32_t memory = __shfl_sync(~0u, unpinned, 0);  // and does not compute this every round
  const Ring ring(memory, plan);
  const Consumer<Format, kTokenTiles, kGrouped> consumer(p, work, plan, warp, lane, memory);
  if (warp < plan.consumers) consumer.clear_planes();
  __syncthreads();
  if (p.cluster > 1) cluster_arrive();
  if (warp >= plan.consumers) {
    if (lane == 0) producer.run(ring, early);
    return;
  }
  consumer.run(ring);
  if (p.cluster > 1) {
    receive_and_store<kTokenTiles>(p, work, memory + plan.exchange, plan.consumers, warp, lane);
  } else if (p.split > 1) {
    sync_warps(1, plan.consumers * 32);
    reduce_and_store<kTokenTiles>(p, work, memory, plan.consumers, warp, lane);
  }
}

}  // namespace specfarm
