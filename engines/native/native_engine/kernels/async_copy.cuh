// Barriers, bulk copies and launch dependencies as thin wrappers over PTX (sm_90 and later).
#pragma once
#include <cuda.h>
#include <cstdint>

namespace specfarm {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A value in shared memory by its 32-bit address, which can be pinned in a register.
template <class T>
__device__ __forceinline__ T& shared_at(uint32_t address) {
  return *static_cast<T*>(__cvta_shared_to_generic(address));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n"
      "}\n" ::"r"(barrier), "r"(parity)
      : "memory");
}

// The same for what peers of the cluster have sent.
__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n"
      "}\n" ::"r"(barrier), "r"(parity)
      : "memory");
}

__device__ __forceinline__ uint64_t stream_once_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t keep_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// One contiguous piece, 16-byte aligned on both sides.
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// Calls a contiguous piece into the L2 cache.
__device__ __forceinline__ void bulk_prefetch(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// A box of a 3-D tensor map; rows past the end arrive as zeros.
__device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap* map, int c0, int c1,
                                            int c2, uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(barrier), "l"(policy)
      : "memory");
}

// Programmatic dependent launch; both do nothing in a plain launch.
__device__ __forceinline__ void wait_for_previous_grid() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void let_next_grid_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ int cluster_index() {
  uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

// The two halves of a barrier of the cluster: initialised barriers of the blocks that have arrived
// can be used from then on.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of the cluster's block `rank` that corresponds to one of this block's own.
__device__ __forceinline__ uint32_t peer_address(uint32_t address, uint32_t rank) {
  uint32_t peer;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  return peer;
}

// Writes 16 bytes to a peer, which sees them once its barrier has counted them.
__device__ __forceinline__ void send(uint32_t peer, const float (&v)[4], uint32_t peer_barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32"
      " [%0], {%1, %2, %3, %4}, [%5];" ::"r"(peer),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(peer_barrier)
      : "memory");
}

__device__ __forceinline__ void sync_warps(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Keeps a value in its register: the compiler cannot compute a shuffle's result again from the
// thread index or the parameters in every iteration.
template <class T>
__device__ __forceinline__ T pinned(T value) {
  return __shfl_sync(~0u, value, threadIdx.x & 31);
}

}  // namespace specfarm
