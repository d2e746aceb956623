// The code of the documents. A test of the documents compares the two word for word.
#include <gtest/gtest.h>
#include <mx/mx.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "tests/ndarray/io_temp.h"

// The documents name what they do not use.
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wshadow"

namespace {

using namespace mx;

constexpr int64_t kDigits = 30;

/// Runs in a folder of its own, because the programs of the documents write files.
class Snippets : public ::testing::Test {
 protected:
  Snippets() { std::filesystem::current_path(folder_.path()); }
  ~Snippets() override { std::filesystem::current_path(before_); }

  /// A small data set in the form of MNIST.
  static void write_digits() {
    const std::filesystem::path path = "examples/data/mnist";
    std::filesystem::create_directories(path);
    const auto header = [](char dimensions) { return std::string{0, 0, 8, dimensions, 0, 0, 0, kDigits}; };
    std::string images = header(3) + std::string{0, 0, 0, 28, 0, 0, 0, 28}, labels = header(1);
    for (int64_t i = 0; i < kDigits * 28 * 28; ++i) images += static_cast<char>(i % 251);
    for (int64_t i = 0; i < kDigits; ++i) labels += static_cast<char>(i % 10);
    test::spill(path / "train-images-idx3-ubyte", images);
    test::spill(path / "train-labels-idx1-ubyte", labels);
  }

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
  const test::TempFolder folder_;
};

TEST_F(Snippets, NnModules) {
  const Context here = virt(0);
  const auto gpu = [&](int) { return here; };
  NDArray images = randn({4, 784}).to(here), labels = zeros({4}, i64).to(here);
  struct Block : nn::Module {
    nn::Linear fc1, fc2;
    Parameter scale = add_parameter("scale", ones({1}));
    explicit Block(int64_t d) : fc1{d, d}, fc2{d, d} {
      add("fc1", fc1);
      add("fc2", fc2);
    }
    NDArray forward(const NDArray& x) { return x + scale * fc2(relu(fc1(x))); }
  };

  nn::Sequential net{nn::Linear{784, 64}, nn::ReLU{}, Block{64}, nn::Linear{64, 10}};
  net.to(gpu(0));
  NDArray loss = nn::cross_entropy(net(images), labels);
  loss.backward();
  net.save("net.safetensors");
  EXPECT_TRUE(std::filesystem::exists("net.safetensors"));
  EXPECT_EQ(virt(0), net.parameters()[0].context());
}

TEST_F(Snippets, NnHooks) {
  nn::Sequential net{nn::Linear{2, 2}};
  HookHandle hook = net.register_forward_hook(
      [](const nn::Module& module, std::span<const NDArray> inputs, std::vector<NDArray>& outputs) {
        outputs[0] = outputs[0] * 2;  // a hook changes a result by replacing the array in the list
      });
  hook.remove();
  EXPECT_EQ((Shape{1, 2}), net(ones({1, 2})).shape());
}

TEST_F(Snippets, NnModes) {
  NDArray x = randn({4, 8});
  nn::Sequential net{nn::Linear{8, 16}, nn::BatchNorm1d{16}, nn::ReLU{}, nn::Linear{16, 2}};
  net(x);  // training: statistics of the batch; updates the running statistics
  net.eval();
  NDArray y = net(x);  // predicting: the running statistics
  EXPECT_EQ((Shape{4, 2}), y.shape());
}

TEST_F(Snippets, NnParametrisedWeights) {
  nn::Linear fc = nn::weight_norm(nn::Linear(64, 32));       // g v / |v|, a norm for each output
  nn::Conv2d conv = nn::spectral_norm(nn::Conv2d(3, 8, 3));  // w / (its largest singular value)
  nn::remove_parametrizations(fc);                           // weight is an ordinary parameter again
  EXPECT_EQ(2u, fc.parameters().size());
  EXPECT_EQ(4u, conv.state_dict().size());
}

TEST_F(Snippets, NnConvolutions) {
  nn::Sequential lenet{nn::Conv2d(1, 6, 5, {.padding = 2}),
                       nn::ReLU{},
                       nn::MaxPool2d(2),
                       nn::Conv2d(6, 16, {5, 5}),
                       nn::ReLU{},
                       nn::MaxPool2d(2),
                       nn::Flatten(),
                       nn::Linear(400, 120),
                       nn::ReLU{},
                       nn::Linear(120, 10)};
  EXPECT_EQ((Shape{2, 10}), lenet(randn({2, 1, 28, 28})).shape());
}

TEST_F(Snippets, NnGraphs) {
  const int64_t nodes = 5;
  NDArray to = array<int64_t>({0, 1, 2}), from = array<int64_t>({1, 2, 3}), features = randn({5, 1433});
  SparseCSR graph = SparseCSR::from_edges(to, from, {nodes, nodes});
  nn::GCNConv first(1433, 16, {.cached = true}), second(16, 7, {.cached = true});
  NDArray scores = second(relu(first(features, graph)), graph);
  EXPECT_EQ((Shape{5, 7}), scores.shape());
}

TEST_F(Snippets, NnMixtures) {
  NDArray x = randn({5, 64}), labels = zeros({5}, i64);
  nn::Linear head(64, 3);
  nn::MixtureOfExperts layer(64, {.experts = 8, .top_k = 2}, [] { return nn::Linear(64, 64); });
  nn::MixtureResult r = layer.route(x);
  NDArray loss = nn::cross_entropy(head(r.output), labels) + 0.01 * r.balance_loss;
  EXPECT_TRUE(std::isfinite(loss.item<float>()));
}

TEST_F(Snippets, NnRecurrent) {
  NDArray x = randn({3, 9, 64}), next = x;
  nn::LSTM lstm(64, 256, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  auto [y, state] = lstm(x);                       // x (batch, steps, 64); from zeros
  auto [more, last] = lstm(next, state.detach());  // goes on; gradients end here

  auto packed = nn::pack_padded_sequence(x, {5, 9, 2}, {.batch_first = true, .enforce_sorted = false});
  auto [out, end] = lstm(packed);  // the states after each sequence's own last step
  auto [padded, lengths] = nn::pad_packed_sequence(out, {.batch_first = true});
  EXPECT_EQ((Shape{3, 9, 512}), y.shape());
  EXPECT_EQ(y.shape(), more.shape());
  EXPECT_EQ(y.shape(), padded.shape());
}

TEST_F(Snippets, NnTransformers) {
  nn::TransformerEncoderLayer layer(64, 8, {.dim_feedforward = 256, .batch_first = true, .norm_first = true});
  nn::TransformerEncoder encoder(layer, 2, nn::LayerNorm(64));
  nn::SinusoidalPositions positions(64, {.batch_first = true});
  NDArray y = encoder(positions(randn({4, 10, 64})), {.is_causal = true});  // (4, 10, 64)
  EXPECT_EQ((Shape{4, 10, 64}), y.shape());
}

TEST_F(Snippets, NnGeneration) {
  nn::GPT gpt({.vocab_size = 65, .n_positions = 128, .n_embd = 64, .n_layer = 2, .n_head = 4});
  std::vector<int64_t> text =
      nn::generate(gpt, std::vector<int64_t>{1, 2, 3}, {.max_new_tokens = 20, .top_k = 10, .seed = 7});
  EXPECT_EQ(20U, text.size());
}

TEST_F(Snippets, OptimSteps) {
  nn::Sequential net{nn::Linear{2, 2}};
  const std::vector<NDArray> batches(2, ones({3, 2}));
  const auto loss_of = [&](const NDArray& batch) { return sum(net(batch)); };
  optim::AdamW opt(net.parameters(), {.lr = 3e-4, .weight_decay = 0.1, .max_norm = 1});
  optim::CosineLR schedule(opt, {.steps = 1000, .warmup = 50});
  for (const NDArray& batch : batches) {
    opt.zero_grad();
    loss_of(batch).backward();
    opt.step();
    schedule.step();
  }
  EXPECT_EQ(2, schedule.steps_done());
}

TEST_F(Snippets, OptimGroups) {
  nn::Sequential net{nn::Linear{2, 2}};
  const Parameters all = net.parameters();
  const auto is_bias = [](const NamedParameter& p) { return p.name.ends_with("bias"); };
  optim::AdamW opt(all.where(std::not_fn(is_bias)), {.weight_decay = 0.1});
  opt.add_group(all.where(is_bias), {.weight_decay = 0});
  EXPECT_EQ(2U, opt.groups());
}

TEST_F(Snippets, OptimLbfgs) {
  nn::Sequential net{nn::Linear{2, 2}};
  const auto loss_of = [](nn::Sequential& n) { return sum(square(n(ones({2, 2})))); };
  optim::LBFGS opt(net.parameters(), {.strong_wolfe = true});
  const double loss = opt.step([&] {
    opt.zero_grad();
    NDArray loss = loss_of(net);
    loss.backward();
    return loss;
  });
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(loss_of(net).item<float>(), 1e-3);
}

TEST_F(Snippets, OptimRecovery) {
  nn::Sequential net{nn::Linear{2, 2}};
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  optim::Averages averages(net.parameters());
  int batches = 0;
  for (NDArray loss : {ones({}), take(ones({2}), array<int64_t>({7}))}) {
    ++batches;
    try {
      std::cout << loss.item<float>() << '\n';
    } catch (const Error& error) {
      opt.zero_grad();
      opt.recover();       // parameters, state, loss scale
      net.recover();       // buffers, such as the running statistics of BatchNorm
      averages.recover();  // optim::Averages, if there are any
      continue;            // with the next batch
    }
  }
  EXPECT_EQ(2, batches);
}

TEST_F(Snippets, OptimState) {
  nn::Sequential net{nn::Linear{2, 2}};
  optim::Adam opt(net.parameters());
  save_safetensors("opt.safetensors", opt.state_dict());
  opt.load_state_dict(load_safetensors("opt.safetensors"));
}

TEST_F(Snippets, OptimAverages) {
  nn::Sequential net{nn::Linear{2, 2}};
  optim::Adam opt(net.parameters());
  sum(net(ones({1, 2}))).backward();
  optim::Averages averages(net.parameters(), {.decay = 0.999});
  opt.step();
  averages.update();
  averages.apply();    // test with the averages
  averages.restore();  // and go on training
}

TEST_F(Snippets, DataLoops) {
  write_digits();
  const auto step = [](const NDArray& images, const NDArray&) { return randn({images.size(0), 10}); };
  data::Transform augment =
      data::compose({data::random_rotate(10), data::random_shift(2), data::reshape({784})});
  data::Loader loader(data::mnist("examples/data/mnist", data::Split::train, {.shape = {28, 28}}),
                      {.batch_size = 64, .shuffle = true, .seed = 1, .transform = augment});
  metric::Accuracy accuracy;
  for (int epoch = 0; epoch < 10; ++epoch)
    for (auto& [images, labels] : loader) accuracy.update(step(images, labels), labels);
  std::cout << accuracy.value() << '\n';  // the first line that waits
  EXPECT_EQ(10 * kDigits, accuracy.count());
}

TEST_F(Snippets, DataDatasets) {
  struct Squares : data::Dataset {  // made of operators
    int64_t size() const override { return 10; }
    std::vector<NDArray> gather(const data::Indices& indices) const override {
      const NDArray x = indices.array().to(f32);
      return {x, x * x};
    }
  };

  data::FunctionDataset scans(100, {{.shape = {2, 3}, .dtype = f32}, {.shape = {}, .dtype = i64}},
                              [](int64_t i, std::span<const Tensor> sample) {
                                float* const pixels = sample[0].as<float>();  // contiguous
                                std::fill(pixels, pixels + 6, static_cast<float>(i));
                                *sample[1].as<int64_t>() = i % 10;
                              });
}

TEST_F(Snippets, DataMetrics) {
  nn::Sequential net{nn::Linear{4, 10}};
  data::Loader loader(data::ArrayDataset({randn({20, 4}), zeros({20}, i64)}), {.batch_size = 5});
  auto kv = KVStore::create("local");
  metric::Composite metrics;
  metrics.add("accuracy", metric::Accuracy()).add("top3", metric::TopK(3));
  for (const data::Batch& batch : loader) metrics.update(net(batch[0]), batch[1]);
  metric::sync(metrics, *kv);
  std::cout << metrics.value("accuracy") << '\n';
  metrics.reset();
}

TEST_F(Snippets, TrainingCheckpoints) {
  nn::Sequential net{nn::Linear{2, 2}};
  optim::Adam opt(net.parameters());
  optim::CosineLR schedule(opt, {.steps = 10});
  data::Loader loader(data::ArrayDataset({randn({20, 2}), zeros({20}, i64)}), {.batch_size = 5});
  const auto step = [](const NDArray&, const NDArray&) {};
  int64_t epoch = 0;
  training::Checkpoint checkpoint;
  checkpoint.add("model", net).add("optimizer", opt).add("schedule", schedule);
  checkpoint.add("loader", loader).add_random().add("epoch", epoch);
  checkpoint.set("options", "lr=0.1 batch=64");  // a run with other options must not resume

  checkpoint.load_if_exists("run.safetensors");
  while (epoch < 10) {
    for (auto& [images, labels] : loader) step(images, labels);
    ++epoch;
    checkpoint.save("run.safetensors");
  }
  EXPECT_TRUE(std::filesystem::exists("run.safetensors"));
}

TEST_F(Snippets, TrainingRecovery) {
  nn::Sequential net{nn::Linear{2, 2}};
  nn::Trainer trainer(net, optim::SGDOptions{.lr = 0.1});
  optim::Averages averages(net.parameters());
  training::History history;
  for (int64_t step = 0; step < 2; ++step) {
    NDArray loss = nn::cross_entropy(net(ones({1, 2})), full({1}, step == 0 ? 7 : 1, i64));
    loss.backward();
    trainer.step();
    averages.update();
    try {
      history.add("loss", step, loss.item<float>());
    } catch (const Error& error) {
      trainer.zero_grad();
      trainer.recover();   // or opt.recover() and net.recover()
      averages.recover();  // if there are averages
    }
  }
  for (const NDArray& average : averages.values()) average.wait();
}

TEST_F(Snippets, TrainingEarlyStopping) {
  nn::Sequential net{nn::Linear{2, 2}};
  training::Checkpoint checkpoint;
  training::EarlyStopping stopping({.patience = 5});  // values in a row that may fail to improve
  checkpoint.add("stopping", stopping);
  for (const double validation_loss : {3., 2., 2.5}) {
    if (stopping.stop(validation_loss)) break;  // after each epoch
    if (stopping.improved()) net.save("best.safetensors");
  }
  EXPECT_TRUE(std::filesystem::exists("best.safetensors"));
}

TEST_F(Snippets, TrainingCurves) {
  NDArray loss = ones({});
  const int64_t step = 1;
  training::EventWriter events("runs/first");  // tensorboard --logdir runs
  training::History history;                   // or without TensorBoard
  events.add_scalar("loss", loss, step);
  history.add("loss", step, loss.item<float>());
  history.write_html("run.html", "first run");
  EXPECT_TRUE(std::filesystem::exists("run.html"));
}

TEST_F(Snippets, TrainingSearch) {
  static const auto loss_after = [](const AttrMap&, int64_t budget) {
    return 1 / static_cast<double>(budget);
  };
  training::SearchSpace space;
  space.log_uniform("lr", 1e-4, 1).choice("name", {"sgd", "adam"});
  const auto result = training::successive_halving(
      space, [](const training::Trial& trial) { return loss_after(trial.values, trial.budget); },
      {.trials = 27, .parallel = 4});
  EXPECT_GT(result.trials.size(), 1U);
}

TEST_F(Snippets, SparseMatrices) {
  NDArray rows = array<int64_t>({2, 0, 2}), columns = array<int64_t>({1, 2, 0});
  NDArray values = array({1.f, 2.f, 3.f}).requires_grad_();
  SparseCSR a = SparseCSR::from_coo(rows, columns, values, {4, 3});  // in any order; equal places add up
  NDArray y = matmul(a, ones({3, 2}));                               // (4, 2)
  NDArray z = matmul(a, y, true);                                    // a' y, without making a'
  sum(z).backward();
  std::cout << a.to_dense() << values.grad() << '\n';
  EXPECT_EQ((Shape{4, 2}), y.shape());
}

TEST_F(Snippets, SparseSegments) {
  NDArray x = ones({4, 2}), ids = array<int64_t>({0, 0, 3, 9});
  NDArray y = segment_mean(x, segment_offsets(ids, 10));  // (10, ..) for x (n, ..)
  EXPECT_EQ((Shape{10, 2}), y.shape());
}

TEST_F(Snippets, OperatorsConvolution) {
  NDArray x = randn({8, 16, 28, 28}), weight = randn({32, 16, 3, 3});
  NDArray y = convolution(x, weight, {.stride = 2, .padding = 1});  // (8, 32, 14, 14)
  NDArray larger =
      convolution_transpose(y, weight, {.stride = 2, .padding = 1, .output_padding = 1});  // as x
  NDArray each = convolution(x, randn({16, 1, 3, 3}), {.padding = 1, .groups = 16});       // depthwise, as x
  NDArray line = convolution(randn({2, 4, 100}), randn({6, 4, 5}), {.dilation = 2});       // (2, 6, 92)
  EXPECT_EQ((Shape{8, 32, 14, 14}), y.shape());
  EXPECT_EQ(x.shape(), larger.shape());
  EXPECT_EQ(x.shape(), each.shape());
  EXPECT_EQ((Shape{2, 6, 92}), line.shape());
}

TEST_F(Snippets, OperatorsPooling) {
  NDArray x = randn({8, 16, 7, 6});
  NDArray y = max_pool(x, {.kernel = 2, .ceil_mode = true});                                // (8, 16, 4, 3)
  NDArray mean = avg_pool(x, {.kernel = {3, 2}, .stride = 1, .count_include_pad = false});  // (8, 16, 5, 5)
  NDArray fixed = adaptive_avg_pool(x, {2, 3});                                             // (8, 16, 2, 3)
  MaxPool found = max_pool_with_indices(x, {.kernel = 2});
  NDArray sparse = max_unpool(found.values, found.indices, {7, 6});  // zeros beside the maxima
  EXPECT_EQ((Shape{8, 16, 4, 3}), y.shape());
  EXPECT_EQ((Shape{8, 16, 5, 5}), mean.shape());
  EXPECT_EQ((Shape{8, 16, 2, 3}), fixed.shape());
  EXPECT_EQ(x.shape(), sparse.shape());
}

TEST_F(Snippets, OperatorsNormalisation) {
  NDArray x = randn({8, 16, 7, 6}), weight = ones({16}), bias = zeros({16});
  NormResult r = batch_norm(x, weight, bias);  // y, and mean and rstd (16,)
  NDArray mean = zeros({16}), variance = ones({16}), batches = zeros({}, i64);
  update_running_statistics(mean, variance, batches, r.mean, r.rstd, {.elements = 8 * 7 * 6});
  NDArray later = batch_norm_inference(x, mean, variance, weight, bias);
  NDArray groups = group_norm(x, 4, weight, bias);
  NDArray rows = layer_norm(x, {6}), scaled = rms_norm(x, {7, 6});  // over the last dimensions
  EXPECT_EQ(1, batches.item<int64_t>());
  for (const NDArray& y : {r.y, later, groups, rows, scaled}) EXPECT_EQ(x.shape(), y.shape());
}

TEST_F(Snippets, OperatorsCtc) {
  NDArray log_probs = log_softmax(randn({50, 2, 20}), 2);          // (steps, batch, classes)
  NDArray labels = array<int64_t>({{4, 7, 7, 2}, {11, 3, 0, 0}});  // 0 is the blank, and pads
  NDArray loss = ctc_loss(log_probs, labels, array<int64_t>({50, 41}), array<int64_t>({4, 2}));
  EXPECT_GT(loss.item<float>(), 0);
}

TEST_F(Snippets, OperatorsInterpolation) {
  NDArray x = randn({2, 4, 14, 14});
  NDArray twice = interpolate(x, {.scale_factor = {2}, .mode = "bilinear"});  // (2, 4, 28, 28)
  NDArray smooth = interpolate(x, {.size = PerAxis{20, 30}, .mode = "bicubic", .align_corners = true});
  NDArray shuffled = pixel_shuffle(x, 2);  // (2, 1, 28, 28)
  EXPECT_EQ((Shape{2, 4, 28, 28}), twice.shape());
  EXPECT_EQ((Shape{2, 4, 20, 30}), smooth.shape());
  EXPECT_EQ((Shape{2, 1, 28, 28}), shuffled.shape());
}

}  // namespace
