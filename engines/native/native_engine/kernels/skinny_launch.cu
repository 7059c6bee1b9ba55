// C entry points of the skinny GEMM: loaded with ctypes, no framework headers.
#include <cuda_runtime.h>

#include "skinny_kernel.cuh"

namespace specfarm {

using Kernel = void (*)(SkinnyParams, LaunchPlan, CUtensorMap);

template <class Format, bool kGrouped>
Kernel pick(int token_tiles) {
  switch (token_tiles) {
    case 1: return skinny_kernel<Format, 1, kGrouped>;
    case 2: return skinny_kernel<Format, 2, kGrouped>;
    case 3: return skinny_kernel<Format, 3, kGrouped>;
    case 4: return skinny_kernel<Format, 4, kGrouped>;
    case 6: return skinny_kernel<Format, 6, kGrouped>;
    case 8: return skinny_kernel<Format, 8, kGrouped>;
    default: return nullptr;
  }
}

template <class Format>
Kernel pick(int token_tiles, bool grouped) {
  return grouped ? pick<Format, true>(token_tiles) : pick<Format, false>(token_tiles);
}

// Encodes x [m, kblocks * 64] as (64 columns, m rows, k blocks) so that one copy brings a stage.
using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                            const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                            const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

int encode_x(CUtensorMap* map, const void* x, int64_t ldx, const SkinnyParams& p,
             int token_tiles) {
  static Encode encode = nullptr;
  if (!encode) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) return 1001;
    encode = reinterpret_cast<Encode>(entry);
  }
  const cuuint64_t dims[3] = {64, static_cast<cuuint64_t>(p.m), static_cast<cuuint64_t>(p.kblocks)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(ldx) * 2, 128};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(token_tiles * 8),
                             static_cast<cuuint32_t>(p.split * p.chunk)};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(x), dims, strides, box,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? 0 : 2000 + static_cast<int>(result);
}

}  // namespace specfarm

extern "C" {

const char* specfarm_error(int code) {
  if (code == 1001) return "the driver has no cuTensorMapEncodeTiled";
  if (code == 1002) return "no kernel for this number of token tiles";
  if (code >= 2000) return "cuTensorMapEncodeTiled refused x: is it 16-byte aligned?";
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

// Shared memory a block of the device may use, bytes; 0 when it cannot be asked.
int specfarm_shared_limit(int device) {
  int bytes = 0;
  const cudaError_t status =
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return status == cudaSuccess ? bytes : 0;
}

int specfarm_skinny(const specfarm::SkinnyParams* p, const void* x, int64_t ldx, int w12,
                    int token_tiles, void* stream) {
  using namespace specfarm;
  const bool grouped = p->grouped != 0;
  const Kernel kernel =
      w12 ? pick<W12Format>(token_tiles, grouped) : pick<RawFormat>(token_tiles, grouped);
  if (!kernel) return 1002;
  CUtensorMap map;
  if (const int code = encode_x(&map, x, ldx, *p, token_tiles)) return code;
  const int block_bytes = w12 ? W12Format::kBlockBytes : RawFormat::kBlockBytes;
  const LaunchPlan plan(*p, block_bytes, token_tiles);
  const int shared = static_cast<int>(plan.total);
  static int raised[2][2][9] = {};
  int& allowed = raised[w12 != 0][grouped][token_tiles];
  if (allowed < shared) {
    const cudaError_t status =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (status != cudaSuccess) return status;
    allowed = shared;
  }
  cudaLaunchAttribute attributes[2] = {};
  int count = 0;
  if (p->cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = p->cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (p->dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(p->groups * p->cluster);
  config.blockDim = dim3((plan.consumers + 1) * 32);
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, *p, plan, map);
}
}
