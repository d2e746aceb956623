#include "benchmarks/engine/child.h"

#include <cstring>
#include <exception>

#include "benchmarks/support/limits.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

constexpr const char* kChildFlag = "--child";
constexpr int kArguments = 8;

int run_job(char** argv) {
  Job job;
  job.system = find_system(argv[2]);
  job.case_name = argv[3];
  job.threads = std::stoi(argv[4]);
  job.ops = static_cast<uint32_t>(std::stoul(argv[5]));
  job.wave_side = static_cast<uint32_t>(std::stoul(argv[6]));
  job.quick = std::strchr(argv[7], 'q') != nullptr;
  job.verify = std::strchr(argv[7], 'v') != nullptr;
  if (job.case_name == "handoff") {
    const std::vector<int> cpus = allowed_cpus();
    emit("handoff", handoff_ns(cpus.at(0), cpus.at(1), 50'000), "ns");
    return 0;
  }
  const Case* found = find_case(job.case_name);
  if (job.system == nullptr || found == nullptr) {
    note(std::string("unknown system or case: ") + argv[2] + " " + argv[3]);
    return 2;
  }
  found->run(job);
  return 0;
}

}  // namespace

std::vector<std::string> child_arguments(const std::string& program, const Job& job) {
  return {program,
          kChildFlag,
          job.system != nullptr ? job.system->name : "machine",
          job.case_name,
          std::to_string(job.threads),
          std::to_string(job.ops),
          std::to_string(job.wave_side),
          std::string("-") + (job.quick ? "q" : "") + (job.verify ? "v" : "")};
}

bool is_child(int argc, char** argv) { return argc == kArguments && std::strcmp(argv[1], kChildFlag) == 0; }

int child_main(int, char** argv) {
  try {
    return run_job(argv);
  } catch (const std::exception& error) {
    note(std::string(argv[2]) + " " + argv[3] + ": " + error.what());
    return 1;
  }
}

}  // namespace mx::bench
