// A group whose ranks are threads of this process.
//
//   auto group = make_thread_group(4);
//   // thread r: group[r]->allreduce(gradient, sum, count, Type::f32);
//
// Thread-safety: see comm/communicator.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/cost_model.h"
#include "comm/threads/thread_transport.h"

namespace mx::comm {

/// Returns the communicators of a group; element r is rank r.
std::vector<std::shared_ptr<Communicator>> make_thread_group(int ranks, int64_t timeout_ms = 60'000,
                                                             const ThreadTransportOptions& options = {},
                                                             std::optional<Algorithm> algorithm = {});

}  // namespace mx::comm
