// The ring of stages in shared memory, and the warp that fills it.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"
#include "work_range.cuh"

namespace specfarm {

// Stages of the ring in turn.
struct Ring {
  uint32_t first, end, stage_bytes, barrier_offset;
  uint32_t at, phase = 0;  // shared address of the current stage; flips every round

  __device__ __forceinline__ Ring(uint32_t memory, const SharedLayout& layout)
      : first(memory), end(memory + layout.ring), stage_bytes(layout.stage),
        barrier_offset(layout.barrier_offset), at(memory) {}
  __device__ __forceinline__ uint32_t full() const { return at + barrier_offset; }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8; }
  __device__ __forceinline__ void next() {
    at += stage_bytes;
    if (at == end) at = first, phase ^= 1;
  }
};

// One thread: a stage is one copy of weights and one of activations.
template <class Format>
struct Producer {
  const SkinnyParams& p;
  const CUtensorMap* x_map;
  const WorkRange& work;
  const SharedLayout& layout;
  const uint8_t* from;  // the next stage's weights
  int pass = 0, step = 0;

  __device__ __forceinline__ Producer(const SkinnyParams& p_, const CUtensorMap* x_map_,
                                      const WorkRange& work_, const SharedLayout& layout_)
      : p(p_), x_map(x_map_), work(work_), layout(layout_),
        from(p_.weights + blockIdx.x * p_.block_stride) {}

  __device__ __forceinline__ void weights(const Ring& ring, uint64_t policy) {
    const int rows = work.rows(p, pass), done = step * work.per_step;
    const int kblocks = min(work.per_step, work.k_count - done);
    const uint32_t bytes = escape_bytes(p, rows) + kblocks * rows * Format::kBlockBytes;
    barrier_expect(ring.full(), bytes + layout.w_offset);
    bulk_copy(ring.at + layout.w_offset, from, bytes, ring.full(), policy);
    from += bytes;
    if (++step == work.steps) step = 0, ++pass;
  }

  __device__ __forceinline__ void activations(const Ring& ring, int x_step, uint64_t policy) const {
    tensor_copy(ring.at, x_map, 0, 0, work.k_first + x_step * work.per_step, ring.full(), policy);
  }

  // Weights of the first stages are asked for before the previous grid has ended; with their
  // activations where there is no grid to wait for. Returns how many stages that were.
  __device__ __forceinline__ int begin(Ring ring) {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    const int early = min(p.stages, work.passes * work.steps);
#pragma unroll 1
    for (int i = 0; i < early; ++i, ring.next()) {
      if (!p.dependent) activations(ring, step, keep);
      weights(ring, once);
    }
    return early;
  }

  __device__ __forceinline__ void run(Ring ring, int early) {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    const int all = work.passes * work.steps;
    let_next_grid_start();
    wait_for_previous_grid();
    int x_step = 0;
#pragma unroll 1
    for (int i = 0; i < all; ++i, ring.next()) {
      if (i >= early) {
        barrier_wait(ring.empty(), ring.phase ^ 1);
        weights(ring, once);
      }
      if (i >= early || p.dependent) activations(ring, x_step, keep);
      if (++x_step == work.steps) x_step = 0;
    }
  }
};

}  // namespace specfarm
