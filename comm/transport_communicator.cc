#include "comm/transport_communicator.h"

#include <algorithm>
#include <chrono>
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

CostModel TransportCommunicator::fit(int64_t budget_ms) {
  if (size() == 1) return model();
  using Clock = std::chrono::steady_clock;
  constexpr size_t kSizes[] = {1024, 16 * 1024, 128 * 1024, 1024 * 1024};
  constexpr int64_t kMostRepeats = 20;
  std::vector<float> values(kSizes[std::size(kSizes) - 1] / sizeof(float), 1.f);
  CallOptions options;
  options.order = Order::any;
  options.what = "measurement of the cost model";
  std::vector<double> times;  // one per size and algorithm; negative: not usable
  for (const size_t bytes : kSizes)
    for (int a = 0; a < kAlgorithms; ++a) {
      const auto algorithm = static_cast<Algorithm>(a);
      times.push_back(-1);
      if (model().predict_us(algorithm, bytes) > 1e15) continue;  // equal on all ranks
      set_algorithm(algorithm);
      // Rank 0 decides how often, by the time of the second call: the first one also touches new memory. The
      // fastest call counts, because other programs only make calls slower.
      double best = 1e15;
      int64_t repeats = 2;
      for (int64_t i = 0; i <= repeats; ++i) {
        std::fill(values.begin(), values.end(), 1.f);
        const auto begin = Clock::now();
        allreduce(values.data(), values.data(), bytes / sizeof(float), Type::f32, options);
        const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
        best = std::min(best, us);
        if (i != 1) continue;
        const double share = static_cast<double>(budget_ms) * 1000 / (std::size(kSizes) * kAlgorithms);
        repeats = std::clamp<int64_t>(static_cast<int64_t>(share / std::max(us, 1.)), 3, kMostRepeats);
        broadcast(&repeats, &repeats, 1, Type::i64, 0, options);
      }
      times.back() = best;
    }
  set_algorithm(std::nullopt);
  // A call with less data takes no longer than one with more. This removes most disturbed measurements.
  for (size_t i = times.size() - kAlgorithms; i-- > 0;) times[i] = std::min(times[i], times[i + kAlgorithms]);
  broadcast(times.data(), times.data(), times.size(), Type::f64, 0, options);
  std::vector<CostModel::Sample> samples;
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    CostModel::Sample& sample = samples.emplace_back();
    sample.bytes = kSizes[s];
    std::copy_n(times.begin() + static_cast<ptrdiff_t>(s * kAlgorithms), kAlgorithms, sample.us.begin());
  }
  CostModel fitted = model();
  fitted.set_samples(std::move(samples));
  set_model(fitted);
  return fitted;
}

}  // namespace mx::comm
