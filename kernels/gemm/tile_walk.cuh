// SPDX-License-Identifier: Apache-2.0
// The tiles of a persistent thread block, one after another, and whose they are: of one product, of
// groups of rows, or of several products.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/gemm/pipeline.cuh"

namespace octavo {

struct Tile {
  int row_a;  // its first row of A, and of B
  int row_b;
  int end_a;  // rows of A from here on are not this product's or group's
  int group;  // which product or group that is
};

// The arguments of a tile's product.
__device__ __forceinline__ const GemmParams& product_of(const GemmParams& params, const Tile&) {
  return params;
}
__device__ __forceinline__ const GemmParams& product_of(const GroupedGemmParams& params,
                                                        const Tile&) {
  return params.gemm;
}
__device__ __forceinline__ const GemmParams& product_of(const FusedGemmParams& params,
                                                        const Tile& tile) {
  return params.products[tile.group];
}

// Addresses of its group.
template <typename Arguments>
__device__ __forceinline__ const ScaleParams& a_scale_of(const Arguments& params,
                                                         const Tile& tile) {
  return product_of(params, tile).a_scale;
}
template <typename Arguments>
__device__ __forceinline__ const ScaleParams& b_scale_of(const Arguments& params,
                                                         const Tile& tile) {
  return product_of(params, tile).b_scale;
}
template <typename Arguments>
__device__ __forceinline__ void* output_of(const Arguments& params, const Tile& tile) {
  return product_of(params, tile).output;
}
template <typename Arguments>
__device__ __forceinline__ const void* bias_of(const Arguments& params, const Tile& tile) {
  return product_of(params, tile).bias;
}
__device__ __forceinline__ ScaleParams a_scale_of(const GroupedGemmParams& params,
                                                  const Tile& tile) {
  ScaleParams scale = params.gemm.a_scale;
  scale.data = static_cast<const char*>(scale.data) + tile.group * params.a_scale_bytes;
  return scale;
}
__device__ __forceinline__ ScaleParams b_scale_of(const GroupedGemmParams& params,
                                                  const Tile& tile) {
  ScaleParams scale = params.gemm.b_scale;
  scale.data = static_cast<const char*>(scale.data) + tile.group * params.b_scale_bytes;
  return scale;
}
__device__ __forceinline__ void* output_of(const GroupedGemmParams& params, const Tile& tile) {
  return static_cast<char*>(params.gemm.output) + tile.group * params.output_bytes;
}
__device__ __forceinline__ const void* bias_of(const GroupedGemmParams& params, const Tile& tile) {
  return static_cast<const char*>(params.gemm.bias) + tile.group * params.bias_bytes;
}
// The map of A for tiles with rows for some of their parts.
__device__ __forceinline__ const TensorMap* a_parts_of(const GroupedGemmParams& params,
                                                       const Tile&) {
  return &params.a_parts;
}
__device__ __forceinline__ const TensorMap* a_parts_of(const FusedGemmParams& params,
                                                       const Tile& tile) {
  return &params.a_parts[tile.group];
}
// The matrix of A and D that a group's rows are in.
__device__ __forceinline__ int matrix_of(const GroupedGemmParams& params, const Tile& tile) {
  return params.ends == nullptr ? tile.group : 0;
}

// Where in a product the tile of this thread block lies, of the tiles of a cluster.
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ TileIndex tile_in_cluster(const TileIndex& cluster) {
  const ClusterPosition<config> position;
  return {(cluster.m * config.cluster_m + position.m) * config.tile_m,
          (cluster.n * config.cluster_n + position.n) * config.tile_n};
}

// One product's tiles: of every turns-th of a thread block's the turn-th and those after it.
template <GemmConfig config, int turns = 1, Grouping grouping = config.grouping>
class TileWalk {
 public:
  __device__ __forceinline__ explicit TileWalk(const GemmParams& params, int turn = 0)
      : params_(params),
        linear_(static_cast<int>(blockIdx.x) / cluster_size(config) + turn * num_clusters()) {}

  [[nodiscard]] __device__ __forceinline__ bool has_tile() const {
    return linear_ < params_.raster.num_clusters();
  }
  [[nodiscard]] __device__ __forceinline__ Tile tile() const {
    const TileIndex index = tile_in_cluster<config>(params_.raster.cluster(linear_));
    return {index.m, index.n, params_.m, 0};
  }
  __device__ __forceinline__ void advance() { linear_ += turns * num_clusters(); }

  // Whether the thread block has a tile before and after this one.
  [[nodiscard]] __device__ __forceinline__ bool is_first() const {
    return linear_ == static_cast<int>(blockIdx.x) / cluster_size(config);
  }
  [[nodiscard]] __device__ __forceinline__ bool is_last() const {
    return linear_ + num_clusters() >= params_.raster.num_clusters();
  }

 private:
  // PERF: computed again rather than kept: registers are short where this is used.
  [[nodiscard]] static __device__ __forceinline__ int num_clusters() {
    return static_cast<int>(gridDim.x) / cluster_size(config);
  }

  const GemmParams& params_;
  int linear_;
};

// Groups in their order; in each the clusters are numbered as Rasterization numbers a product's.
template <GemmConfig config>
class TileWalk<config, 1, Grouping::kRows> {
 public:
  static_assert(config.cluster_m == 1, "every tile has rows");

  __device__ __forceinline__ explicit TileWalk(const GroupedGemmParams& params)
      : params_(params), left_(static_cast<int>(blockIdx.x) / cluster_size(config)) {
    open();
    seek();
  }

  [[nodiscard]] __device__ __forceinline__ bool has_tile() const {
    return group_ < params_.num_groups;
  }
  [[nodiscard]] __device__ __forceinline__ Tile tile() const {
    const Rasterization& raster = params_.gemm.raster;
    const int band = raster.per_group.divide(left_);
    const int first_m = band * raster.group_m;
    const int height = min(tiles_m() - first_m, raster.group_m);
    const int within = left_ - first_m * raster.clusters_n;
    // PERF: every consumer waits for this between two tiles; only a group's last band divides.
    const int n = height == raster.group_m ? raster.height.divide(within) : within / height;
    const TileIndex index = tile_in_cluster<config>({first_m + within - n * height, n});
    return {begin_ + index.m, index.n, begin_ + rows_, group_};
  }
  // By so many clusters.
  __device__ __forceinline__ void advance(int clusters) {
    left_ += clusters;
    seek();
  }
  __device__ __forceinline__ void advance() {
    advance(static_cast<int>(gridDim.x) / cluster_size(config));
  }
  // Where there is no tile: clusters from the one behind the last to this one.
  [[nodiscard]] __device__ __forceinline__ int behind() const { return left_; }

 private:
  [[nodiscard]] __device__ __forceinline__ int tiles_m() const {
    return (rows_ + config.tile_m - 1) / config.tile_m;
  }

  // Reads where group_ is.
  __device__ __forceinline__ void open() {
    if (group_ >= params_.num_groups) return;
    const int end = params_.ends != nullptr ? params_.ends[group_] : params_.gemm.m;
    begin_ = params_.ends != nullptr ? next_begin_ : 0;
    next_begin_ = max(begin_, min(end, params_.gemm.m));
    rows_ = next_begin_ - begin_;
    if (params_.rows != nullptr) rows_ = max(0, min(params_.rows[group_], rows_));
  }

  // Passes over whole groups until the tile is one of group_'s.
  __device__ __forceinline__ void seek() {
    while (group_ < params_.num_groups) {
      const int clusters = tiles_m() * params_.gemm.raster.clusters_n;
      if (left_ < clusters) return;
      left_ -= clusters;
      ++group_;
      open();
    }
  }

  const GroupedGemmParams& params_;
  int left_;  // clusters from the group's first to this one
  int group_ = 0;
  int begin_ = 0;
  int rows_ = 0;
  int next_begin_ = 0;
};

// Products in their order.
template <GemmConfig config>
class TileWalk<config, 1, Grouping::kProducts> {
 public:
  static_assert(config.cluster_m == 1, "every tile has rows");

  __device__ __forceinline__ explicit TileWalk(const FusedGemmParams& params)
      : params_(params), left_(static_cast<int>(blockIdx.x) / cluster_size(config)) {
    seek();
  }

  [[nodiscard]] __device__ __forceinline__ bool has_tile() const {
    return product_ < params_.count;
  }
  [[nodiscard]] __device__ __forceinline__ Tile tile() const {
    const GemmParams& product = params_.products[product_];
    const TileIndex index = tile_in_cluster<config>(product.raster.cluster(left_));
    return {index.m, index.n, product.m, product_};
  }
  // By so many clusters.
  __device__ __forceinline__ void advance(int clusters) {
    left_ += clusters;
    seek();
  }
  __device__ __forceinline__ void advance() {
    advance(static_cast<int>(gridDim.x) / cluster_size(config));
  }
  // Where there is no tile: clusters from the one behind the last to this one.
  [[nodiscard]] __device__ __forceinline__ int behind() const { return left_; }

 private:
  __device__ __forceinline__ void seek() {
    for (; product_ < params_.count; ++product_) {
      const int clusters = params_.products[product_].raster.num_clusters();
      if (left_ < clusters) return;
      left_ -= clusters;
    }
  }

  const FusedGemmParams& params_;
  int left_;  // clusters from the product's first to this one
  int product_ = 0;
};

}  // namespace octavo
