// A program whose loader, iterator and batches outlive main, with copies to a device in flight.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "nn/data/loader.h"
#include "operators/elementwise_binary.h"

namespace {

using namespace mx;

// Constructed before the engine, so destroyed after the engine has drained.
struct Outlives {
  std::unique_ptr<data::Loader> on_cpu, on_device;
  data::Loader::Iterator iterator, device_iterator;
  data::Batch batch;
  NDArray result;
  ~Outlives() {
    if (!result.defined()) return;
    if (result.context() != virt(0) || batch.labels().data<int64_t>()[1] != 1) std::abort();
    std::puts("outlived");
  }
} outlives;

}  // namespace

int main() {
  const data::ArrayDataset set({full({1000, 700}, 2.f), arange(1000)});
  const data::Transform noise = data::add_noise(1);
  outlives.on_cpu =
      std::make_unique<data::Loader>(set, data::LoaderOptions{.batch_size = 50, .transform = noise});
  outlives.on_device = std::make_unique<data::Loader>(
      set, data::LoaderOptions{.batch_size = 50, .prefetch = 4, .context = virt(0), .transform = noise});
  outlives.iterator = outlives.on_cpu->begin();
  outlives.batch = *outlives.iterator;
  ++outlives.iterator;
  outlives.device_iterator = outlives.on_device->begin();
  for (int i = 0; i < 3; ++i) {
    outlives.result = outlives.device_iterator->images() * 2;
    ++outlives.device_iterator;
  }
  return 0;
}
