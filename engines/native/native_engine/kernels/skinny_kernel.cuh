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

struct Ring {
  uint8_t* memory;
  SharedLayout layout;
  int stages;
  int slot = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ Ring(uint8_t* memory_, const SharedLayout& layout_, int stages_)
      : memory(memory_), layout(layout_), stages(stages_) {}
  __device__ __forceinline__ uint8_t* x() const { return memory + slot * layout.x_bytes; }
  __device__ __forceinline__ uint8_t* w() const {
    return memory + layout.w_offset + slot * layout.w_bytes;
  }
  __device__ __forceinline__ uint32_t full() const {
    return shared_address(memory + layout.barrier_offset) + 16 * slot;
  }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8; }
  __device__ __forceinline__ void next() {
    if (++slot == stages) slot = 0, phase ^= 1;
  }
};

template <class Format>
struct Producer {
  const SkinnyParams& p;
  const CUtensorMap* x_map;
  const WorkRange& work;
  int lane, token_rows;
  uint64_t once, keep;

  __device__ __forceinline__ void weights(const Ring& ring, int pass, int step) const {
    const int tile = work.tile_first + pass * p.row_warps + lane;
    const int rows = min(p.row_warps, work.tile_end - work.tile_first - pass * p.row_warps);
    const int per_step = p.split * p.unroll;
    const int kblock = work.k_first + step * per_step;
    const uint32_t bytes = min(per_step, work.k_end - kblock) * Format::kBlockBytes;
    if (lane == 0) barrier_expect(ring.full(), bytes * rows + ring.layout.x_bytes);
    __syncwarp();
    if (lane < rows) {
      const int64_t block = static_cast<int64_t>(tile) * p.kblocks + kblock;
      bulk_copy(shared_address(ring.w()) + lane * per_step * Format::kBlockBytes,
                p.weights + block * Format::kBlockBytes, bytes, ring.full(), once);
    }
  }

  __device__ __forceinline__ void activations(const Ring& ring, int step) const {
    if (lane == 0)
      tensor_copy(shared_address(ring.x()), x_map, 0, 0,
                  work.k_first + step * p.split * p.unroll, ring.full(), keep);
  }

  // The weights of the first stages are asked for before the previous grid has ended.
  __device__ __forceinline__ int first_weights(Ring ring) const {
    const int issued = min(p.stages, work.passes * work.steps);
    for (int i = 0; i < issued; ++i, ring.next()) weights(ring, i / work.steps, i % work.steps);
    return issued;
  }

  __device__ __forceinline__ void run(Ring ring, int issued) const {
    wait_for_previous_grid();
    for (int i = 0; i < issued; ++i, ring.next()) activations(ring, i % work.steps);
    int pass = issued / work.steps, step = issued % work.steps;
    for (int i = issued; i < work.passes * work.steps; ++i, ring.next()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      weights(ring, pass, step);
      activations(ring, step);
      if (++step == work.steps) step = 0, ++pass;
    }
  }
};

template <class Format, int kTokenTiles>
struct Consumer {
  const SkinnyParams& p;
  const WorkRange& work;
  int warp, lane;
  uint8_t* plane;

  // One k block: 4 k16 steps for every token tile. Returns a word that depends on every load.
  __device__ __forceinline__ uint32_t block(const uint8_t* w, const uint8_t* x, bool patched,
                                            float (&acc)[kTokenTiles][4]) const {
    uint32_t a[16];
    uint32_t seen = Format::fragments(w, lane, a, p.base * 0x00800080u, p.zero + 1, plane, patched);
    const int g = lane >> 2, q = lane & 3;
    const uint8_t* row = x + g * 128;
    const int first = ((2 * q) ^ g) * 16, second = ((2 * q + 1) ^ g) * 16;  // 128-byte swizzle
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const uint4 low = load16(row + n * 1024 + first);
      const uint4 high = load16(row + n * 1024 + second);
      mma(acc[n], a, low.x, low.y);
      mma(acc[n], a + 4, low.z, low.w);
      mma(acc[n], a + 8, high.x, high.y);
      mma(acc[n], a + 12, high.z, high.w);
      seen ^= low.x ^ high.x;
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

  __device__ __forceinline__ void pass(Ring& ring, int tile, int share,
                                       float (&acc)[kTokenTiles][4]) const {
    const bool active = tile < work.tile_end;
    const int r = warp / p.split;
    const BlockWalk walk{work.k_first + share * p.unroll, work.k_end, p.split, p.unroll};
    EscapeStream escapes;
    if (Format::kEscapes && active) escapes.start(p, tile, walk, lane);
    int ordinal = 0;
    for (int step = 0; step < work.steps; ++step, ring.next()) {
      barrier_wait(ring.full(), ring.phase);
      uint32_t seen = 0;
      for (int u = 0; u < p.unroll; ++u, ++ordinal) {
        if (!active || walk.kblock(ordinal) >= work.k_end) continue;
        const int in_step = share * p.unroll + u;
        const uint8_t* w =
            ring.w() + (r * p.split * p.unroll + in_step) * Format::kBlockBytes;
        const uint8_t* x = ring.x() + in_step * kTokenTiles * 1024;
        const bool patched = Format::kEscapes && escapes.count() != 0;
        if (patched) escapes.write(plane);
        seen ^= block(w, x, patched, acc);
        if (patched) escapes.restore(plane, p.base);
        if (Format::kEscapes) escapes.advance();
      }
      release(ring, seen);
    }
  }

  __device__ __forceinline__ void run(Ring ring) const {
    const int share = warp % p.split, consumers = p.row_warps * p.split;
    for (int i = 0; i < work.passes; ++i) {
      float acc[kTokenTiles][4] = {};
      const int tile = work.tile_first + i * p.row_warps + warp / p.split;
      pass(ring, tile, share, acc);
      if (p.split * p.cluster > 1) {  // the host makes sure that there is one pass
        sync_warps(1, consumers * 32);
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
  Ring ring(memory, layout, p.stages);
  if (warp == consumers) {
    const Producer<Format> producer{p,    &x_map, work, lane, kTokenTiles * 8, stream_once_policy(),
                                    keep_policy()};
    if (lane == 0) {
      for (int i = 0; i < p.stages; ++i) {
        const uint32_t full = shared_address(memory + layout.barrier_offset) + 16 * i;
        barrier_init(full, 1);
        barrier_init(full + 8, consumers);
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
    const Consumer<Format, kTokenTiles> consumer{p, work, warp, lane, plane};
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
