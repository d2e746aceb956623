#include "benchmarks/support/report.h"

#include <algorithm>
#include <cstdio>

namespace mx::bench {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string number(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double middle = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  return {middle, samples.front(), samples.back(), static_cast<int>(n)};
}

double median(std::vector<double> samples) { return summarize(std::move(samples)).median; }

void print(const Record& record) {
  std::string line = "{\"bench\":" + quoted(record.bench) + ",\"case\":" + quoted(record.case_name) +
                     ",\"system\":" + quoted(record.system) +
                     ",\"threads\":" + std::to_string(record.threads) +
                     ",\"value\":" + number(record.value.median) + ",\"unit\":" + quoted(record.unit);
  if (record.value.n > 1) {
    line += ",\"min\":" + number(record.value.min) + ",\"max\":" + number(record.value.max) +
            ",\"n\":" + std::to_string(record.value.n);
  }
  if (record.handoff_ns > 0) line += ",\"handoff\":" + number(record.handoff_ns);
  std::printf("%s}\n", line.c_str());
  std::fflush(stdout);
}

void note(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

}  // namespace mx::bench
