// SPDX-License-Identifier: Apache-2.0
// Umbrella header.
#pragma once

#include "octavo/attention.hpp"
#include "octavo/backend.hpp"
#include "octavo/device_memory.hpp"
#include "octavo/dtype.hpp"
#include "octavo/error.hpp"
#include "octavo/explain.hpp"
#include "octavo/gemm.hpp"
#include "octavo/grouped_gemm.hpp"
#include "octavo/metrics.hpp"
#include "octavo/name_effect.hpp"
#include "octavo/naming.hpp"
#include "octavo/quantize.hpp"
#include "octavo/runtime.hpp"
#include "octavo/scale.hpp"
#include "octavo/tensor_view.hpp"
#include "octavo/tuning.hpp"
#include "octavo/warm_up.hpp"
