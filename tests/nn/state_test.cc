// state_dict, load_state_dict, save and load; names and layouts of PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "tests/ndarray/io_temp.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"
#include "tests/support/failures.h"

namespace mx {
namespace {

using test::all_values;
using test::Block;
using test::contains;
using test::content_of;
using test::error_of;
using test::inputs;
using test::mlp;
using test::names;
using test::Scale;
using test::TempFolder;

// The files of tests/nn/golden; make_mlp.py documents their contents.
const unsigned char kGoldenFile[] = {
#include <golden_mlp_safetensors.inc>
};
const char* const kGoldenText =
#include <golden_mlp.inc>
    ;

std::string golden_file() { return {reinterpret_cast<const char*>(kGoldenFile), sizeof(kGoldenFile)}; }

TEST(ModuleState, WeightsOfPyTorchGiveItsResults) {
  const TempFolder folder;
  test::spill(folder / "mlp.safetensors", golden_file());
  nn::Sequential net = mlp();
  net.load(folder / "mlp.safetensors");
  std::istringstream text(kGoldenText);
  std::vector<float> row(5);
  int rows = 0;
  for (; text >> row[0] >> row[1] >> row[2] >> row[3] >> row[4]; ++rows) {
    const std::vector<float> y =
        net(array(std::vector<float>(row.begin(), row.begin() + 3))).to_vector<float>();
    EXPECT_EQ(std::vector<float>(row.begin() + 3, row.end()), y) << "row " << rows;
  }
  EXPECT_EQ(5, rows);
  // Saving it again gives the same file.
  net.save(folder / "again.safetensors");
  EXPECT_TRUE(golden_file() == test::slurp(folder / "again.safetensors"));
}

TEST(ModuleState, NamesTheParametersAndThenTheBuffersOfEachModule) {
  const nn::Sequential net{nn::Linear{2, 2}, Scale{2}};
  EXPECT_EQ((std::vector<std::string>{"0.weight", "0.bias", "1.factor", "1.calls"}), names(net.state_dict()));
  EXPECT_EQ((std::vector<std::string>{"1.calls", "1.scratch"}), names(net.named_buffers()));
  EXPECT_EQ(2u, net.buffers().size());
}

TEST(ModuleState, ShowsTheArraysThemselvesUnrecorded) {
  const Block block(2);
  const NamedArrays state = block.state_dict();
  EXPECT_TRUE(state.at("fc1.weight").shares_memory(block.fc1.weight));
  for (const auto& [name, array] : state) EXPECT_FALSE(array.requires_grad()) << name;
}

TEST(ModuleState, LoadingCopiesIntoTheArraysThatAreThere) {
  nn::Sequential a = mlp();
  const nn::Sequential b = mlp();
  const std::vector<NDArray> parameters = a.parameters();
  EXPECT_NE(all_values(a.state_dict()), all_values(b.state_dict()));
  const nn::LoadReport report = a.load_state_dict(b.state_dict());
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_EQ(all_values(a.state_dict()), all_values(b.state_dict()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(parameters[i].shares_memory(a.parameters()[i]));
    EXPECT_FALSE(parameters[i].shares_memory(b.parameters()[i]));
    EXPECT_TRUE(a.parameters()[i].requires_grad());
  }
}

TEST(ModuleState, LoadingConvertsTypesAndDevices) {
  nn::Sequential a = mlp();
  const nn::Sequential b = mlp().to(f64).to(virt(0));
  a.load_state_dict(b.state_dict());
  EXPECT_EQ(all_values(a.state_dict()), all_values(b.state_dict()));
  EXPECT_EQ(f32, a.parameters()[0].dtype());
  EXPECT_EQ(cpu(), a.parameters()[0].context());
  nn::Sequential c = mlp().to(virt(1));
  c.load_state_dict(b.state_dict());
  EXPECT_EQ(all_values(c.state_dict()), all_values(b.state_dict()));
  EXPECT_EQ(virt(1), c.parameters()[0].context());
}

// One error lists everything that does not fit, and nothing is changed.
TEST(ModuleState, EverythingThatDoesNotFitIsListed) {
  nn::Sequential net{nn::Linear{3, 4}, Scale{2}};
  const std::vector<double> before = all_values(net.state_dict());
  const std::string text = error_of<InvalidArgument>([&] {
    net.load_state_dict({{"0.weight", ones({3, 4})},
                         {"1.factor", ones({2})},
                         {"1.factor", ones({2})},
                         {"1.calls", ones({})},
                         {"1.scratch", ones({2})},
                         {"head", ones({1}, f64)},
                         {"empty", NDArray()}});
  });
  for (const char* part : {"[load_state_dict] expected the arrays of Sequential, got 7 problems:",
                           "\n  0.weight: expected f32 (4, 3), got f32 (3, 4)", "\n  1.factor is given twice",
                           "\n  1.calls: expected i64 (), got f32 ()", "\n  0.bias f32 (4,) is missing",
                           "\n  1.scratch f32 (2,) is unexpected", "\n  head f64 (1,) is unexpected",
                           "\n  empty is an empty handle"})
    EXPECT_TRUE(contains(text, part)) << part << " in\n" << text;
  EXPECT_EQ(before, all_values(net.state_dict()));
}

TEST(ModuleState, ALenientLoadReportsNames) {
  nn::Sequential net{nn::Linear{2, 2}, nn::Linear{2, 2}};
  const std::vector<double> rest = net.at<nn::Linear>(1).weight.array().to_vector<double>();
  const nn::LoadReport report =
      net.load_state_dict({{"0.weight", ones({2, 2})}, {"2.weight", ones({7})}}, {.strict = false});
  EXPECT_EQ((std::vector<std::string>{"0.bias", "1.weight", "1.bias"}), report.missing);
  EXPECT_EQ(std::vector<std::string>{"2.weight"}, report.unexpected);
  EXPECT_EQ(std::vector<double>(4, 1.0), net.at<nn::Linear>(0).weight.array().to_vector<double>());
  EXPECT_EQ(rest, net.at<nn::Linear>(1).weight.array().to_vector<double>());
  // A shape that does not fit is still an error.
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] {
                 net.load_state_dict({{"0.weight", ones({2})}, {"0.bias", zeros({2})}}, {.strict = false});
               }),
               "got 1 problem:\n  0.weight"));
  EXPECT_EQ(std::vector<double>(4, 1.0), net.at<nn::Linear>(0).weight.array().to_vector<double>());
}

TEST(ModuleState, AnArrayThatFailedComesOutBeforeAnythingIsChanged) {
  nn::Linear layer(2, 2);
  const std::vector<double> before = all_values(layer.state_dict());
  const NDArray failed = test::failed_array({2});
  EXPECT_TRUE(contains(error_of<Error>([&] {
                         layer.load_state_dict({{"weight", zeros({2, 2})}, {"bias", failed}});
                       }),
                       "no such luck"));
  EXPECT_EQ(before, all_values(layer.state_dict()));
  EXPECT_THROW(wait_all(), Error);
}

// The loaded arrays may be the model's own arrays, even under other names.
TEST(ModuleState, AModelsOwnArraysCanBeExchanged) {
  nn::Sequential net{nn::Linear{2, 2}, nn::Linear{2, 2}};
  const std::vector<double> before = all_values(net.state_dict());
  NamedArrays state = net.state_dict();
  net.load_state_dict(state);
  EXPECT_EQ(before, all_values(net.state_dict()));
  std::swap(state[0].second, state[2].second);
  std::swap(state[1].second, state[3].second);
  net.load_state_dict(state);
  std::vector<double> exchanged(before.begin() + 6, before.end());
  exchanged.insert(exchanged.end(), before.begin(), before.begin() + 6);
  EXPECT_EQ(exchanged, all_values(net.state_dict()));
}

TEST(ModuleState, OfNamesThatShareAnArrayOneIsEnough) {
  nn::Linear a(2, 2, {.bias = false}), b(2, 2, {.bias = false});
  b.weight.tie(a.weight);
  nn::Sequential net{a, b};
  const nn::LoadReport report = net.load_state_dict({{"1.weight", full({2, 2}, 3)}});
  EXPECT_TRUE(report.missing.empty());
  EXPECT_EQ(std::vector<double>(4, 3.0), a.weight.array().to_vector<double>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { net.load_state_dict({}); }), "got 2 problems"));
}

TEST(ModuleState, ALoadHasReadTheFileWhenItReturns) {
  const TempFolder folder;
  const std::string path = folder / "net.safetensors";
  nn::Linear net{600, 700};  // too large to be copied by the calling thread
  net.save(path);
  const std::vector<float> before = net.parameters()[0].to_vector<float>();
  net.parameters()[0].detach().fill_(0);
  wait_all();
  Engine& engine = current_engine();
  engine.pause();
  net.load(path);
  std::filesystem::resize_file(path, 0);
  engine.resume();
  EXPECT_EQ(before, net.parameters()[0].to_vector<float>());
}

TEST(ModuleState, FilesGoThereAndBack) {
  const TempFolder folder;
  nn::Sequential a{nn::Linear{3, 4}, Scale{4}};
  a.to(virt(0));
  a.save(folder / "net.safetensors", {{"step", "12"}});
  FileMetadata metadata;
  EXPECT_EQ(a.state_dict().size(), load_safetensors(folder / "net.safetensors", &metadata).size());
  EXPECT_EQ((FileMetadata{{"format", "pt"}, {"step", "12"}}), metadata);
  nn::Sequential b{nn::Linear{3, 4}, Scale{4}};
  b.load(folder / "net.safetensors");
  EXPECT_EQ(all_values(a.state_dict()), all_values(b.state_dict()));
  EXPECT_THROW(b.load(folder / "missing"), FileError);
  EXPECT_THROW(nn::Linear(3, 4).load(folder / "net.safetensors"), InvalidArgument);
}

void expect_close(const NDArray& expected, const NDArray& got) {
  ASSERT_EQ(expected.shape(), got.shape());
  const std::vector<double> e = expected.to_vector<double>(), g = got.to_vector<double>();
  for (size_t i = 0; i < e.size(); ++i) EXPECT_NEAR(e[i], g[i], 1e-5 * (1 + std::abs(e[i]))) << i;
}

// A typical PyTorch program loads our file with strict names and computes our results. We load the file it
// saves, and get its outputs and gradients.
const char kPyTorch[] = R"(
import json, struct, torch

TYPES = {'F32': torch.float32, 'I64': torch.int64}

def load(path):
    data = open(path, 'rb').read()
    size = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop('__metadata__', None)
    return {name: torch.frombuffer(bytearray(data[8 + size:][slice(*entry['data_offsets'])]),
                                   dtype=TYPES[entry['dtype']]).reshape(entry['shape'])
            for name, entry in header.items()}

def save(path, arrays):
    header, data = {}, b''
    for name, value in arrays.items():
        value = value.detach().contiguous().numpy()
        begin, data = len(data), data + value.tobytes()
        header[name] = {'dtype': 'F32', 'shape': value.shape, 'data_offsets': [begin, len(data)]}
    text = json.dumps(header).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)

class Block(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(d, d), torch.nn.Linear(d, d)
    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))

net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), Block(4), torch.nn.Linear(4, 2, bias=False))
net.load_state_dict(load('ours.safetensors'), strict=True)
ours = load('ours_values.safetensors')
assert torch.allclose(net(ours['x']), ours['y'], rtol=1e-5, atol=1e-5)

torch.manual_seed(5)
for parameter in net.parameters():
    torch.nn.init.normal_(parameter)
y = net(ours['x'])
(y * y).sum().backward()
save('theirs.safetensors', net.state_dict())
save('theirs_values.safetensors', {'y': y, **{name: p.grad for name, p in net.named_parameters()}})
)";

TEST(ModuleState, PyTorchAndWeReadEachOthersFiles) {
  const std::string python = test::python_with("numpy, torch");
  if (python.empty()) GTEST_SKIP() << "needs a Python with numpy and torch (set MX_TEST_PYTHON)";
  const TempFolder folder;
  nn::Sequential net{nn::Linear{3, 4}, nn::Tanh{}, Block{4}, nn::Linear{4, 2, {.bias = false}}};
  const NDArray x = randn({5, 3});
  net.save(folder / "ours.safetensors");
  save_safetensors(folder / "ours_values.safetensors", {{"x", x}, {"y", net(x).detach()}});
  ASSERT_TRUE(test::run_python(python, folder, kPyTorch));
  net.load(folder / "theirs.safetensors");
  const NamedArrays theirs = load_safetensors(folder / "theirs_values.safetensors");
  const NDArray y = net(x);
  expect_close(theirs.at("y"), y);
  sum(y * y).backward();
  for (const auto& [name, parameter] : net.named_parameters()) {
    SCOPED_TRACE(name);
    expect_close(theirs.at(name), parameter.grad());
  }
}

// An update that was pushed before save() is in the file; a later one is not.
TEST(ModuleState, SavingTakesTheValuesInTheOrderOfCalls) {
  const TempFolder folder;
  nn::Linear layer(100, 100);
  const NoGrad pause;
  NDArray weight = layer.weight;
  for (int i = 0; i < 20; ++i) weight.fill_(i);
  layer.save(folder / "net.safetensors");
  weight.fill_(-1);
  EXPECT_EQ(std::vector<double>(10000, 19.0),
            load_safetensors(folder / "net.safetensors").at("weight").to_vector<double>());
}

}  // namespace
}  // namespace mx
