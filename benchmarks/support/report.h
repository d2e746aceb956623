// Samples, medians, and the output format of all benchmarks: one JSON object per line on stdout.
//
//   {"bench":"engine","case":"chain","system":"mx","threads":1,"value":21.3,"unit":"ns/op","min":..,"max":..,"n":5}
//
// All other output goes to stderr.
#pragma once

#include <string>
#include <vector>

namespace mx::bench {

struct Summary {
  double median = 0, min = 0, max = 0;
  int n = 0;
};

Summary summarize(std::vector<double> samples);
double median(std::vector<double> samples);

struct Record {
  std::string bench, case_name, system;
  int threads = 1;
  std::string unit;
  Summary value;
  double handoff_ns = 0;  ///< cache-line hand-off between two cores in the same rounds; 0: not measured
};

/// Prints one line to stdout and flushes it.
void print(const Record& record);

/// Prints a line to stderr, after the program's name.
void note(const std::string& text);

}  // namespace mx::bench
