// The ring of stages in shared memory, and the thread that fills it.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"
#include "work_range.cuh"

namespace specfarm {

// Stages of the ring in turn. Shared addresses: the first stage, the current one, its barrier.
struct Ring {
  const LaunchPlan& plan;
  uint32_t first, at, full, phase;

  __device__ __forceinline__ Ring(uint32_t memory, const LaunchPlan& plan_)
      : plan(plan_), first(memory) {
    restart(0);
  }
  __device__ __forceinline__ uint32_t empty() const { return full + 8; }
  __device__ __forceinline__ void restart(uint32_t phase_) {
    at = first, full = first + plan.barrier_offset, phase = phase_;
  }
  __device__ __forceinline__ void next() {
    at += plan.stage, full += plan.stage;
    if (at == first + plan.ring) restart(phase ^ 1);
  }
};

// One thread: a stage is one copy of weights and one of activations.
template <class Format>
struct Producer {
  const SkinnyParams& p;
  const LaunchPlan& plan;
  const CUtensorMap* x_map;
  const WorkRange& work;
  const uint8_t* from;     // the next stage's weights
  int pass = 0, done = 0;  // k blocks of the pass that have been asked for

  __device__ __forceinline__ Producer(const SkinnyParams& p_, const LaunchPlan& plan_,
                                      const CUtensorMap* x_map_, const WorkRange& work_)
      : p(p_), plan(plan_), x_map(x_map_), work(work_),
        from(p_.weights + blockIdx.x * p_.block_stride) {}

  __device__ __forceinline__ void weights(const Ring& ring, uint64_t policy) {
    const int rows = work.rows(p, pass);
    const uint32_t bytes = escape_bytes(p, rows) +
                           min(plan.per_step, work.k_count - done) * rows * Format::kBlockBytes;
    barrier_expect(ring.full, bytes + plan.w_offset);
    bulk_copy(ring.at + plan.w_offset, from, bytes, ring.full, policy);
    from += bytes;
    done += plan.per_step;
    if (done >= work.k_count) done = 0, ++pass;
  }

  __device__ __forceinline__ void activations(const Ring& ring, int k_done, uint64_t policy) const {
    tensor_copy(ring.at, x_map, 0, 0, work.k_first + k_done, ring.full, policy);
  }

  // Fills the ring as far as there is work. What a previous grid does not write, the weights, is
  // asked for before it has ended; the first of them as soon as their barrier exists. Returns how
  // many stages were filled.
  __device__ __forceinline__ int begin(Ring ring) {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    const int early = min(p.stages, work.passes * work.steps);
#pragma unroll 1
    for (int i = 0; i < p.stages; ++i, ring.next()) {
      barrier_init(ring.full, 1);
      barrier_init_fence();
      if (i >= early) continue;
      const int k_done = done;
      weights(ring, once);
      if (!p.dependent) activations(ring, k_done, keep);
    }
    let_next_grid_start();
    if (!p.dependent) return early;
    prefetch_tensor_map(x_map);
    wait_for_previous_grid();
    ring.restart(0);
    int k_done = 0;
#pragma unroll 1
    for (int i = 0; i < early; ++i, ring.next()) {
      activations(ring, k_done, keep);
      k_done += plan.per_step;
      if (k_done >= work.k_count) k_done = 0;
    }
    return early;
  }

  // The rest, into stages that have been read; then the first weights of the next launch are called
  // into the L2 cache, while this one's last stages are multiplied and the memory has no other work.
  __device__ __forceinline__ void run(Ring ring, int early) {
    const uint64_t once = stream_once_policy(), keep = keep_policy();
    const int all = work.passes * work.steps;
    ring.restart(1);  // one round is filled, or there is no more to do
#pragma unroll 1
    for (int i = early; i < all; ++i, ring.next()) {
      barrier_wait(ring.empty(), ring.phase ^ 1);
      const int k_done = done;
      weights(ring, once);
      activations(ring, k_done, keep);
    }
    if (p.next && blockIdx.x < p.next_blocks)
      bulk_prefetch(p.next + blockIdx.x * p.next_stride, p.next_bytes);
  }
};

}  // namespace specfarm
