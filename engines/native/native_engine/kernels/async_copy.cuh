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

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Reads 16 bytes of shared memory of the cluster's block `rank` at this block's own address.
__device__ __forceinline__ float4 read_peer(uint32_t address, uint32_t rank) {
  uint32_t peer;
  float4 v;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(peer)
               : "memory");
  return v;
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
