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

// Stages of the ring in turn.
struct Ring {
  uint8_t* memory;
  uint32_t stage_bytes, ring_bytes, barrier_offset;
  uint32_t at = 0, phase = 0;  // byte offset of the current stage; flips every round

  __device__ __forceinline__ Ring(uint8_t* memory_, const SharedLayout& layout)
      : memory(memory_), stage_bytes(layout.stage), ring_bytes(layout.ring),
        barrier_offset(shared_address(memory_) + layout.barrier_offset) {}
  __device__ __forceinline__ uint32_t full() const { return at + barrier_offset; }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8; }
  __device__ __forceinline__ void next() {
    at += stage_bytes;
    if (at == ring_bytes) at = 0, phase ^= 1;
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
    const int per_step = p.split * p.unroll, kblock = work.k_first + step * per_step;
    const uint32_t bytes = min(per_step, work.k_end - kblock) * Format::kBlockBytes;
    if (lane == 0) barrier_expect(ring.full(), bytes * rows + layout.w_offset);
    __syncwarp();
    if (lane < rows) {
      const int64_t block = static_cast<int64_t>(tile) * p.kblocks + kblock;
      const uint32_t to = ring.at + layout.w_offset + lane * per_step * Format::kBlockBytes;
      bulk_copy(shared_address(ring.memory) + to, p.weights + block * Format::kBlockBytes, bytes,
                ring.full(), policy);
    }
  }

  __device__ __forceinline__ void activations(const Ring& ring, int step, uint64_t policy) const {
    if (lane == 0)
      tensor_copy(shared_address(ring.memory) + ring.at, x_map, 0, 0,
                  work.k_first + step * p.split * p.unroll, ring.full(), policy);
  }

  // Weights of the first stages, before the previous grid has ended; with their activations where
  // there is no grid to wait for.
  __device__ __forceinline__ int first_weights(Ring ring) const {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    const int issued = min(p.stages, work.passes * work.steps);
    int pass = 0, step = 0;
#pragma unroll 1
    for (int i = 0; i < issued; ++i, ring.next()) {
      weights(ring, pass, step, once);
      if (!p.dependent) activations(ring, step, keep);
      if (++step == work.steps) step = 0, ++pass;
    }
    return issued;
  }

  __device__ __forceinline__ void run(Ring ring, int issued) const {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    wait_for_previous_grid();
    int pass = 0, step = 0;
#pragma unroll 1
    for (int i = 0; i < work.passes * work.steps; ++i, ring.next()) {
      if (i >= issued) {
        barrier_wait(ring.empty(), ring.phase ^ 1);
        weights(ring, pass, step, once);
      }
      if (i >= issued || p.dependent) activations(ring, step, keep);
      if (++step == work.steps) step = 0, ++pass;
    }
  }
};

template <class Format, int kTokenTiles>
struct Consumer {
  const SkinnyParams& p;
  const WorkRange& work;
  uint32_t w_offset;
  int warp, lane;
  uint8_t* scratch;

  // This lane's pieces of a stage: weights, activations of the first and second half of a k block.
  struct Offsets {
    uint32_t w, x0, x1;
  };

  // Two k16 steps of a k block for every token tile; `x` is this lane's 16-byte piece.
  template <int kHalf, class Window>
  __device__ __forceinline__ void half(const uint8_t* w, const uint8_t* x, const Window& window,
                                       float (&acc)[kTokenTiles][4]) const {
    uint32_t a[8];
    Format::template fragments<kHalf>(w, a, window);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const uint4 b = load16(x + n * 1024);
      mma(acc[n], a, b.x, b.y);
      mma(acc[n], a + 4, b.z, b.w);
    }
  }

  template <class Window>
  __device__ __forceinline__ void block(const uint8_t* stage, const Offsets& mine,
                                        const Window& window,
                                        float (&acc)[kTokenTiles][4]) const {
    half<0>(stage + mine.w, stage + mine.x0, window, acc);
    half<1>(stage + mine.w, stage + mine.x1, window, acc);
  }

  // Every lane arrives for its own loads. The arrival's address depends on the sums, hence on every
  // load from the stage: an arrive that only follows the loads in program order can be issued
  // before they return, and the next copy would overwrite the slot.
  __device__ __forceinline__ void release(const Ring& ring,
                                          const float (&acc)[kTokenTiles][4]) const {
    uint32_t seen = 0;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) seen ^= __float_as_uint(acc[n][0]);
    const uint32_t barrier = ring.empty() + (seen & p.zero);
    barrier_arrive(barrier);
  }

  __device__ __forceinline__ int first_block() const { return work.k_first + warp % p.split; }
  __device__ __forceinline__ int tile_of(int pass) const {
    return work.tile_first + pass * p.row_warps + warp / p.split;
  }

  // Asks for what the first blocks of a pass need to know about their escapes.
  __device__ __forceinline__ void prepare(EscapeStream& escapes, int pass) const {
    if (Format::kEscapes && tile_of(pass) < work.tile_end)
      escapes.start(p, scratch, tile_of(pass), first_block(), p.split, work.k_end, lane);
  }

  // Blocks part, part + split, ... of the k range, in that order however many a stage holds.
  __device__ __forceinline__ void pass(Ring& ring, EscapeStream& escapes, int index,
                                       float (&acc)[kTokenTiles][4]) const {
    const int row = warp / p.split, part = warp % p.split;
    const int g = lane >> 2, q = lane & 3;
    Offsets mine;
    mine.w = pinned(w_offset + (row * p.split * p.unroll + part) * Format::kBlockBytes + 16 * lane);
    mine.x0 = pinned(part * kTokenTiles * 1024 + g * 128 + ((2 * q) ^ g) * 16);  // 128-byte swizzle
    mine.x1 = mine.x0 ^ 16;
    const uint32_t w_step = pinned(p.split * Format::kBlockBytes);
    const uint32_t x_step = pinned(p.split * kTokenTiles * 1024);
    const uint8_t* plane = scratch + 16 * lane;
    const PlainWindow plain{pinned(p.base * 0x00800080u), pinned(p.zero + 1)};
    const bool active = tile_of(index) < work.tile_end;
    int left = active ? (work.k_end - first_block() + p.split - 1) / p.split : 0;
    int idle = work.steps - (left + p.unroll - 1) / p.unroll;
#pragma unroll 1
    while (left > 0) {
      barrier_wait(ring.full(), ring.phase);
      const uint8_t* stage = ring.memory + ring.at;
      Offsets now = mine;
      int here = min(left, p.unroll);
      left -= here;
#pragma unroll 1
      do {
        if (Format::kEscapes && __builtin_expect(escapes.pending & 1, 0) && escapes.has_any(p)) {
          escapes.write(p);
          block(stage, now, PatchedWindow{plane, plain.one}, acc);
          escapes.restore(p);
        } else {
          block(stage, now, plain, acc);
        }
        if (Format::kEscapes) escapes.pending >>= 1;
        now.w += w_step, now.x0 += x_step, now.x1 += x_step;
      } while (--here > 0);
      release(ring, acc);
      ring.next();
    }
#pragma unroll 1
    for (; idle > 0; --idle) {  // a stage of the tail in which this warp has no block
      barrier_wait(ring.full(), ring.phase);
      release(ring, acc);
      ring.next();
    }
  }

  __device__ __forceinline__ void run(Ring ring, EscapeStream escapes) const {
#pragma unroll 1
    for (int i = 0; i < work.passes; ++i) {
      float acc[kTokenTiles][4] = {};
      pass(ring, escapes, i, acc);
      if (i + 1 < work.passes) prepare(escapes, i + 1);
      if (p.split * p.cluster > 1) {  // the host makes sure that there is one pass
        sync_warps(1, p.row_warps * p.split * 32);
        publish_partials<kTokenTiles>(ring.memory, acc, warp, lane);
      } else if (tile_of(i) < work.tile_end) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) store_tile(p, acc[n], tile_of(i), n, lane);
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
  const int warp = threadIdx.x / 32, lane = pinned<int>(threadIdx.x % 32);
  const int consumers = p.row_warps * p.split;
  const Ring ring(memory, layout);
  if (lane == 0) {
    for (int i = warp; i < p.stages; i += consumers + 1) {
      barrier_init(ring.full() + i * layout.stage, 1);
      barrier_init(ring.empty() + i * layout.stage, consumers * 32);
    }
    barrier_init_fence();
    if (warp == consumers) prefetch_tensor_map(&x_map);
  }
  uint8_t* scratch = memory + layout.ring + warp * kScratchBytes;
  const Consumer<Format, kTokenTiles> consumer{p,    work, layout.w_offset,
                                               warp, lane, scratch};
  EscapeStream escapes;
  if (warp < consumers) consumer.prepare(escapes, 0);
  __syncthreads();
  if (warp == consumers) {
    const Producer<Format> producer{p, &x_map, work, layout, lane};
    const int issued = producer.first_weights(ring);
    let_next_grid_start();
    producer.run(ring, issued);
  } else {
    let_next_grid_start();
    if (Format::kEscapes) {
      const uint32_t fill = p.base * 0x00800080u;
#pragma unroll
      for (int i = 0; i < kPlaneBytes / 512; ++i)
        reinterpret_cast<uint4*>(scratch)[lane + 32 * i] = make_uint4(fill, fill, fill, fill);
    }
    consumer.run(ring, escapes);
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
