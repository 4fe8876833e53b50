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

// Division by a number that is known before the kernel runs, as a multiplication: n / d for n below
// 2^31 is (n + floor(n * multiplier / 2^32)) / 2^shift (Granlund and Montgomery 1994, figure 4.1).
struct Divisor {
  unsigned multiplier;
  unsigned shift;

  [[nodiscard]] constexpr int divide(int n) const noexcept {
    const auto value = static_cast<unsigned>(n);
    const auto high =
        static_cast<unsigned>((static_cast<unsigned long long>(value) * multiplier) >> 32);
    return static_cast<int>((high + value) >> shift);
  }
};

[[nodiscard]] constexpr Divisor divisor(int d) noexcept {
  unsigned shift = 0;
  while ((1ULL << shift) < static_cast<unsigned>(d)) ++shift;
  const auto by = static_cast<unsigned long long>(d);
  return {static_cast<unsigned>((((1ULL << shift) - by) << 32) / by + 1), shift};
}

// Clusters cover cluster_m x cluster_n tiles; `linear` counts clusters, 0 to num_clusters - 1.
struct Rasterization {
  int clusters_m;
  int clusters_n;
  int group_m;
  Divisor per_group;    // clusters of a group
  Divisor height;       // rows of a group
  Divisor last_height;  // rows of the last group, where it has fewer

  [[nodiscard]] constexpr int num_clusters() const noexcept { return clusters_m * clusters_n; }

  [[nodiscard]] constexpr TileIndex cluster(int linear) const noexcept {
    const int group = per_group.divide(linear);
    const int first_m = group * group_m;
    const int left = clusters_m - first_m;
    const int within = linear - group * group_m * clusters_n;
    const int n = left < group_m ? last_height.divide(within) : height.divide(within);
    return {first_m + within - n * (left < group_m ? left : group_m), n};
  }
};

[[nodiscard]] constexpr Rasterization rasterization(int m, int n, int tile_m, int tile_n,
                                                    int cluster_m, int cluster_n,
                                                    int group_m) noexcept {
  const int tiles_m = m / tile_m + (m % tile_m != 0 ? 1 : 0);
  const int tiles_n = n / tile_n + (n % tile_n != 0 ? 1 : 0);
  const int clusters_m = (tiles_m + cluster_m - 1) / cluster_m;
  const int clusters_n = (tiles_n + cluster_n - 1) / cluster_n;
  const int rest = clusters_m % group_m;
  return {clusters_m,       clusters_n,
          group_m,          divisor(group_m * clusters_n),
          divisor(group_m), divisor(rest != 0 ? rest : group_m)};
}

}  // namespace octavo
