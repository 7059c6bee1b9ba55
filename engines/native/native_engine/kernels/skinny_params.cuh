// What the host hands a launch. Mirrored by `skinny.py`: keep the field order.
#pragma once
#include <cstdint>

namespace specfarm {

constexpr int kMaxWarps = 20;  // 19 consumers and the producer: 96 registers a thread
constexpr int kTileRows = 16;
constexpr int kBlockCols = 64;
constexpr int kPlaneBytes = 2048;    // a block's exponents in place, two bytes a weight
constexpr int kScratchBytes = 2432;  // of a consumer warp: its plane, 2 x 32 meta words, 32 entries

struct SkinnyParams {
  const uint8_t* weights;       // [tiles][kblocks][block bytes]
  const uint32_t* escape_meta;  // [tiles][kblocks]: start in the tile << 11 | count
  const uint32_t* tile_start;   // [tiles + 1]
  const uint32_t* entries;      // position << 8 | exponent
  void* out;                    // [m][ldo] bf16, or float when out_f32
  int32_t m, ldo, tiles, kblocks;
  int32_t groups;     // clusters of blocks; each takes a contiguous range of row tiles,
  int32_t each;       // this many,
  int32_t extra;      // and the first `extra` of them one more
  int32_t cluster;    // blocks a cluster: they share the k blocks
  int32_t row_warps;  // row tiles a block works on at a time
  int32_t split;      // warps that share the k blocks of one row tile, in turn
  int32_t unroll;     // k blocks a warp takes from a stage; no influence on the order of sums
  int32_t stages;
  int32_t base;       // first exponent of the window
  int32_t out_f32;
  int32_t dependent;  // launched before the previous grid has ended
  uint32_t zero;      // 0, unknown to the compiler: see `release`
};

}  // namespace specfarm
