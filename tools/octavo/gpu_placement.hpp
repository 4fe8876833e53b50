// SPDX-License-Identifier: Apache-2.0
// Whether the command puts operands into GPU memory, and tensors that are there. The library takes
// operands where they are; a user of the command has them nowhere yet.
#pragma once

#include "gemm_request.hpp"
#include "host_tensor.hpp"
#include "octavo/device_memory.hpp"

namespace octavo::cli {

enum class Placement { kHost, kGpu };

// The GPU if --backend names "cuda", or if neither that nor OCTAVO_BACKEND names a back end, the
// numerics are the back end's own and "cuda" is available with a GPU that its kernels are for.
[[nodiscard]] Placement placement_of(const ExecutionRequest& how);

// A copy of a host tensor in the memory of GPU 0.
class GpuTensor {
 public:
  explicit GpuTensor(const HostTensor& host);  // an absent tensor's copy is absent

  // An absent tensor's view is absent.
  [[nodiscard]] TensorView view() const { return mutable_view(); }
  [[nodiscard]] MutableTensorView mutable_view() const { return view_; }

  void upload(const HostTensor& host) {
    memory_.copy_from_host(host.bytes().data(), host.bytes().size());
  }
  void download(HostTensor& host) const {
    memory_.copy_to_host(host.mutable_bytes().data(), host.bytes().size());
  }

 private:
  DeviceMemory memory_;
  MutableTensorView view_;
};

}  // namespace octavo::cli
