#include "nn/data/sample_source.h"

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "engine/base/check.h"
#include "nn/data/dataset.h"

namespace mx::data {
namespace {

class FunctionSource final : public SampleSource {
 public:
  FunctionSource(int64_t size, std::function<Sample(int64_t)> make, std::vector<std::string> names)
      : size_(size), make_(std::move(make)), names_(std::move(names)) {}
  int64_t size() const override { return size_; }
  std::vector<std::string> names() const override { return names_; }
  bool reads_files() const override { return false; }
  std::string fetch(int64_t) const override { return {}; }
  Sample decode(int64_t index, const std::string&) const override { return make_(index); }

 private:
  int64_t size_;
  std::function<Sample(int64_t)> make_;
  std::vector<std::string> names_;
};

class CachedSource final : public SampleSource {
 public:
  CachedSource(SourceHandle source, uint64_t max_bytes) : source_(std::move(source)), max_bytes_(max_bytes) {}
  int64_t size() const override { return source_->size(); }
  std::vector<std::string> names() const override { return source_->names(); }
  bool reads_files() const override { return source_->reads_files(); }

  std::string fetch(int64_t index) const override {
    return find(index) != nullptr ? std::string() : source_->fetch(index);
  }

  // A sample that fetch() has found is still there, because none is ever dropped.
  Sample decode(int64_t index, const std::string& bytes) const override {
    if (const auto kept = find(index); kept != nullptr) return *kept;
    auto made = std::make_shared<const Sample>(source_->decode(index, bytes));
    uint64_t size = 0;
    for (const HostArray& field : *made) size += field.bytes();
    const std::lock_guard lock(mutex_);
    if (size <= max_bytes_ - bytes_ && kept_.emplace(index, made).second) bytes_ += size;
    return *made;
  }

 private:
  std::shared_ptr<const Sample> find(int64_t index) const {
    const std::lock_guard lock(mutex_);
    const auto at = kept_.find(index);
    return at == kept_.end() ? nullptr : at->second;
  }

  SourceHandle source_;
  uint64_t max_bytes_;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::unordered_map<int64_t, std::shared_ptr<const Sample>> kept_;
  mutable uint64_t bytes_ = 0;
};

}  // namespace

SourceHandle function_source(int64_t size, std::function<Sample(int64_t)> make,
                             std::vector<std::string> names) {
  MX_CHECK(size >= 0 && make != nullptr, InvalidArgument,
           "[function_source] expected a size that is not negative and a function, got ", size,
           make == nullptr ? " and an empty function" : "");
  return std::make_shared<const FunctionSource>(size, std::move(make), std::move(names));
}

SourceHandle array_source(const std::vector<NDArray>& arrays, std::vector<std::string> names) {
  // Checks the arrays.
  const ArrayDataset set(arrays, names);
  // Operations read the copies through pointers. Nothing else has handles to them, so they need not be
  // declared to the engine.
  struct Rows {
    NDArray array;
    const std::byte* first;
  };
  std::vector<Rows> rows;
  for (const NDArray& array : arrays) {
    const NDArray own = array.to(cpu()).clone();
    rows.push_back({own, visit(own.dtype(), [&](auto tag) {
                      return reinterpret_cast<const std::byte*>(own.data<typename decltype(tag)::type>());
                    })});
  }
  return function_source(
      set.size(),
      [rows](int64_t i) {
        Sample sample;
        for (const Rows& row : rows) {
          Shape shape = row.array.shape();
          shape.erase(0);
          HostArray field(shape, row.array.dtype());
          if (field.bytes() > 0)
            std::memcpy(field.raw(), row.first + static_cast<size_t>(i) * field.bytes(), field.bytes());
          sample.push_back(std::move(field));
        }
        return sample;
      },
      std::move(names));
}

SourceHandle cached(SourceHandle source, uint64_t max_bytes) {
  MX_CHECK(source != nullptr, InvalidArgument, "[cached] expected a source, got an empty pointer");
  return std::make_shared<const CachedSource>(std::move(source), max_bytes);
}

SampleTransform chain(std::vector<SampleTransform> transforms) {
  for (const SampleTransform& transform : transforms)
    MX_CHECK(transform != nullptr, InvalidArgument, "[chain] expected functions, got an empty one");
  return [transforms = std::move(transforms)](Sample& sample, SampleRandom& random) {
    for (const SampleTransform& transform : transforms) {
      SampleRandom own(random.next());
      transform(sample, own);
    }
  };
}

}  // namespace mx::data
