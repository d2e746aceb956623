#include "nn/data/collate.h"

#include <algorithm>
#include <string>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"

namespace mx::data {
namespace {

void check_types(const std::vector<Sample>& samples, size_t field, const char* name) {
  const HostArray& first = samples[0][field];
  for (size_t i = 1; i < samples.size(); ++i) {
    const HostArray& other = samples[i][field];
    MX_CHECK(other.dtype() == first.dtype() && other.rank() == first.rank(), InvalidArgument, "[", name,
             "] expected samples of one type and rank in field ", field, ", got ", first.dtype(),
             " of shape ", first.shape(), " and, at place ", i, ", ", other.dtype(), " of shape ",
             other.shape());
  }
}

void check_samples(const std::vector<Sample>& samples, const char* name) {
  MX_CHECK(!samples.empty(), InvalidArgument, "[", name, "] expected at least one sample, got none");
  for (size_t i = 1; i < samples.size(); ++i)
    MX_CHECK(samples[i].size() == samples[0].size(), InvalidArgument, "[", name, "] expected samples of ",
             samples[0].size(), " fields, got one of ", samples[i].size(), " at place ", i);
}

HostArray stacked(const std::vector<Sample>& samples, size_t field, const char* name) {
  const HostArray& first = samples[0][field];
  Shape shape = first.shape();
  shape.insert(0, static_cast<int64_t>(samples.size()));
  HostArray made(shape, first.dtype());
  for (size_t i = 0; i < samples.size(); ++i) {
    const HostArray& one = samples[i][field];
    MX_CHECK(one.shape() == first.shape() && one.dtype() == first.dtype(), InvalidArgument, "[", name,
             "] expected samples of one shape and type in field ", field, ", got ", first.dtype(),
             " of shape ", first.shape(), " and, at place ", i, ", ", one.dtype(), " of shape ", one.shape());
    if (one.bytes() > 0) std::memcpy(made.raw() + i * one.bytes(), one.raw(), one.bytes());
  }
  return made;
}

HostArray padded(const std::vector<Sample>& samples, size_t field, const PadOptions& options) {
  check_types(samples, field, "pad");
  const HostArray& first = samples[0][field];
  Shape shape = first.shape();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    bool differs = false;
    for (const Sample& sample : samples) {
      differs |= sample[field].size(axis) != first.size(axis);
      shape[axis] = std::max(shape[axis], sample[field].size(axis));
    }
    const int64_t multiple = options.multiple;
    if (differs || axis == 0) shape[axis] = (shape[axis] + multiple - 1) / multiple * multiple;
  }
  shape.insert(0, static_cast<int64_t>(samples.size()));
  HostArray made(shape, first.dtype());
  MX_CHECK(fits(Scalar(options.value), first.dtype()), InvalidArgument,
           "[pad] expected a value that fits the type ", first.dtype(), " of field ", field, ", got ",
           options.value);
  if (options.value != 0) mx::kernels::fill(made.tensor(), Scalar(options.value));
  for (size_t i = 0; i < samples.size(); ++i) {
    const HostArray& one = samples[i][field];
    Tensor target = made.tensor().narrowed(0, static_cast<int64_t>(i), 1);
    target.shape.erase(0);
    target.strides.erase(0);
    for (int axis = 0; axis < one.rank(); ++axis) target = target.narrowed(axis, 0, one.size(axis));
    if (one.numel() > 0) mx::kernels::copy(target, one.tensor());
  }
  return made;
}

HostArray lengths_of(const std::vector<Sample>& samples) {
  std::vector<int64_t> lengths;
  for (const Sample& sample : samples) {
    MX_CHECK(!sample.empty() && sample[0].rank() >= 1, InvalidArgument,
             "[pad] expected samples whose field 0 has a length, got one of rank 0");
    lengths.push_back(sample[0].size(0));
  }
  return host_array(lengths);
}

HostArray joined_rows(const std::vector<Sample>& samples, size_t field) {
  check_types(samples, field, "join");
  Shape shape = samples[0][field].shape();
  int64_t rows = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    Shape same = samples[i][field].shape();
    rows += same[0];
    same[0] = shape[0];
    MX_CHECK(same == shape, InvalidArgument, "[join] expected samples that differ in their first size only ",
             "in field ", field, ", got shapes ", shape, " and, at place ", i, ", ",
             samples[i][field].shape());
  }
  shape[0] = rows;
  HostArray made(shape, samples[0][field].dtype());
  size_t at = 0;
  for (const Sample& sample : samples) {
    if (sample[field].bytes() > 0) std::memcpy(made.raw() + at, sample[field].raw(), sample[field].bytes());
    at += sample[field].bytes();
  }
  return made;
}

}  // namespace

Collate stack() {
  return [](std::vector<Sample>&& samples) {
    check_samples(samples, "stack");
    Sample batch;
    for (size_t field = 0; field < samples[0].size(); ++field)
      batch.push_back(stacked(samples, field, "stack"));
    return batch;
  };
}

Collate pad(const PadOptions& options) {
  MX_CHECK(options.multiple > 0, InvalidArgument, "[pad] expected a multiple above 0, got ",
           int64_t{options.multiple});
  return [options](std::vector<Sample>&& samples) {
    check_samples(samples, "pad");
    const auto fields = static_cast<int64_t>(samples[0].size());
    for (int64_t field : options.fields)
      MX_CHECK(field >= 0 && field < fields, InvalidArgument, "[pad] expected fields from 0 to ", fields - 1,
               ", got ", field);
    Sample batch;
    for (int64_t field = 0; field < fields; ++field) {
      const bool chosen = options.fields.empty() || std::find(options.fields.begin(), options.fields.end(),
                                                              field) != options.fields.end();
      const auto f = static_cast<size_t>(field);
      batch.push_back(chosen ? padded(samples, f, options) : stacked(samples, f, "pad"));
    }
    if (options.lengths) batch.push_back(lengths_of(samples));
    return batch;
  };
}

Collate join() {
  return [](std::vector<Sample>&& samples) {
    check_samples(samples, "join");
    MX_CHECK(!samples[0].empty() && samples[0][0].rank() >= 1, InvalidArgument,
             "[join] expected samples whose field 0 has rows, got ",
             samples[0].empty() ? "no field" : "one of rank 0");
    Sample batch;
    for (size_t field = 0; field < samples[0].size(); ++field)
      batch.push_back(samples[0][field].rank() == 0 ? stacked(samples, field, "join")
                                                    : joined_rows(samples, field));
    std::vector<int64_t> offsets = {0};
    for (const Sample& sample : samples) offsets.push_back(offsets.back() + sample[0].size(0));
    batch.push_back(host_array(offsets));
    return batch;
  };
}

}  // namespace mx::data
