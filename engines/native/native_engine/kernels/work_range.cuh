// Which row tiles and k blocks a thread block works on, and where its shared memory lies.
// None of it depends on M, so a row's sum has one order whatever the batch.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"

namespace specfarm {

struct WorkRange {
  int rank;                  // of this block in its cluster
  int tile_first, tile_end;  // row tiles of the cluster
  int k_first, k_end;        // k blocks of this block
  int steps;                 // stages a pass over the k range takes
  int passes;                // passes over the row tiles, row_warps at a time

  __device__ __forceinline__ explicit WorkRange(const SkinnyParams& p) {
    rank = p.cluster > 1 ? static_cast<int>(cluster_rank()) : 0;
    const int group = p.cluster > 1 ? blockIdx.x / p.cluster : blockIdx.x;
    tile_first = group * p.each + min(group, p.extra);
    tile_end = tile_first + p.each + (group < p.extra ? 1 : 0);
    k_first = p.kblocks * rank / p.cluster;
    k_end = p.kblocks * (rank + 1) / p.cluster;
    const int per_step = p.split * p.unroll;
    steps = (k_end - k_first + per_step - 1) / per_step;
    passes = (tile_end - tile_first + p.row_warps - 1) / p.row_warps;
  }
};

// A stage is activations, weights and its two barriers; after the ring the scratch of each consumer.
struct SharedLayout {
  uint32_t w_offset, barrier_offset;  // within a stage
  uint32_t stage, ring, total;        // bytes

  __host__ __device__ SharedLayout(const SkinnyParams& p, int block_bytes, int token_tiles,
                                   bool planes) {
    const int per_step = p.split * p.unroll;
    w_offset = static_cast<uint32_t>(per_step * token_tiles * 8 * 128);
    barrier_offset = w_offset + static_cast<uint32_t>(per_step * p.row_warps * block_bytes);
    stage = (barrier_offset + 16 + 1023) & ~1023u;  // the swizzle needs 1024-byte alignment
    ring = stage * p.stages;
    total = ring + (planes ? p.row_warps * p.split * kScratchBytes : 0);
  }
};

}  // namespace specfarm
