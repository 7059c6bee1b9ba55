// What the host hands a launch. Mirrored by `skinny.py`: keep the field order.
#pragma once
#include <cstdint>

namespace specfarm {

constexpr int kMaxWarps = 21;  // 20 consumers and the producer: 80 registers a thread
constexpr int kTileRows = 16;
constexpr int kBlockCols = 64;
constexpr int kPlaneBytes = 1024;  // a block's escape bits in place
constexpr int kMaxCluster = 4;

struct SkinnyParams {
  const uint8_t* weights;       // [thread block][pass][stage], see `StageBytes`
  const uint32_t* escape_meta;  // [row tile][k block]: start in the tile << 11 | count
  const uint32_t* tile_start;   // [row tiles + 1]
  const uint16_t* entries;      // escape bits << 11 | byte of the plane
  void* out;                    // [m][ldo] bf16, or float when out_f32
  int64_t block_stride;         // bytes between the weights of two thread blocks
  int32_t m, ldo, kblocks;
  int32_t groups;     // clusters of thread blocks; each takes a contiguous range of row tiles,
  int32_t each;       // this many,
  int32_t extra;      // and the first `extra` of them one more
  int32_t cluster;    // thread blocks a cluster: they share the k blocks,
  int32_t k_start[kMaxCluster + 1];  // each from its own to the next one's
  int32_t row_warps;  // row tiles a thread block works on at a time
  int32_t split;      // warps that share the k blocks of one row tile
  int32_t chunk;      // k blocks in a row a warp takes from a stage
  int32_t grouped;    // consumer warps in fours that multiply together
  int32_t stages;
  int32_t room;       // escape entries a stage has room for
  int32_t base;       // first exponent of the window
  int32_t out_f32;
  int32_t dependent;  // launched before the previous grid has ended
  uint32_t zero;      // 0, unknown to the compiler: see `release`
  const uint8_t* next;  // weights of the launch that follows, or null
  int64_t next_stride;  // bytes between the weights of two of its thread blocks
  int32_t next_blocks;
  int32_t next_bytes;   // that a thread block calls into the L2 cache
};

}  // namespace specfarm
