#include "tests/cuda/executor/fake_convolution.h"

#include <cstddef>
#include <utility>

#include "engine/base/half.h"

namespace mx::test {
namespace {

double read(const void* data, cudnnDataType_t type, int64_t i) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return static_cast<const double*>(data)[i];
    case CUDNN_DATA_HALF:
      return static_cast<const float16*>(data)[i];
    case CUDNN_DATA_BFLOAT16:
      return static_cast<const bfloat16*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}
void write(void* data, cudnnDataType_t type, int64_t i, double x) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      static_cast<double*>(data)[i] = x;
      return;
    case CUDNN_DATA_HALF:
      static_cast<float16*>(data)[i] = static_cast<float>(x);
      return;
    case CUDNN_DATA_BFLOAT16:
      static_cast<bfloat16*>(data)[i] = static_cast<float>(x);
      return;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(x);
  }
}

std::vector<double> elements_of(const FakeTensor& t, const void* data) {
  std::vector<double> elements(static_cast<size_t>(t.numel()));
  for (int64_t i = 0; i < t.numel(); ++i) elements[static_cast<size_t>(i)] = read(data, t.type, t.place(i));
  return elements;
}

/// Row-major positions of some axes, one after the other.
class Positions {
 public:
  explicit Positions(std::vector<int64_t> sizes) : sizes_(std::move(sizes)), at_(sizes_.size()) {}
  bool advance() {
    for (size_t i = sizes_.size(); i-- > 0;) {
      if (++at_[i] < sizes_[i]) return true;
      at_[i] = 0;
    }
    return false;
  }
  int64_t operator[](size_t axis) const { return at_[axis]; }

 private:
  std::vector<int64_t> sizes_, at_;
};

}  // namespace

void compute(const FakeGraph& g, const std::map<int64_t, void*>& data) {
  std::array<std::vector<double>, 3> e;
  for (size_t i = 0; i < 3; ++i)
    e[i] = static_cast<int>(i) == g.part ? std::vector<double>(static_cast<size_t>(g.arrays[i].numel()))
                                         : elements_of(g.arrays[i], data.at(g.arrays[i].name));
  const std::vector<int64_t>&x = g.arrays[0].sizes, &w = g.arrays[1].sizes, &y = g.arrays[2].sizes;
  const size_t axes = x.size() - 2;
  const int64_t groups = x[1] / w[1], rows = w[0] / groups;
  std::vector<int64_t> all = y;  // image, row and position of y; then channel and tap of the weight
  all.insert(all.end(), w.begin() + 1, w.end());
  Positions p(all);
  do {
    int64_t in = p[0] * x[1] + p[1] / rows * w[1] + p[2 + axes], at = p[0] * y[1] + p[1],
            tap = p[1] * w[1] + p[2 + axes];
    bool inside = true;
    for (size_t a = 0; a < axes; ++a) {
      const int64_t o = p[2 + a], t = p[3 + axes + a];
      const int64_t place = o * g.stride[a] + t * g.dilation[a] - g.before[a];
      inside = inside && place >= 0 && place < x[2 + a];
      in = in * x[2 + a] + place;
      at = at * y[2 + a] + o;
      tap = tap * w[2 + a] + t;
    }
    if (!inside) continue;
    double &ex = e[0][static_cast<size_t>(in)], &ew = e[1][static_cast<size_t>(tap)],
           &ey = e[2][static_cast<size_t>(at)];
    (g.part == 0 ? ex : g.part == 1 ? ew : ey) += g.part == 0 ? ew * ey : g.part == 1 ? ex * ey : ex * ew;
  } while (p.advance());
  const FakeTensor& result = g.result();
  std::vector<double>& sums = e[static_cast<size_t>(g.part)];
  const int64_t inner = result.numel() / result.sizes[0] / result.sizes[1];
  for (int64_t i = 0; i < result.numel(); ++i) {
    double sum = sums[static_cast<size_t>(i)];
    if (g.bias) sum += read(data.at(g.bias->name), g.bias->type, g.bias->place(i / inner % result.sizes[1]));
    write(data.at(result.name), result.type, result.place(i), sum);
  }
}

}  // namespace mx::test
