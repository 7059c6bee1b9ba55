// y[m, n] = sum_k x[m, k] w[n, k] for few tokens m: one thread block a multiprocessor, a producer
// warp that streams weights and activations into a ring, consumer warps that each own a row tile
// (or a share of its k blocks). Weights are the 16-row side of mma.m16n8k16, tokens the 8-wide one.
#pragma once
#include "async_copy.cuh"
#include "epilogue.cuh"
#include "escapes.cuh"
#include "skinny_params.cuh"
#include "weight_formats.cuh"
#include "work_range.cuh"

namespace specfarm {

__device__ __forceinline__ void mma(float (&c)[4], const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Slots of the ring in turn: byte offsets of the current one.
struct Ring {
  uint8_t* memory;
  uint32_t x, w, full;  // x and w: offsets into memory; full: shared address, `empty` 8 after it
  uint32_t phase = 0;
  int slot = 0;

  __device__ __forceinline__ Ring(uint8_t* memory_, const SharedLayout& layout)
      : memory(memory_), x(0), w(layout.w_offset),
        full(shared_address(memory_) + layout.barrier_offset) {}
  __device__ __forceinline__ uint32_t empty() const { return full + 8; }
  __device__ __forceinline__ void next(const SkinnyParams& p, const SharedLayout& layout) {
    x += layout.x_bytes, w += layout.w_bytes, full += 16;
    if (++slot == p.stages) {
      slot = 0, phase ^= 1;
      x = 0, w = layout.w_offset, full -= 16 * p.stages;
    }
  }
};

template <class Format>
struct Producer {
  const SkinnyParams& p;
  const CUtensorMap* x_map;
  const WorkRange& work;
  const SharedLayout& layout;
  int lane;

  __device__ __forceinline__ void weights(const Ring& ring, int pass, int step,
                                          uint64_t policy) const {
    const int tile = work.tile_first + pass * p.row_warps + lane;
    const int rows = min(p.row_warps, work.tile_end - work.tile_first - pass * p.row_warps);
    const int kblock = work.k_first + step * p.split;
    const uint32_t bytes = min(p.split, work.k_end - kblock) * Format::kBlockBytes;
    if (lane == 0) barrier_expect(ring.full, bytes * rows + layout.x_bytes);
    __syncwarp();
    if (lane < rows) {
      const int64_t block = static_cast<int64_t>(tile) * p.kblocks + kblock;
      bulk_copy(shared_address(ring.memory) + ring.w + lane * p.split * Format::kBlockBytes,
                p.weights + block * Format::kBlockBytes, bytes, ring.full, policy);
    }
  }

  __device__ __forceinline__ void activations(const Ring& ring, int step, uint64_t policy) const {
    if (lane == 0)
      tensor_copy(shared_address(ring.memory) + ring.x, x_map, 0, 0,
                  work.k_first + step * p.split, ring.full, policy);
  }

  // The weights of the first stages are asked for before the previous grid has ended.
  __device__ __forceinline__ int first_weights(Ring ring) const {
    const uint64_t once = stream_once_policy();
    const int issued = min(p.stages, work.passes * work.steps);
    int pass = 0, step = 0;
#pragma unroll 1
    for (int i = 0; i < issued; ++i, ring.next(p, layout)) {
      weights(ring, pass, step, once);
      if (++step == work.steps) step = 0, ++pass;
    }
    return issued;
  }

  __device__ __forceinline__ void run(Ring ring, int issued) const {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    wait_for_previous_grid();
    int pass = 0, step = 0;
#pragma unroll 1
    for (int i = 0; i < work.passes * work.steps; ++i, ring.next(p, layout)) {
      if (i >= issued) {
        barrier_wait(ring.empty(), ring.phase ^ 1);
        weights(ring, pass, step, once);
      }
      activations(ring, step, keep);
      if (++step == work.steps) step = 0, ++pass;
    }
  }
};

template <class Format, int kTokenTiles>
struct Consumer {
  const SkinnyParams& p;
  const WorkRange& work;
  const SharedLayout& layout;
  int warp, lane;
  uint8_t* plane;

  // Two k16 steps of a k block for every token tile; `x` is this lane's 16-byte piece.
  template <int kHalf>
  __device__ __forceinline__ uint32_t half(const uint8_t* w, const uint8_t* x, const WindowAdd& add,
                                           float (&acc)[kTokenTiles][4]) const {
    uint32_t a[8];
    uint32_t seen = Format::template fragments<kHalf>(w, lane, a, add);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const uint4 b = load16(x + n * 1024);
      mma(acc[n], a, b.x, b.y);
      mma(acc[n], a + 4, b.z, b.w);
      seen ^= b.x;
    }
    return seen;
  }

  // The arrival's address depends on the loaded words: an arrive that only follows the loads in
  // program order can be issued before they return, and the next copy would overwrite the slot.
  __device__ __forceinline__ void release(const Ring& ring, uint32_t seen) const {
    const uint32_t barrier = ring.empty() | (seen & p.zero);
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
  }

  struct Share {
    uint32_t w, x0, x1;  // this lane's pieces of a slot: weights, activations of either half
    int blocks;          // k blocks of this warp
    EscapeStream escapes;
  };

  template <int kOdd>
  __device__ __forceinline__ void block(Ring& ring, Share& share, int step,
                                        float (&acc)[kTokenTiles][4]) const {
    barrier_wait(ring.full, ring.phase);
    uint32_t seen = 0;
    if (step < share.blocks) {
      const uint8_t* w = ring.memory + ring.w + share.w;
      const uint8_t* x = ring.memory + ring.x;
      const bool patched = Format::kEscapes && share.escapes.template count<kOdd>() != 0;
      if (patched) share.escapes.template write<kOdd>(plane);
      const WindowAdd add{p.base * 0x00800080u, p.zero + 1, plane, patched};
      seen = half<0>(w, x + share.x0, add, acc);
      seen ^= half<1>(w, x + share.x1, add, acc);
      if (patched) share.escapes.template restore<kOdd>(plane, p.base);
      if (Format::kEscapes) share.escapes.template fetch<kOdd>();
    }
    release(ring, seen);
    ring.next(p, layout);
  }

  __device__ __forceinline__ void pass(Ring& ring, int tile, float (&acc)[kTokenTiles][4]) const {
    const int part = warp % p.split, first = work.k_first + part;
    const int g = lane >> 2, q = lane & 3;
    Share share;
    share.blocks = tile < work.tile_end ? (work.k_end - first + p.split - 1) / p.split : 0;
    share.w = warp * Format::kBlockBytes;
    share.x0 = part * kTokenTiles * 1024 + g * 128 + ((2 * q) ^ g) * 16;  // 128-byte swizzle
    share.x1 = share.x0 ^ 16;
    if (Format::kEscapes && share.blocks > 0)
      share.escapes.start(p, tile, first, p.split, work.k_end, lane);
#pragma unroll 1
    for (int step = 0; step < work.steps; ++step) {
      block<0>(ring, share, step, acc);
      if (++step < work.steps) block<1>(ring, share, step, acc);
    }
  }

  __device__ __forceinline__ void run(Ring ring) const {
#pragma unroll 1
    for (int i = 0; i < work.passes; ++i) {
      float acc[kTokenTiles][4] = {};
      const int tile = work.tile_first + i * p.row_warps + warp / p.split;
      pass(ring, tile, acc);
      if (p.split * p.cluster > 1) {  // the host makes sure that there is one pass
        sync_warps(1, p.row_warps * p.split * 32);
        publish_partials<kTokenTiles>(ring.memory, acc, warp, lane);
      } else if (tile < work.tile_end) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) store_tile(p, acc[n], tile, n, lane);
      }
    }
  }
};

template <class Format, int kTokenTiles>
__global__ void __launch_bounds__(kMaxWarps * 32, 1)
    skinny_kernel(const __grid_constant__ SkinnyParams p, const __grid_constant__ CUtensorMap x_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const SharedLayout layout(p, Format::kBlockBytes, kTokenTiles, Format::kEscapes);
  const WorkRange work(p);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int consumers = p.row_warps * p.split;
  const Ring ring(memory, layout);
  if (warp == consumers) {
    const Producer<Format> producer{p, &x_map, work, layout, lane};
    if (lane == 0) {
#pragma unroll 1
      for (int i = 0; i < p.stages; ++i) {
        barrier_init(ring.full + 16 * i, 1);
        barrier_init(ring.full + 16 * i + 8, consumers);
      }
      barrier_init_fence();
    }
    __syncwarp();
    const int issued = producer.first_weights(ring);
    __syncthreads();
    let_next_grid_start();
    producer.run(ring, issued);
  } else {
    uint8_t* plane = memory + layout.plane_offset + warp * kScratchBytes;
    if (Format::kEscapes) {
      const uint32_t fill = p.base * 0x01010101u;
      reinterpret_cast<uint4*>(plane)[lane] = make_uint4(fill, fill, fill, fill);
      reinterpret_cast<uint4*>(plane)[lane + 32] = make_uint4(fill, fill, fill, fill);
    }
    __syncthreads();
    let_next_grid_start();
    const Consumer<Format, kTokenTiles> consumer{p, work, layout, warp, lane, plane};
    consumer.run(ring);
  }
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
