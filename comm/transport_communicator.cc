#include "comm/transport_communicator.h"

#include <chrono>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace mx::comm {

TransportCommunicator::TransportCommunicator(std::unique_ptr<Transport> transport, int64_t timeout_ms)
    : transport_(std::move(transport)), timeout_ms_(timeout_ms), collectives_(*transport_) {
  MX_CHECK(timeout_ms > 0, InvalidArgument, "[TransportCommunicator] expected a positive time limit, got ",
           timeout_ms, " ms");
}

TransportCommunicator::~TransportCommunicator() { finish_calls(); }

void TransportCommunicator::execute(const Request& request, Deadline deadline) {
  std::lock_guard lock(mutex_);
  try {
    collectives_.run(request, deadline);
  } catch (const ProtocolError&) {
    throw;  // says which calls
  } catch (...) {
    std::rethrow_exception(rewrite_current_exception(
        [&](const std::string& text) { return mx::detail::concat("[", describe(request), "] ", text); }));
  }
}

void TransportCommunicator::interrupt(std::exception_ptr reason) { transport_->abort(std::move(reason)); }

CostModel TransportCommunicator::model() const {
  std::lock_guard lock(mutex_);
  return collectives_.model();
}

void TransportCommunicator::set_algorithm(std::optional<Algorithm> algorithm) {
  std::lock_guard lock(mutex_);
  collectives_.set_algorithm(algorithm);
}

void TransportCommunicator::set_model(const CostModel& model) {
  std::lock_guard lock(mutex_);
  collectives_.set_model(model);
}

CostModel TransportCommunicator::fit(int repeats) {
  MX_CHECK(repeats > 0, InvalidArgument, "[fit] expected at least one repetition, got ", repeats);
  if (size() == 1) return model();
  // On loopback, gathering and direct exchange take equally long somewhere between the first and the last
  // size; beyond it, every algorithm is bound by bytes, which the model extrapolates.
  constexpr size_t kSizes[] = {2 * 1024, 32 * 1024, 256 * 1024};
  std::vector<float> values(kSizes[std::size(kSizes) - 1] / sizeof(float));
  CallOptions options;
  options.order = Order::any;
  options.what = "measurement of the cost model";
  CostModel fitted = model();
  std::vector<CostModel::Sample> samples;
  for (const size_t bytes : kSizes) {
    samples.push_back({bytes, {}});
    samples.back().us.fill(CostModel::kNotMeasured);
    for (int a = 0; a < kAlgorithms; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      if (!fitted.is_usable(algorithm, bytes)) continue;  // equal on all ranks
      set_algorithm(algorithm);
      // The first call also touches new memory, so it does not count. Of the others the fastest counts,
      // because other programs only make calls slower.
      double& best = samples.back().us[static_cast<size_t>(a)];
      for (int i = 0; i <= repeats; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        allreduce(values.data(), values.data(), bytes / sizeof(float), Type::f32, options);
        const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
        if (i == 1 || (i > 1 && us.count() < best)) best = us.count();
      }
    }
  }
  set_algorithm(std::nullopt);
  static_assert(std::is_trivially_copyable_v<CostModel::Sample>);
  const size_t bytes = samples.size() * sizeof(CostModel::Sample);
  broadcast(samples.data(), samples.data(), bytes, Type::u8, 0, options);
  fitted.set_samples(std::move(samples));
  set_model(fitted);
  return fitted;
}

}  // namespace mx::comm
