// A graph network classifies papers: it knows the words of all papers, who cites whom, and the classes of
// 140.
//
// The network, its options and the split are those of Kipf and Welling, "Semi-Supervised Classification with
// Graph Convolutional Networks" (ICLR 2017). Two layers: so a paper sees its neighbours and theirs.
#include <mx/mx.h>

#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "examples/cora/cora_data.h"
#include "examples/support/command_line.h"
#include "examples/support/memory_watch.h"
#include "examples/support/writable.h"

namespace {

using namespace mx;
using examples::Cora;

struct Options {
  std::string data = "examples/data/cora";
  int64_t seeds = 10, epochs = 200;
  std::string save = "";
  bool resume = false;
};

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

/// Trains networks with the seeds 1, 2, ... The checkpoint has the network in training, and what is known of
/// the finished ones.
class Training {
 public:
  Training(const Cora& cora, const Options& options)
      : cora_(cora), options_(options), classes_(take(cora.classes, cora.train)) {
    examples::require_checkpoint(options.save, options.resume);
  }

  void run() {
    for (bool resume = options_.resume; seed_ <= options_.seeds; resume = false) train(resume);
    std::printf("mean test accuracy: %.4f\n",
                std::accumulate(tests_.begin(), tests_.end(), 0.0) / static_cast<double>(options_.seeds));
    if (const std::string memory = memory_.text(); !memory.empty())
      std::fprintf(stderr, "%s\n", memory.c_str());
  }

 private:
  static constexpr int64_t kSaveEvery = 50;  // epochs

  /// Trains the network of seed_, or goes on with that of the checkpoint.
  void train(bool resume) {
    manual_seed(static_cast<uint64_t>(seed_));
    Gcn net;
    optim::Adam optimizer(net.first.parameters(), {.lr = 0.01, .weight_decay = 5e-4});
    optimizer.add_group(net.second.parameters(), {.lr = 0.01});
    training::Checkpoint checkpoint;
    checkpoint.add("model", net).add("optimizer", optimizer).add_random();
    checkpoint.add("seed", seed_).add("epoch", epoch_).add("tests", tests_);
    checkpoint.set("options", detail::concat("seeds=", options_.seeds, " epochs=", options_.epochs));
    if (resume && checkpoint.load_if_exists(options_.save))
      std::fprintf(stderr, "resumed after epoch %lld of seed %lld\n", static_cast<long long>(epoch_),
                   static_cast<long long>(seed_));
    const auto start = std::chrono::steady_clock::now();
    const int64_t first = epoch_;
    while (epoch_ < options_.epochs) {
      optimizer.zero_grad();
      const NDArray loss = nn::cross_entropy(take(net(cora_.words, cora_.graph), cora_.train), classes_);
      loss.backward();
      optimizer.step();
      memory_.step(loss.detach());
      ++epoch_;
      if (!options_.save.empty() && (epoch_ % kSaveEvery == 0 || epoch_ == options_.epochs))
        checkpoint.save(options_.save);
    }
    wait_all();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    tests_.push_back(accuracy(net, cora_, cora_.test));
    std::printf("seed %lld: training %.4f, validation %.4f, test %.4f, %.0f epochs/s\n",
                static_cast<long long>(seed_), accuracy(net, cora_, cora_.train),
                accuracy(net, cora_, cora_.validation), tests_.back(),
                static_cast<double>(epoch_ - first) / seconds.count());
    std::fflush(stdout);
    ++seed_;
    epoch_ = 0;
  }

  const Cora& cora_;
  const Options options_;
  const NDArray classes_;  // of the papers to learn from
  examples::MemoryWatch memory_;
  int64_t seed_ = 1, epoch_ = 0;  // epochs of the network in training
  std::vector<double> tests_;     // accuracies of the finished networks
};

void run(const Options& options) {
  const Cora cora = examples::read_cora(options.data);
  std::printf("Cora: %lld papers, %lld citations, %lld papers with known classes\n",
              static_cast<long long>(cora.graph.rows()), static_cast<long long>(cora.graph.entries() / 2),
              static_cast<long long>(cora.train.numel()));
  Training(cora, options).run();
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  mx::examples::CommandLine line("A graph network classifies the papers of the citation graph Cora");
  line.option("--data", &o.data, "folder with nodes.txt.gz and edges.txt.gz");
  line.option("--seeds", &o.seeds, "number of networks, each with another seed").within(1, 1000);
  line.option("--epochs", &o.epochs, "steps of each network").within(1, 100000);
  line.option("--save", &o.save, "checkpoint, written after every few epochs");
  line.flag("--resume", o.resume, "go on from the checkpoint, if there is one");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("gcn_cora", [&] { run(o); });
}
