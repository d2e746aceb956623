// op_bench_onednn: the operator cases that oneDNN has. Debian's library uses an OpenMP team of its own, whose
// size the measuring process sets. Primitives are created once and executed many times, as oneDNN recommends.
#include <oneapi/dnnl/dnnl.hpp>

#include <cstring>
#include <memory>
#include <unordered_map>

#include "benchmarks/op/runner.h"
#include "benchmarks/support/report.h"

namespace {

using namespace mx::bench;
using dnnl::algorithm;
using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

constexpr auto kInference = dnnl::prop_kind::forward_inference;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

memory::desc vector_of(int64_t n) { return {{n}, memory::data_type::f32, memory::format_tag::a}; }

memory filled(const memory::desc& desc, uint32_t seed) {
  memory m(desc, cpu_engine());
  fill_op_input(static_cast<float*>(m.get_data_handle()), static_cast<int64_t>(desc.get_size() / 4), seed);
  return m;
}

// Touches the pages of the result before the timing.
memory zeroed(const memory::desc& desc) {
  memory m(desc, cpu_engine());
  std::memset(m.get_data_handle(), 0, desc.get_size());
  return m;
}

OpCall executes(const dnnl::primitive& primitive, const Arguments& arguments) {
  return [primitive, arguments, stream = dnnl::stream(cpu_engine())]() mutable {
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

OpCall binary(algorithm kind, int64_t n) {
  const memory::desc d = vector_of(n);
  const dnnl::binary::primitive_desc p({kind, d, d, d}, cpu_engine());
  return executes(
      dnnl::binary(p),
      {{DNNL_ARG_SRC_0, filled(d, 1)}, {DNNL_ARG_SRC_1, filled(d, 2)}, {DNNL_ARG_DST, zeroed(d)}});
}

OpCall eltwise(algorithm kind, int64_t n) {
  const memory::desc d = vector_of(n);
  const dnnl::eltwise_forward::primitive_desc p({kInference, kind, d, 0.f, 0.f}, cpu_engine());
  return executes(dnnl::eltwise_forward(p), {{DNNL_ARG_SRC, filled(d, 1)}, {DNNL_ARG_DST, zeroed(d)}});
}

OpCall reduction(algorithm kind, int64_t n) {
  const memory::desc from = vector_of(n), to = vector_of(1);
  const dnnl::reduction::primitive_desc p({kind, from, to, 0.f, 0.f}, cpu_engine());
  return executes(dnnl::reduction(p), {{DNNL_ARG_SRC, filled(from, 1)}, {DNNL_ARG_DST, zeroed(to)}});
}

template <class Softmax>
OpCall softmax(int64_t n) {
  const memory::desc d({n / kOpColumns, kOpColumns}, memory::data_type::f32, memory::format_tag::ab);
  const typename Softmax::primitive_desc p({kInference, d, 1}, cpu_engine());
  return executes(Softmax(p), {{DNNL_ARG_SRC, filled(d, 1)}, {DNNL_ARG_DST, zeroed(d)}});
}

const auto kAffine = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

OpCall normalisation(const dnnl::primitive& primitive, const memory::desc& d, const memory::desc& statistics,
                     int64_t parameters) {
  const memory::desc p = vector_of(parameters);
  return executes(primitive, {{DNNL_ARG_SRC, filled(d, 1)},
                              {DNNL_ARG_DST, zeroed(d)},
                              {DNNL_ARG_MEAN, zeroed(statistics)},
                              {DNNL_ARG_VARIANCE, zeroed(statistics)},
                              {DNNL_ARG_SCALE, filled(p, 2)},
                              {DNNL_ARG_SHIFT, filled(p, 3)}});
}

OpCall layer_norm(int64_t n) {
  const memory::desc d({n / kOpColumns, kOpColumns}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc statistics = vector_of(n / kOpColumns);
  const dnnl::layer_normalization_forward::primitive_desc p(
      {dnnl::prop_kind::forward_training, d, statistics, 1e-5f, kAffine}, cpu_engine());
  return normalisation(dnnl::layer_normalization_forward(p), d, statistics, kOpColumns);
}

OpCall batch_norm(int64_t n) {
  const memory::desc d({kOpBatch, kOpChannels, n / kOpBatch / kOpChannels}, memory::data_type::f32,
                       memory::format_tag::abc);
  const dnnl::batch_normalization_forward::primitive_desc p(
      {dnnl::prop_kind::forward_training, d, 1e-5f, kAffine}, cpu_engine());
  return normalisation(dnnl::batch_normalization_forward(p), d, vector_of(kOpChannels), kOpChannels);
}

OpCall reorder(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc p(cpu_engine(), from, cpu_engine(), to);
  return executes(dnnl::reorder(p), {{DNNL_ARG_FROM, filled(from, 1)}, {DNNL_ARG_TO, zeroed(to)}});
}

OpCall sgemm(int64_t n) {
  struct Operands {
    std::vector<float> a, b, c;
  };
  const auto data = std::make_shared<Operands>(Operands{op_input(n * n, 1), op_input(n * n, 2), {}});
  data->c.resize(data->a.size());
  return [data, n] {
    dnnl_sgemm('N', 'N', n, n, n, 1, data->a.data(), n, data->b.data(), n, 0, data->c.data(), n);
  };
}

OpCall igemm(int64_t n) {
  struct Operands {
    std::vector<int8_t> a, b;
    std::vector<int32_t> c;
  };
  const auto data = std::make_shared<Operands>();
  for (const float x : op_input(n * n, 1)) data->a.push_back(static_cast<int8_t>(100 * x));
  for (const float x : op_input(n * n, 2)) data->b.push_back(static_cast<int8_t>(100 * x));
  data->c.resize(data->a.size());
  return [data, n] {
    const int32_t offset = 0;
    dnnl_gemm_s8s8s32('N', 'N', 'F', n, n, n, 1, data->a.data(), n, 0, data->b.data(), n, 0, 0,
                      data->c.data(), n, &offset);
  };
}

/// The images are in the layout of the caller, (images, channels, height, width), as a library with such
/// arrays has them. oneDNN chooses the layout of the weights.
OpCall convolution_call(const OpCase& c) {
  const ConvShape& s = conv_shapes()[static_cast<size_t>(c.side)];
  const memory::dims stride{s.stride, s.stride}, padding{s.padding, s.padding};
  memory::dims weights{s.out, s.in, s.kernel, s.kernel};
  if (s.groups > 1) weights = {s.groups, s.out / s.groups, s.in / s.groups, s.kernel, s.kernel};
  const auto f32 = memory::data_type::f32;
  const memory::desc x({s.images, s.in, s.size, s.size}, f32, memory::format_tag::nchw);
  const memory::desc w(weights, f32, memory::format_tag::any);
  const memory::desc y({s.images, s.out, s.result(), s.result()}, f32, memory::format_tag::nchw);
  const auto direct = algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, direct, x, w, y, stride, padding, padding}, cpu_engine());
  if (c.op == "conv_fwd")
    return executes(dnnl::convolution_forward(forward),
                    {{DNNL_ARG_SRC, filled(forward.src_desc(), 1)},
                     {DNNL_ARG_WEIGHTS, filled(forward.weights_desc(), 2)},
                     {DNNL_ARG_DST, zeroed(forward.dst_desc())}});
  if (c.op == "conv_data") {
    const dnnl::convolution_backward_data::primitive_desc p({direct, x, w, y, stride, padding, padding},
                                                            cpu_engine(), forward);
    return executes(dnnl::convolution_backward_data(p), {{DNNL_ARG_DIFF_DST, filled(p.diff_dst_desc(), 1)},
                                                         {DNNL_ARG_WEIGHTS, filled(p.weights_desc(), 2)},
                                                         {DNNL_ARG_DIFF_SRC, zeroed(p.diff_src_desc())}});
  }
  const dnnl::convolution_backward_weights::primitive_desc p({direct, x, w, y, stride, padding, padding},
                                                             cpu_engine(), forward);
  return executes(dnnl::convolution_backward_weights(p),
                  {{DNNL_ARG_SRC, filled(p.src_desc(), 1)},
                   {DNNL_ARG_DIFF_DST, filled(p.diff_dst_desc(), 2)},
                   {DNNL_ARG_DIFF_WEIGHTS, zeroed(p.diff_weights_desc())}});
}

OpCall make_call(const OpCase& c) {
  if (c.op.starts_with("conv_")) return convolution_call(c);
  const int64_t n = c.elements;
  if (c.op == "sgemm") return sgemm(c.side);
  if (c.op == "igemm") return igemm(c.side);
  if (c.op == "add") return binary(algorithm::binary_add, n);
  if (c.op == "mul") return binary(algorithm::binary_mul, n);
  if (c.op == "relu") return eltwise(algorithm::eltwise_relu, n);
  if (c.op == "exp") return eltwise(algorithm::eltwise_exp, n);
  if (c.op == "tanh") return eltwise(algorithm::eltwise_tanh, n);
  if (c.op == "sigmoid") return eltwise(algorithm::eltwise_logistic, n);
  if (c.op == "sum") return reduction(algorithm::reduction_sum, n);
  if (c.op == "max") return reduction(algorithm::reduction_max, n);
  if (c.op == "softmax") return softmax<dnnl::softmax_forward>(n);
  if (c.op == "log_softmax") return softmax<dnnl::logsoftmax_forward>(n);
  if (c.op == "layer_norm") return layer_norm(n);
  if (c.op == "batch_norm") return batch_norm(n);
  if (c.op == "transpose") {
    const memory::dims dims{c.side, c.side};
    return reorder({dims, memory::data_type::f32, memory::format_tag::ab},
                   {dims, memory::data_type::f32, memory::format_tag::ba});
  }
  if (c.op == "cast_f16") {
    return reorder(vector_of(n), {{n}, memory::data_type::f16, memory::format_tag::a});
  }
  return nullptr;
}

OpCall prepare(const OpCase& c, int) {
  try {
    return make_call(c);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;  // not on this processor, or in this version
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{.bench = "op", .name = "onednn", .cases = op_cases(), .prepare = prepare};
  system.environment = [](int threads) {
    return std::vector<std::string>{"OMP_NUM_THREADS=" + std::to_string(threads), "OMP_PROC_BIND=true"};
  };
  system.start = [](int) {
    const dnnl_version_t* v = dnnl_version();
    note("oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
         std::to_string(v->patch));
  };
  return run_op_bench(argc, argv, system);
}
