// Adds the partial sums of the warps that shared a row tile, in a fixed order, and stores.
#pragma once
#include <cuda_bf16.h>

#include "async_copy.cuh"
#include "skinny_params.cuh"
#include "work_range.cuh"

namespace specfarm {

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Turns a lane's (row g, tokens 2q, 2q + 1) into (token g, rows 2q, 2q + 1).
__device__ __forceinline__ uint32_t transpose8x8(uint32_t v) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

// c: rows g, g + 8 of the row tile, tokens 2q, 2q + 1 of the token tile. All lanes take part.
__device__ __forceinline__ void store_tile(const SkinnyParams& p, const float (&c)[4], int tile,
                                           int token_tile, int lane) {
  const int g = lane >> 2, q = lane & 3;
  const int64_t row = static_cast<int64_t>(tile) * kTileRows;
  if (p.out_f32) {
    float* out = static_cast<float*>(p.out);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = token_tile * 8 + 2 * q + (i & 1);
      if (token < p.m) out[static_cast<int64_t>(token) * p.ldo + row + g + 8 * (i >> 1)] = c[i];
    }
    return;
  }
  const uint32_t low = transpose8x8(pack_bf16(c[0], c[1]));
  const uint32_t high = transpose8x8(pack_bf16(c[2], c[3]));
  const int token = token_tile * 8 + g;
  if (token < p.m) {
    uint16_t* out = static_cast<uint16_t*>(p.out) + static_cast<int64_t>(token) * p.ldo + row;
    *reinterpret_cast<uint32_t*>(out + 2 * q) = low;
    *reinterpret_cast<uint32_t*>(out + 8 + 2 * q) = high;
  }
}

// Partial sums go through the ring, which is empty by now: [row warp][split][token tile][lane].
template <int kTokenTiles>
__device__ __forceinline__ void publish_partials(uint32_t ring, const float (&acc)[kTokenTiles][4],
                                                 int share, int lane) {
  const uint32_t mine = ring + (share * kTokenTiles * 32 + lane) * 16;
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n)
    shared_at<float4>(mine + n * 512) = make_float4(acc[n][0], acc[n][1], acc[n][2], acc[n][3]);
}

template <int kTokenTiles>
__device__ __forceinline__ void reduce_and_store(const SkinnyParams& p, const WorkRange& work,
                                                 uint32_t ring, int consumer, int lane) {
  const int consumers = consumer_warps(p);
  const int rows = min(p.row_warps, work.tile_end - work.tile_first);
  for (int item = work.rank * consumers + consumer; item < rows * kTokenTiles;
       item += consumers * p.cluster) {
    const int r = item / kTokenTiles, n = item % kTokenTiles;
    float c[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 1
    for (int rank = 0; rank < p.cluster; ++rank) {
      for (int s = 0; s < p.split; ++s) {
        const uint32_t at = ring + (((r * p.split + s) * kTokenTiles + n) * 32 + lane) * 16;
        const float4 v = p.cluster > 1 ? read_peer(at, rank) : shared_at<float4>(at);
        c[0] += v.x, c[1] += v.y, c[2] += v.z, c[3] += v.w;
      }
    }
    store_tile(p, c, work.tile_first + r, n, lane);
  }
}

}  // namespace specfarm
