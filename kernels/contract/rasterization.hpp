// SPDX-License-Identifier: Apache-2.0
// Which tile of D a persistent thread block works on next. Tiles of a cluster are neighbours, and
// clusters walk down a group of rows before they go on along N, so that thread blocks that run at
// the same time read the same few rows of A and B from the second-level cache.
#pragma once

namespace octavo {

struct TileIndex {
  int m;
  int n;
};

// Clusters cover cluster_m x cluster_n tiles; `linear` counts clusters, 0 to num_clusters - 1.
struct Rasterization {
  int clusters_m;
  int clusters_n;
  int group_m;

  [[nodiscard]] constexpr int num_clusters() const noexcept { return clusters_m * clusters_n; }

  [[nodiscard]] constexpr TileIndex cluster(int linear) const noexcept {
    const int per_group = group_m * clusters_n;
    const int group = linear / per_group;
    const int first_m = group * group_m;
    const int left = clusters_m - first_m;
    const int height = left < group_m ? left : group_m;
    const int within = linear - group * per_group;
    return {first_m + within % height, within / height};
  }
};

[[nodiscard]] constexpr Rasterization rasterization(int m, int n, int tile_m, int tile_n,
                                                    int cluster_m, int cluster_n,
                                                    int group_m) noexcept {
  const int tiles_m = m / tile_m + (m % tile_m != 0 ? 1 : 0);
  const int tiles_n = n / tile_n + (n % tile_n != 0 ? 1 : 0);
  return {(tiles_m + cluster_m - 1) / cluster_m, (tiles_n + cluster_n - 1) / cluster_n, group_m};
}

}  // namespace octavo
