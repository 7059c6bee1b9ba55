// Escapes of a chunk: their bits are put in place in the warp's planes, one a k block, which the
// decoding reads and clears.
#pragma once
#include "async_copy.cuh"
#include "skinny_params.cuh"

namespace specfarm {

// An entry in a stage: escape bits at 14..11, k block of the chunk at 10, byte of its plane below.
// In the list bit 10 is clear. What else the byte gets is masked out by the decoding.
__device__ __forceinline__ void put_escape(uint32_t planes, uint32_t entry) {
  shared_at<uint8_t>(planes + (entry & 2047u)) = static_cast<uint8_t>(entry >> 8);
}

// Beside where the escapes of a share start: which of its blocks have any, whether there are more
// than a lane each, whether the stage has no room for them and they are in the list.
constexpr uint32_t kStart = 0x0FFFu, kFirst = 0x1000u, kSecond = 0x2000u, kMore = 0x4000u,
                   kListed = 0x8000u;

// Slow, and needed where nearly everything is an escape.
__device__ __forceinline__ void put_listed(const SkinnyParams& p, uint32_t plane, int tile,
                                           int kblock, int lane) {
  const uint32_t meta = __ldg(p.escape_meta + static_cast<int64_t>(tile) * p.kblocks + kblock);
  const uint16_t* entries = p.entries + __ldg(p.tile_start + tile) + (meta >> 11);
#pragma unroll 1
  for (uint32_t i = lane; i < (meta & 2047u); i += 32) put_escape(plane, __ldg(entries + i));
}

// Puts the escapes of a chunk in place. Shared addresses: `starts`, the word of the chunk in its
// stage, and the stage's `entries`. The chunk is `here` k blocks from `kblock` on; bit j of the
// result: block j has any. The same for all lanes, and by votes, so that no branch has to be
// converged again.
__device__ __forceinline__ uint32_t put_chunk(const SkinnyParams& p, uint32_t planes,
                                              uint32_t starts, uint32_t entries, int tile,
                                              int kblock, int here, int lane) {
  const uint32_t word = shared_at<uint16_t>(starts);
  if (!__any_sync(~0u, word > kStart)) return 0;
  const uint32_t mine = (word & kStart) + lane;
  const uint32_t end = shared_at<uint16_t>(starts + 2) & kStart;
  const uint32_t entry = shared_at<uint16_t>(entries + 2 * mine);  // beyond the end: not used
  const bool first = __any_sync(~0u, word & kFirst), second = __any_sync(~0u, word & kSecond);
  __syncwarp();  // every lane has cleared what it read
  if (mine < end) put_escape(planes, entry);
  if (__any_sync(~0u, word & kMore)) {
#pragma unroll 1
    for (uint32_t i = mine + 32; i < end; i += 32)
      put_escape(planes, shared_at<uint16_t>(entries + 2 * i));
    for (int j = 0; j < here && (word & kListed); ++j)
      put_listed(p, planes + j * kPlaneBytes, tile, kblock + j, lane);
  }
  __syncwarp();
  return first | second << 1;
}

}  // namespace specfarm
