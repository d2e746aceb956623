// A graph network classifies papers: it knows the words of all papers, who cites whom, and the classes of
// 140.
//
// The network, its options and the split are those of Kipf and Welling, "Semi-Supervised Classification with
// Graph Convolutional Networks" (ICLR 2017). Two layers: so a paper sees its neighbours and theirs.
#include <mx/mx.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "examples/cora/cora_data.h"
#include "examples/support/command_line.h"

namespace {

using namespace mx;
using examples::Cora;

struct Gcn : nn::ModuleOf<Gcn> {
  nn::GCNConv first, second;
  Gcn() : first{Cora::kWords, 16, {.cached = true}}, second{16, Cora::kClasses, {.cached = true}} {
    add("first", first);
    add("second", second);
  }
  NDArray forward(const SparseCSR& words, const SparseCSR& graph) {
    const bool train = train_mode();
    const SparseCSR some = words.with_values(dropout(words.values(), 0.5, train));
    return second(dropout(relu(first(some, graph)), 0.5, train), graph);
  }
};

double accuracy(Gcn& net, const Cora& cora, const NDArray& papers) {
  const NoGrad pause;
  net.eval();
  const NDArray scores = take(net(cora.words, cora.graph), papers);
  net.train();
  return mean((argmax(scores, 1) == take(cora.classes, papers)).to(f64)).item<double>();
}

double train(const Cora& cora, int64_t seed, int64_t epochs) {
  manual_seed(static_cast<uint64_t>(seed));
  Gcn net;
  optim::Adam optimizer(net.first.parameters(), {.lr = 0.01, .weight_decay = 5e-4});
  optimizer.add_group(net.second.parameters(), {.lr = 0.01});
  const NDArray classes = take(cora.classes, cora.train);
  NDArray loss;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    optimizer.zero_grad();
    loss = nn::cross_entropy(take(net(cora.words, cora.graph), cora.train), classes);
    loss.backward();
    optimizer.step();
  }
  const double last = loss.item<float>();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double test = accuracy(net, cora, cora.test);
  std::printf("seed %lld: loss %.4f, validation %.4f, test %.4f, %.0f epochs/s\n",
              static_cast<long long>(seed), last, accuracy(net, cora, cora.validation), test,
              static_cast<double>(epochs) / seconds.count());
  return test;
}

void run(const std::string& folder, int64_t seeds, int64_t epochs) {
  const Cora cora = examples::read_cora(folder);
  std::printf("Cora: %lld papers, %lld citations, %lld papers with known classes\n",
              static_cast<long long>(cora.graph.rows()), static_cast<long long>(cora.graph.entries() / 2),
              static_cast<long long>(cora.train.numel()));
  double total = 0;
  for (int64_t seed = 1; seed <= seeds; ++seed) total += train(cora, seed, epochs);
  std::printf("mean test accuracy: %.4f\n", total / static_cast<double>(seeds));
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder = "examples/data/cora";
  int64_t seeds = 10, epochs = 200;
  mx::examples::CommandLine line("A graph network classifies the papers of the citation graph Cora");
  line.option("--data", &folder, "folder with nodes.txt.gz and edges.txt.gz");
  line.option("--seeds", &seeds, "number of networks, each with another seed").within(1, 1000);
  line.option("--epochs", &epochs, "steps of each network").within(1, 100000);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("gcn_cora", [&] { run(folder, seeds, epochs); });
}
