// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch/tile_counter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "kernels/contract/gemm_params.hpp"

namespace octavo::cuda {
namespace {

// A stream as the functions below see it.
struct Stream {
  std::uint64_t id = 0;
  int capture_status = 0;
  int error = 0;
};

Driver driver_of_streams() {
  Driver api{};
  api.StreamIsCapturing = [](void* stream, int* status) {
    *status = static_cast<Stream*>(stream)->capture_status;
    return 0;
  };
  api.StreamGetId = [](void* stream, std::uint64_t* id) {
    *id = static_cast<Stream*>(stream)->id;
    return static_cast<Stream*>(stream)->error;
  };
  return api;
}

TEST(TileCounter, a_stream_keeps_its_own_and_every_captured_launch_gets_one) {
  const Driver api = driver_of_streams();
  Stream one{.id = 71};
  Stream other{.id = 72};
  Stream captured{.id = 71, .capture_status = 1};
  const int of_one = tile_counter(api, &one);
  const int of_other = tile_counter(api, &other);
  EXPECT_GE(of_one, 0);
  EXPECT_NE(of_one, of_other);
  const int first = tile_counter(api, &captured);
  const int second = tile_counter(api, &captured);
  EXPECT_GE(first, 0);
  EXPECT_NE(first, second);
  for (const int captured_one : {first, second}) {
    EXPECT_NE(captured_one, of_one);
    EXPECT_NE(captured_one, of_other);
  }
  EXPECT_EQ(tile_counter(api, &one), of_one);
  EXPECT_EQ(tile_counter(api, &other), of_other);
}

TEST(TileCounter, none_if_the_driver_does_not_know_the_stream_or_all_are_taken) {
  Driver api = driver_of_streams();
  Stream unknown{.id = 73, .error = 1};
  EXPECT_EQ(tile_counter(api, &unknown), -1);
  Stream known{.id = 74};
  const int of_known = tile_counter(api, &known);
  Stream captured{.capture_status = 1};
  int most = -1;
  for (int i = 0; i < kTileCounters; ++i) most = std::max(most, tile_counter(api, &captured));
  EXPECT_EQ(most, kTileCounters - 1);
  EXPECT_EQ(tile_counter(api, &captured), -1);
  Stream late{.id = 75};
  EXPECT_EQ(tile_counter(api, &late), -1);
  EXPECT_EQ(tile_counter(api, &known), of_known);
  api.StreamIsCapturing = [](void*, int*) { return 1; };
  EXPECT_EQ(tile_counter(api, &known), -1);
}

}  // namespace
}  // namespace octavo::cuda
