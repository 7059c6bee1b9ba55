// Which row tiles and k blocks a thread block works on, and where its shared memory lies.
// None of it depends on M, so a row's sum has one order whatever the batch.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"

namespace specfarm {

// A stage in memory is one piece. W12 begins with its escapes: a word a share and row tile (u16
// [share][row tile], then the end of the last), see `put_chunk`, then `room` entries. Then the
// blocks [k block][row tile]; the last stage of a pass has as many k blocks as are left. Pieces
// start at 128 bytes: those that begin within a line of the cache come up to 8 % slower.
__host__ __device__ inline uint32_t escape_bytes(const SkinnyParams& p, int rows) {
  return p.room ? static_cast<uint32_t>((p.split * rows + 1 + p.room) * 2 + 127) & ~127u : 0u;
}

// What the host derives from the parameters of a launch: a thread block that divides, or computes
// where its memory lies, asks for its first weights a microsecond later. In shared memory a stage is
// activations, the piece of weights and two barriers; after the ring come the planes of every share
// of every row tile, then what a cluster exchanges.
struct LaunchPlan {
  uint32_t w_offset, barrier_offset;      // within a stage
  uint32_t stage, ring, exchange, total;  // bytes; `exchange`: where it begins
  int32_t consumers;                      // warps
  int32_t per_step;                       // k blocks of a stage
  int32_t steps[kMaxCluster];             // stages a pass over a rank's k range takes
  int32_t passes[2];                      // over the row tiles: of groups without and with one more
  uint32_t received[2][kMaxCluster];      // bytes of partial sums that a rank of these gets

  __host__ LaunchPlan(const SkinnyParams& p, int block_bytes, int token_tiles) {
    per_step = p.split * p.chunk;
    consumers = (p.grouped ? (p.row_warps + 3) / 4 * 4 : p.row_warps) * p.split;
    w_offset = static_cast<uint32_t>(per_step * token_tiles * 8 * 128);
    barrier_offset = w_offset + escape_bytes(p, p.row_warps) +
                     static_cast<uint32_t>(per_step * p.row_warps * block_bytes);
    stage = (barrier_offset + 16 + 1023) & ~1023u;  // the swizzle needs 1024-byte alignment
    ring = stage * p.stages;
    exchange = ring + (p.room ? p.row_warps * per_step * kPlaneBytes : 0);
    for (int rank = 0; rank < kMaxCluster; ++rank) {
      const int kblocks = rank < p.cluster ? p.k_start[rank + 1] - p.k_start[rank] : 0;
      steps[rank] = (kblocks + per_step - 1) / per_step;
    }
    for (int more = 0; more < 2; ++more) {
      passes[more] = (p.each + more + p.row_warps - 1) / p.row_warps;
      for (int rank = 0; rank < kMaxCluster; ++rank) {
        const int items = ((p.each + more) * token_tiles - rank + p.cluster - 1) / p.cluster;
        received[more][rank] = items * p.cluster * p.split * 512;
      }
    }
    total = exchange + (p.cluster > 1 ? 16 + received[p.extra > 0][0] : 0);
  }
};

struct WorkRange {
  int rank;               // of this thread block in its cluster
  int tile_first, tiles;  // row tiles of the cluster
  int k_first, k_count;   // k blocks of this thread block
  int steps;              // stages a pass over the k range takes
  int passes;             // passes over the row tiles, row_warps at a time

  __device__ __forceinline__ WorkRange(const SkinnyParams& p, const LaunchPlan& plan) {
    const int group = cluster_index();
    rank = cluster_rank();
    const int more = group < p.extra;
    tile_first = group * p.each + min(group, p.extra);
    tiles = p.each + more;
    k_first = p.k_start[rank];
    k_count = p.k_start[rank + 1] - k_first;
    steps = plan.steps[rank];
    passes = plan.passes[more];
  }
  __device__ __forceinline__ int rows(const SkinnyParams& p, int pass) const {
    return min(p.row_warps, tiles - pass * p.row_warps);
  }
};

}  // namespace specfarm
