// The code of docs/coming_from.md, row by row. A test of the documents compares the two.
#include <gtest/gtest.h>
#include <mx/mx.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace mx;
using Values = std::vector<float>;

template <class T = float>
std::vector<T> values(const NDArray& a) {
  return a.to_vector<T>();
}

/// The variables that the rows share.
class ComingFrom : public ::testing::Test {
 protected:
  NDArray x = array({1.f, 5.f, 3.f, 4.f, 2.f, 6.f}).reshape({2, 3});
  NDArray y = zeros({2, 3});
  NDArray w = ones({3, 4});
  NDArray i = array({int64_t{1}, int64_t{1}, int64_t{0}});
  NDArray mask = x > 3;
};

TEST_F(ComingFrom, Making) {
  NDArray a = array({1.f, 2.f});
  EXPECT_EQ((Values{1, 2}), values(a));
  NDArray m = array({{1.f, 2.f}, {3.f, 4.f}});
  EXPECT_EQ((Shape{2, 2}), m.shape());
  NDArray z = zeros({2, 3}, i64);
  EXPECT_EQ(std::vector<int64_t>(6), values<int64_t>(z));
  NDArray o = ones_like(x);
  EXPECT_EQ(Values(6, 1), values(o));
  NDArray r = arange(0, 10, 2);
  EXPECT_EQ((std::vector<int64_t>{0, 2, 4, 6, 8}), values<int64_t>(r));
  manual_seed(7);
  NDArray n = randn({2, 3});
  manual_seed(7);
  EXPECT_EQ(values(randn({2, 3})), values(n));
  NDArray order = permutation(5);
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3, 4}), values<int64_t>(sort(order)));
  NDArray p = array({0.f, 1.f});
  NDArray drawn = categorical(p, 2);
  EXPECT_EQ((std::vector<int64_t>{1, 1}), values<int64_t>(drawn));
}

TEST_F(ComingFrom, Layers) {
  struct Net : nn::Module {
    nn::Linear fc = add("fc", nn::Linear{3, 4});
  } model;
  model.fc = model.replace("fc", nn::Linear{3, 5});
  EXPECT_EQ((Shape{5, 3}), model.parameter("fc.weight").array().shape());
  nn::Conv2d conv(3, 8, 3, {.padding = 1});
  nn::MaxPool2d pool(2);
  nn::BatchNorm2d bn(8);
  nn::Embedding table(100, 16);
  EXPECT_EQ((Shape{2, 8, 2, 2}), pool(bn(conv(ones({2, 3, 4, 4})))).shape());
  nn::LSTM lstm(16, 32, {.num_layers = 2, .batch_first = true});
  EXPECT_EQ((Shape{2, 3, 32}), lstm(table(array<int64_t>({{1, 2, 3}, {4, 5, 6}}))).first.shape());
  nn::ModuleList blocks;
  for (int k = 0; k < 6; ++k) blocks.push_back(nn::Linear{3, 3});
  EXPECT_EQ(6 * 12, blocks.num_parameters());
  nn::Sequential net{nn::Linear{3, 8}};
  nn::Sequential target = net.clone();
  EXPECT_NE(net.identity(), target.identity());
}

TEST_F(ComingFrom, LinearAlgebraAndSpectra) {
  NDArray a = array({1.f, 2.f}), m = array({{2.f, 0.f}, {0.f, 4.f}});
  NDArray sol = linalg::solve(m, a);
  EXPECT_EQ((Values{0.5, 0.5}), values(sol));
  auto [u, sv, vh] = linalg::svd(x);
  EXPECT_EQ((Shape{2, 2}), u.shape());
  EXPECT_EQ((Shape{2}), sv.shape());
  EXPECT_EQ((Shape{3, 3}), vh.shape());
  NDArray spectrum = fft::rfft(x);
  EXPECT_EQ((Shape{2, 2, 2}), spectrum.shape());
  EXPECT_EQ(9, fft::real(spectrum)[0][0].item<float>());
}

TEST_F(ComingFrom, Looking) {
  Shape s = x.shape();
  DType t = x.dtype();
  EXPECT_EQ((Shape{2, 3}), s);
  EXPECT_EQ(f32, t);
  int64_t count = x.numel(), last = x.size(-1);
  EXPECT_EQ(6, count);
  EXPECT_EQ(3, last);
  NDArray h = x.to(f16);
  EXPECT_EQ(f16, h.dtype());
  NDArray d = x.to(virt(0));
  EXPECT_EQ(virt(0), d.context());
  float f = sum(x).item<float>();
  EXPECT_EQ(21, f);
  std::vector<float> v = x.to_vector<float>();
  EXPECT_EQ((Values{1, 5, 3, 4, 2, 6}), v);
  x.wait();
  ::testing::internal::CaptureStdout();
  std::cout << x << '\n';
  EXPECT_NE(::testing::internal::GetCapturedStdout().find('6'), std::string::npos);
  set_print_options({.precision = 3});
  EXPECT_EQ("[0.333]", to_string(array({1 / 3.f})));
  set_print_options({});
}

TEST_F(ComingFrom, Parts) {
  NDArray row = x[1], one = x[{1, 2}];
  EXPECT_EQ((Values{4, 2, 6}), values(row));
  EXPECT_EQ(6, one.item<float>());
  NDArray col = x[{colon, 1}], two = x[{colon, Slice{0, 2}}];
  EXPECT_EQ((Values{5, 2}), values(col));
  EXPECT_EQ((Values{1, 5, 4, 2}), values(two));
  NDArray rows = x[i];
  EXPECT_EQ((Values{4, 2, 6, 4, 2, 6, 1, 5, 3}), values(rows));
  NDArray some = x[mask];
  EXPECT_EQ((Values{5, 4, 6}), values(some));
  y[0] = 7;
  EXPECT_EQ((Values{7, 7, 7, 0, 0, 0}), values(y));
  y[mask] = 0;
  EXPECT_EQ((Values{7, 0, 7, 0, 0, 0}), values(y));
  NDArray c = where(mask, x, y);
  EXPECT_EQ((Values{7, 5, 7, 4, 0, 6}), values(c));
  NDArray between = (x > 1) & (x < 5);
  EXPECT_EQ(3, between.sum().item<int64_t>());
  bool near = allclose(x, y, {.rtol = 1e-3}), also = allclose(x, y, 1e-3, 1e-3);
  EXPECT_FALSE(near || also);
  NDArray limited = x.clamp(0, 1);
  EXPECT_EQ(Values(6, 1), values(limited));
  auto [counts, edges] = histogram(x, 4);
  EXPECT_EQ((std::vector<int64_t>{2, 1, 1, 2}), values<int64_t>(counts));
  EXPECT_EQ((Values{1, 2.25f, 3.5f, 4.75f, 6}), values(edges));
}

TEST_F(ComingFrom, Shapes) {
  NDArray q = x.reshape({3, -1});
  EXPECT_EQ((Shape{3, 2}), q.shape());
  NDArray xt = x.T(), xp = x.transpose({1, 0});
  EXPECT_EQ((Values{1, 4, 5, 2, 3, 6}), values(xt));
  EXPECT_EQ(values(xt), values(xp));
  NDArray padded = pad(x, {{1, 1}, {0, 2}});
  EXPECT_EQ((Shape{4, 5}), padded.shape());
  NDArray e = x.expand_dims(0);
  EXPECT_EQ((Shape{1, 2, 3}), e.shape());
  NDArray j = concat({x, y}, 1);
  EXPECT_EQ((Shape{2, 6}), j.shape());
  NDArray k = stack({x, y});
  EXPECT_EQ((Shape{2, 2, 3}), k.shape());
  NDArray copy = x.clone();
  EXPECT_FALSE(copy.shares_memory(x));
}

TEST_F(ComingFrom, Computing) {
  y += 1;
  EXPECT_EQ(Values(6, 1), values(y));
  NDArray p = matmul(x, w);
  EXPECT_EQ((Values{9, 9, 9, 9, 12, 12, 12, 12}), values(p));
  NDArray all = sum(x), each = sum(x, 1, true);
  EXPECT_EQ(21, all.item<float>());
  EXPECT_EQ((Shape{2, 1}), each.shape());
  NDArray sd = stddev(x, 0);
  EXPECT_FLOAT_EQ(2.1213203f, values(sd)[0]);
  NDArray top = max(x, 1), at = argmax(x, 1);
  EXPECT_EQ((Values{5, 6}), values(top));
  EXPECT_EQ((std::vector<int64_t>{1, 2}), values<int64_t>(at));
  NDArray sorted = sort(x, 1);
  EXPECT_EQ((Values{1, 3, 5, 2, 4, 6}), values(sorted));
}

TEST_F(ComingFrom, Gradients) {
  w.requires_grad_();
  sum(matmul(x, w)).backward();
  NDArray g = w.grad();
  EXPECT_EQ((Values{5, 5, 5, 5, 7, 7, 7, 7, 9, 9, 9, 9}), values(g));
  {
    NoGrad pause;
    w -= 0.1 * g;
  }
  EXPECT_FLOAT_EQ(0.5f, values(w)[0]);
  NDArray cut = y.detach();
  EXPECT_FALSE(cut.requires_grad());
  NDArray df = grad([](const NDArray& a) { return sum(exp(a)); })(x);
  EXPECT_EQ(values(exp(x)), values(df));
  auto both = value_and_grad([](const NDArray& a) { return sum(a * a); })(x);
  EXPECT_EQ(91, both.value.item<float>());
  NDArray jac = jacobian([](const NDArray& a) { return exp(a); })(x[0]);
  EXPECT_EQ((Shape{3, 3}), jac.shape());
}

TEST_F(ComingFrom, ChoosingElements) {
  const NDArray at = argmin(x, 1);
  NDArray picked = gather(x, at.expand_dims(1), 1);
  EXPECT_EQ((Values{1, 2}), values(picked));
  NDArray put = scatter(x, at.expand_dims(1), zeros({2, 1}), 1);
  EXPECT_EQ((Values{0, 5, 3, 4, 0, 6}), values(put));
  auto [largest, where_they_are] = topk(x, 2);
  EXPECT_EQ((Values{5, 3, 6, 4}), values(largest));
  EXPECT_EQ((std::vector<int64_t>{1, 2, 2, 0}), values<int64_t>(where_they_are));
  NDArray product = einsum("ij,jk->ik", x, w);
  EXPECT_EQ(values(matmul(x, w)), values(product));
}

TEST_F(ComingFrom, GradientsElsewhere) {
  NDArray v = array({1.f, 2.f}).requires_grad_();
  NDArray dx = gradients({sum(v * v)}, {v})[0];
  EXPECT_EQ((Values{2, 4}), values(dx));
  EXPECT_FALSE(v.grad().defined());
  HookHandle hook = v.add_grad_hook([](const NDArray& g) { return g * 2; });
  NDArray again = checkpoint([](const NDArray& a) { return exp(a); }, v);
  sum(again).backward();
  EXPECT_EQ(values(exp(v.detach()) * 2), values(v.grad()));
}

TEST_F(ComingFrom, LoadingAndMixedPrecision) {
  data::Loader ahead(data::ArrayDataset({x, y}), {.batch_size = 2, .prefetch = 4});
  EXPECT_EQ(1, ahead.batches());
  const auto source = data::array_source({x});
  data::SampleDataset set(source, {.collate = data::pad({.value = -1})});
  EXPECT_EQ(2, set.size());
  nn::Sequential net{nn::Linear{3, 8}};
  {
    Autocast scope(bf16);
    NDArray half = net(x);
    EXPECT_EQ(bf16, half.dtype());
  }
  sum(net(x)).backward();
  const NDArray weight = net.at<nn::Linear>(0).weight;
  NDArray norm = optim::clip_grad_norm(net.parameters(), 1);
  EXPECT_GT(norm.item<double>(), 1);
  EXPECT_LT(sum(square(weight.grad())).item<float>(), 1.0001f);
}

TEST_F(ComingFrom, DividingReversingAndDifferentiatingTwice) {
  NDArray half = floor_div(i, 2);
  EXPECT_EQ((std::vector<int64_t>{0, 0, 0}), values<int64_t>(half));
  EXPECT_EQ(f32, (i / 2).dtype());
  NDArray turned = flip(x, 1);
  EXPECT_EQ((Values{3, 5, 1, 6, 2, 4}), values(turned));
  EXPECT_TRUE(turned.shares_memory(x));
  NDArray band = percentile(x, {10, 90}, 0);
  EXPECT_EQ(values(quantile(x, {0.1, 0.9}, 0)), values(band));
  NDArray hes = jacobian(grad([](const NDArray& a) { return sum(exp(a)); }))(x[0]);
  EXPECT_TRUE(allclose(diag(exp(x[0])), hes));
  EXPECT_EQ(f64, (x * scalar_array(2, f64)).dtype());
}

TEST_F(ComingFrom, ResamplingCheckingGradientsNormalisingAndValidating) {
  NDArray noise = randn_like(x), even = rand_like(x);
  EXPECT_EQ(x.shape(), noise.shape());
  EXPECT_EQ(1, min(even >= 0).item<bool>());
  const NDArray v = array({1.f, 2.f});
  gradcheck([](const NDArray& a) { return tanh(a); }, {v.to(f64)});
  auto by_rows = nn::weight_norm(nn::Linear(3, 4));
  auto by_largest = nn::spectral_norm(nn::Linear(3, 4));
  EXPECT_EQ(3u, by_rows.parameters().size());
  EXPECT_EQ((Shape{2, 4}), by_largest(x).shape());
  const NDArray images = ones({2, 3, 4, 4}), theta = zeros({2, 2, 3});
  NDArray sampled = grid_sample(images, affine_grid(theta, images.shape()));
  EXPECT_TRUE(allclose(images, sampled));
  const data::ArrayDataset set({arange(12)});
  int64_t validated = 0;
  for (const auto& [train, validation] : data::k_fold(set, 5, {.shuffle = true, .seed = 1})) {
    EXPECT_EQ(12, train.size() + validation.size());
    validated += validation.size();
  }
  EXPECT_EQ(12, validated);
}

TEST_F(ComingFrom, Modules) {
  struct Scale : nn::Module {
    Parameter f = add_parameter("f", ones({3}));
    NDArray forward(const NDArray& x) override { return x * f; }
  };
  EXPECT_EQ(values(x), values(Scale()(x)));
  struct Two : nn::Module {
    nn::Linear fc = add("fc", nn::Linear{3, 3});
    NDArray forward(const NDArray& x) override { return fc(fc(x)); }
  };
  const Two two;
  EXPECT_EQ(2u, two.parameters().size());
  EXPECT_EQ(values(two.fc(two.fc(x))), values(two(x)));

  nn::Sequential net{nn::Linear{3, 8}, nn::ReLU{}, nn::Linear{8, 2}};
  nn::init::xavier_uniform_(net.at<nn::Linear>(0).weight);
  const Parameter p = net.parameter("2.weight");
  const NDArray q = ones({2, 8}), before = p.clone();
  {
    NoGrad pause;
    p.copy_from(q);
  }
  EXPECT_EQ(Values(16, 1), values(p));
  EXPECT_NE(values(before), values(p));
  NamedArrays state = nn::Sequential{nn::Linear{3, 8}, nn::ReLU{}, nn::Linear{8, 2}}.state_dict();
  state.erase("2.weight");
  net.load_state_dict(state, {.strict = false});
  EXPECT_EQ(values(state["0.weight"]), values(net.parameter("0.weight")));
  EXPECT_EQ(Values(16, 1), values(p));
  net.requires_grad_(false);
  EXPECT_FALSE(net(x).requires_grad());
}

TEST_F(ComingFrom, Training) {
  manual_seed(1);
  nn::Linear layer{3, 4};
  EXPECT_EQ((Shape{2, 4}), layer(x).shape());
  nn::Linear plain(3, 2, false);
  EXPECT_FALSE(plain.bias.defined());
  nn::Sequential net{nn::Linear{3, 8}, nn::ReLU{}, nn::Linear{8, 2}};
  NDArray out = net(x);
  const NDArray labels = array({int64_t{0}, int64_t{1}});
  NDArray loss = nn::cross_entropy(out, labels);
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::CosineLR schedule(opt, {.steps = 1000});
  opt.zero_grad();
  loss.backward();
  opt.step();
  schedule.step();
  EXPECT_LT(nn::cross_entropy(net(x), labels).item<float>(), loss.item<float>());
  const NDArray t = ones_like(out);
  NDArray bce = nn::bce_with_logits(out, t);
  EXPECT_NEAR(-nn::log_sigmoid(out).mean().item<float>(), bce.item<float>(), 1e-6);
  NDArray first = net.at<nn::Linear>(0).weight[0];
  EXPECT_EQ((Shape{3}), first.shape());
  data::Loader loader(data::ArrayDataset({x, y}), {.batch_size = 2, .shuffle = true});
  for (auto& [a, b] : loader) EXPECT_EQ(a.shape(), b.shape());
  int64_t steps = loader.batches();
  EXPECT_EQ(1, steps);
  optim::SGD limited(net.parameters(), {.lr = 0.1, .max_norm = 1});
  limited.step();
  EXPECT_GT(limited.gradient_norm().item<double>(), 0);
  const NDArray before = first.clone();
  const NDArray gradient = net.at<nn::Linear>(0).weight.grad()[0];
  {
    NoGrad pause;
    for (const auto& [name, p] : net.parameters()) p -= 0.1 * p.grad();
  }
  EXPECT_TRUE(allclose(before - 0.1 * gradient, first));
  optim::Adam adam(net.parameters(), {.lr = 1e-3, .beta2 = 0.99});
  EXPECT_EQ(0.99, adam.options().beta2);
  net.eval();
  EXPECT_FALSE(net.training());
}

TEST_F(ComingFrom, Files) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("coming_from_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  save_npy("x.npy", x);
  NDArray back = load_npy("x.npy");
  EXPECT_EQ(values(x), values(back));
  const NDArray image = full({4, 5, 3}, 200, u8);
  data::write_image("a.png", image);
  EXPECT_EQ(values<uint8_t>(image), values<uint8_t>(data::to_ndarray(data::read_image("a.png"))));
  nn::Sequential net{nn::Linear{3, 2}};
  const std::vector<float> first = values(net(x));
  net.save("net.safetensors");
  net.load("net.safetensors");
  EXPECT_EQ(first, values(net(x)));
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  save_safetensors("opt.safetensors", opt.state_dict());
  opt.load_state_dict(load_safetensors("opt.safetensors"));
  EXPECT_EQ(0.1, opt.learning_rate());
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

}  // namespace
