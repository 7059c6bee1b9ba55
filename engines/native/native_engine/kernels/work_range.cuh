// Which row tiles and k blocks a thread block works on, and where its shared memory lies.
// None of it depends on M, so a row's sum has one order whatever the batch.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"

namespace specfarm {

struct WorkRange {
  int rank;                  // of this thread block in its cluster
  int tile_first, tile_end;  // row tiles of the cluster
  int k_first, k_count;      // k blocks of this thread block
  int per_step;              // k blocks of a stage
  int steps;                 // stages a pass over the k range takes
  int passes;                // passes over the row tiles, row_warps at a time

  __device__ __forceinline__ explicit WorkRange(const SkinnyParams& p) {
    const int group = blockIdx.x / p.cluster;
    rank = blockIdx.x - group * p.cluster;
    tile_first = group * p.each + min(group, p.extra);
    tile_end = tile_first + p.each + (group < p.extra ? 1 : 0);
    k_first = p.k_start[rank];
    k_count = p.k_start[rank + 1] - k_first;
    per_step = p.split * p.chunk;
    steps = (k_count + per_step - 1) / per_step;
    passes = (tile_end - tile_first + p.row_warps - 1) / p.row_warps;
  }
  __device__ __forceinline__ int rows(const SkinnyParams& p, int pass) const {
    return min(p.row_warps, tile_end - tile_first - pass * p.row_warps);
  }
};

// A stage in memory is one piece. W12 begins with its escapes: where those of each share and row
// tile start (u16 [share][row tile], and the end), then `room` entries; padded to 64 bytes. Then the
// blocks [k block][row tile]; the last stage of a pass has as many k blocks as are left.
__host__ __device__ inline uint32_t escape_bytes(const SkinnyParams& p, int rows) {
  return p.room ? static_cast<uint32_t>((p.split * rows + 1 + p.room) * 2 + 63) & ~63u : 0u;
}

// In shared memory a stage is activations, that piece and two barriers; after the ring the planes
// of every share of every row tile.
struct SharedLayout {
  uint32_t w_offset, barrier_offset;  // within a stage
  uint32_t stage, ring, total;        // bytes

  __host__ __device__ SharedLayout(const SkinnyParams& p, int block_bytes, int token_tiles) {
    const int per_step = p.split * p.chunk;
    w_offset = static_cast<uint32_t>(per_step * token_tiles * 8 * 128);
    barrier_offset = w_offset + escape_bytes(p, p.row_warps) +
                     static_cast<uint32_t>(per_step * p.row_warps * block_bytes);
    stage = (barrier_offset + 16 + 1023) & ~1023u;  // the swizzle needs 1024-byte alignment
    ring = stage * p.stages;
    total = ring + (p.room ? p.row_warps * p.split * p.chunk * kPlaneBytes : 0);
  }
};

}  // namespace specfarm
