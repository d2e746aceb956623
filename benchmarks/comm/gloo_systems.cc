// Gloo over TCP at the loopback interface: its ring and its halving and doubling. Built if Gloo is installed.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "benchmarks/comm/allreduce.h"

namespace mx::bench {
namespace {

void add_floats(void* out, const void* a, const void* b, size_t count) {
  float* const sum = static_cast<float*>(out);
  const float* const x = static_cast<const float*>(a);
  const float* const y = static_cast<const float*>(b);
  for (size_t i = 0; i < count; ++i) sum[i] = x[i] + y[i];
}

class GlooRank : public AllreduceRank {
 public:
  GlooRank(const std::string& folder, int rank, int ranks)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, ranks)) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    gloo::rendezvous::FileStore store(folder);
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context_->connectFullMesh(store, device);
  }
  float* allocate(size_t count) override {
    memory_.emplace_back(count);
    return memory_.back().data();
  }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 protected:
  const std::shared_ptr<gloo::rendezvous::Context> context_;

 private:
  std::vector<std::vector<float>> memory_;
};

class GlooRing final : public GlooRank {
 public:
  using GlooRank::GlooRank;
  void allreduce(float* values, size_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values, count);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setReduceFunction(add_floats);
    gloo::allreduce(options);
  }
};

class GlooHalvingDoubling final : public GlooRank {
 public:
  using GlooRank::GlooRank;
  void allreduce(float* values, size_t count) override {
    auto& algorithm = algorithms_[{values, count}];
    // All ranks prepare the algorithm in their first call, which connects it.
    if (!algorithm)
      algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{values}, static_cast<int>(count));
    algorithm->run();
  }

 private:
  std::map<std::pair<float*, size_t>, std::unique_ptr<gloo::AllreduceHalvingDoubling<float>>> algorithms_;
};

/// A folder in which the ranks find each other; removed with the last copy.
std::shared_ptr<std::string> make_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "mx-gloo-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  return {new std::string(path), [](std::string* folder) {
            std::error_code ignored;
            std::filesystem::remove_all(*folder, ignored);
            delete folder;
          }};
}

template <class Rank>
AllreduceSystem gloo_system(const std::string& name) {
  return {.name = name,
          .prepare =
              [](int ranks) {
                return [folder = make_folder(), ranks](int rank) -> std::unique_ptr<AllreduceRank> {
                  return std::make_unique<Rank>(*folder, rank, ranks);
                };
              },
          .fewer_calls = 10};
}

}  // namespace

std::vector<AllreduceSystem> gloo_systems() {
  return {gloo_system<GlooRing>("gloo_ring"), gloo_system<GlooHalvingDoubling>("gloo_hd")};
}

}  // namespace mx::bench
