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

// The sums of one token tile of one row tile: `shares` partial sums, 16 bytes a lane, `step` apart.
__device__ __forceinline__ void add_and_store(const SkinnyParams& p, uint32_t first, int shares,
                                              int step, int tile, int token_tile, int lane) {
  float c[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 4
  for (int s = 0; s < shares; ++s) {
    const float4 v = shared_at<float4>(first + s * step + 16 * lane);
    c[0] += v.x, c[1] += v.y, c[2] += v.z, c[3] += v.w;
  }
  store_tile(p, c, tile, token_tile, lane);
}

// Within a thread block partial sums go through the ring, which is empty by now: [row tile][share]
// [token tile][lane].
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
                                                 uint32_t ring, int consumers, int consumer,
                                                 int lane) {
  for (int item = consumer; item < work.tiles * kTokenTiles; item += consumers) {
    const int r = item / kTokenTiles, n = item % kTokenTiles;
    add_and_store(p, ring + (r * p.split * kTokenTiles + n) * 512, p.split, kTokenTiles * 512,
                  work.tile_first + r, n, lane);
  }
}

// In a cluster every thread block sends its partial sums of item i, a token tile of a row tile, to
// block i % cluster, which keeps those of all shares of all ranks in this order, behind a barrier
// that counts their bytes. Nobody waits for a peer to read, as a barrier of the cluster would have
// to: that one costs two fences of the whole device.
template <int kTokenTiles>
__device__ __forceinline__ void send_partials(const SkinnyParams& p, const WorkRange& work,
                                              uint32_t exchange, const float (&acc)[kTokenTiles][4],
                                              int row, int part, int lane) {
  const int shares = p.cluster * p.split, share = work.rank * p.split + part;
  int slot = row * kTokenTiles / p.cluster, rank = row * kTokenTiles - slot * p.cluster;
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    const uint32_t at = exchange + 16 + ((slot * shares + share) * 32 + lane) * 16;
    send(peer_address(at, rank), acc[n], peer_address(exchange, rank));
    if (++rank == p.cluster) rank = 0, ++slot;
  }
}

template <int kTokenTiles>
__device__ __forceinline__ void receive_and_store(const SkinnyParams& p, const WorkRange& work,
                                                  uint32_t exchange, int consumers, int consumer,
                                                  int lane) {
  const int shares = p.cluster * p.split;
  int slot = consumer;
  for (int item = slot * p.cluster + work.rank; item < work.tiles * kTokenTiles;
       item += consumers * p.cluster, slot += consumers) {
    barrier_wait_cluster(exchange, 0);
    add_and_store(p, exchange + 16 + slot * shares * 512, shares, 512,
                  work.tile_first + item / kTokenTiles, item % kTokenTiles, lane);
  }
}

}  // namespace specfarm
