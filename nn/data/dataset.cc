#include "nn/data/dataset.h"

#include <algorithm>
#include <string>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/parallel.h"
#include "nn/data/epoch_order.h"
#include "operators/custom.h"
#include "operators/indexing.h"

namespace mx::data {

ArrayDataset::ArrayDataset(std::vector<NDArray> arrays, std::vector<std::string> names,
                           std::source_location where) try
    : arrays_(std::move(arrays)), names_(std::move(names)) {
  MX_CHECK(!arrays_.empty(), InvalidArgument, "[ArrayDataset] expected at least one array, got none");
  for (const NDArray& array : arrays_) {
    MX_CHECK(array.defined() && array.rank() >= 1, InvalidArgument,
             "[ArrayDataset] expected arrays whose first dimension counts the samples, got ",
             array.defined() ? "one of rank 0" : "an empty handle");
    MX_CHECK(array.size(0) == arrays_[0].size(0), InvalidArgument,
             "[ArrayDataset] expected arrays with the same first dimension, got shapes ", arrays_[0].shape(),
             " and ", array.shape());
  }
  MX_CHECK(names_.empty() || names_.size() == arrays_.size(), InvalidArgument,
           "[ArrayDataset] expected one name for each of ", arrays_.size(), " arrays, got ", names_.size());
  for (size_t i = 0; i < names_.size(); ++i)
    MX_CHECK(std::find(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(i), names_[i]) ==
                 names_.begin() + static_cast<std::ptrdiff_t>(i),
             InvalidArgument, "[ArrayDataset] expected different names, got '", names_[i], "' twice");
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::vector<NDArray> ArrayDataset::gather(const Indices& indices) const {
  std::vector<NDArray> batch;
  batch.reserve(arrays_.size());
  for (const NDArray& array : arrays_)
    batch.push_back(take({array, indices.where()}, indices.array().to(array.context(), indices.where())));
  return batch;
}

const NDArray& ArrayDataset::array(size_t field) const {
  MX_CHECK(field < arrays_.size(), InvalidArgument, "[ArrayDataset] expected a field index below ",
           arrays_.size(), ", got ", field);
  return arrays_[field];
}

struct FunctionDataset::Source {
  int64_t size;
  std::vector<Field> fields;
  Read read;
};

namespace {

/// The operator that reads samples of a FunctionDataset. It shares ownership of the source, so an operation
/// in flight may outlive the data set.
struct ReadSamples : CustomOp {
  std::shared_ptr<const void> owner;
  const FunctionDataset::Read* read = nullptr;
  const std::vector<FunctionDataset::Field>* fields_of = nullptr;
  int64_t size = 0;

  static Operator record() {
    return {.kernel = {"read_samples"},
            .doc = "Samples that a user function reads for the given indices.",
            .inputs = {"indices"}};
  }
  void infer(InferContext& c) const {
    for (const FunctionDataset::Field& field : *fields_of) {
      Shape shape = field.shape;
      shape.insert(0, c.shape(0)[0]);
      c.output(shape, field.dtype);
    }
  }
  void forward(const KernelArgs& args) const {
    const Tensor& indices = args.in[0];
    const auto index = [&](int64_t i) { return indices.as<const int64_t>()[i * indices.strides[0]]; };
    const int64_t n = indices.shape[0];
    for (int64_t i = 0; i < n; ++i)
      MX_CHECK(index(i) >= 0 && index(i) < size, InvalidArgument,
               "[read_samples] expected indices from 0 to ", size - 1, ", got ", index(i), " at position ",
               i);
    parallel_for(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) read_one(args, i, index(i));
    });
  }

 private:
  void read_one(const KernelArgs& args, int64_t i, int64_t index) const {
    std::vector<Tensor> sample;
    for (const Tensor& batch : args.out) {
      Tensor one = batch.narrowed(0, i, 1);
      one.shape.erase(0);
      one.strides.erase(0);
      sample.push_back(one);
    }
    try {
      (*read)(index, sample);
    } catch (...) {
      std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
        return mx::detail::concat(text, " (in sample ", index, " of a FunctionDataset)");
      }));
    }
  }
};

const Operator& read_samples() {
  static const Operator op = mx::detail::make_custom<ReadSamples>();
  return op;
}

}  // namespace

FunctionDataset::FunctionDataset(int64_t size, std::vector<Field> fields, Read read,
                                 std::source_location where) try
    : size_(size) {
  MX_CHECK(size >= 0, InvalidArgument, "[FunctionDataset] expected a size that is not negative, got ", size);
  MX_CHECK(!fields.empty(), InvalidArgument, "[FunctionDataset] expected at least one field, got none");
  MX_CHECK(read != nullptr, InvalidArgument,
           "[FunctionDataset] expected a function that reads samples, got an empty one");
  for (const Field& field : fields) checked_numel(field.shape, size_of(field.dtype), "FunctionDataset");
  source_ = std::make_shared<const Source>(Source{size, std::move(fields), std::move(read)});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

std::vector<NDArray> FunctionDataset::gather(const Indices& indices) const {
  ReadSamples attrs;
  attrs.owner = source_;
  attrs.read = &source_->read;
  attrs.fields_of = &source_->fields;
  attrs.size = size_;
  const NDArray inputs[] = {indices.array()};
  return call(read_samples(), attrs, inputs, indices.where());
}

Subset::Subset(DatasetHandle base, std::vector<int64_t> indices, std::source_location where) try
    : base_(std::move(base)) {
  MX_CHECK(base_ != nullptr, InvalidArgument, "[Subset] expected a data set, got an empty pointer");
  for (size_t i = 0; i < indices.size(); ++i)
    MX_CHECK(indices[i] >= 0 && indices[i] < base_->size(), InvalidArgument,
             "[Subset] expected indices from 0 to ", base_->size() - 1, ", got ", indices[i], " at position ",
             i);
  map_ = mx::array(indices);
  indices_ = std::make_shared<const std::vector<int64_t>>(std::move(indices));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Indices Subset::in_base(const Indices& indices) const {
  std::vector<int64_t> values;
  values.reserve(indices.values().size());
  for (size_t i = 0; i < indices.values().size(); ++i) {
    const int64_t index = indices.values()[i];
    MX_CHECK(index >= 0 && index < size(), InvalidArgument, "[Subset] expected indices from 0 to ",
             size() - 1, ", got ", index, " at position ", i);
    values.push_back((*indices_)[static_cast<size_t>(index)]);
  }
  return Indices(std::move(values), take({map_, indices.where()}, indices.array()), indices.seed(),
                 indices.epoch(), indices.where());
}

std::vector<NDArray> Subset::gather(const Indices& indices) const { return base_->gather(in_base(indices)); }

PendingBatch Subset::start(const Indices& indices) const { return base_->start(in_base(indices)); }

std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<int64_t>& sizes,
                                 int64_t seed) {
  MX_CHECK(dataset != nullptr, InvalidArgument, "[random_split] expected a data set, got an empty pointer");
  int64_t total = 0;
  for (int64_t size : sizes) {
    MX_CHECK(size >= 0 && size <= dataset->size() - total, InvalidArgument,
             "[random_split] expected sizes that add up to ", dataset->size(), ", got ",
             size < 0 ? std::string("a negative one")
                      : "at least " + std::to_string(total) + " + " + std::to_string(size));
    total += size;
  }
  MX_CHECK(total == dataset->size(), InvalidArgument, "[random_split] expected sizes that add up to ",
           dataset->size(), ", got ", total);
  const std::vector<int64_t> order = random_order(total, seed, 0, RandomPurpose::split);
  std::vector<Subset> parts;
  auto first = order.begin();
  for (int64_t size : sizes) {
    parts.emplace_back(dataset, std::vector<int64_t>(first, first + size));
    first += size;
  }
  return parts;
}

}  // namespace mx::data
