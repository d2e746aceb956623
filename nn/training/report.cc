#include "nn/training/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <sstream>

#include "engine/base/check.h"
#include "ndarray/io/atomic_file.h"

namespace mx::training {
namespace {

constexpr double kWidth = 720, kHeight = 360, kLeft = 80, kTop = 30, kRight = 20, kBottom = 40;
constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// A range of numbers that is drawn on an axis.
struct Axis {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool logarithmic = false;

  void include(double x) { low = std::min(low, x), high = std::max(high, x); }
  void settle() {
    if (!(low <= high)) low = 0, high = 1;
    if (low == high) {
      constexpr double kMost = std::numeric_limits<double>::max();
      const double margin = std::max(0.5, std::abs(low) * 1e-3);
      low = std::max(low - margin, -kMost), high = std::min(high + margin, kMost);
    }
    logarithmic = low > 0 && high / low >= 100;
  }
  // high - low and high / low may overflow.
  double share(double x) const {
    if (logarithmic) return (std::log(x) - std::log(low)) / (std::log(high) - std::log(low));
    const double factor = std::isfinite(high - low) ? 1 : 0.5;
    return (x * factor - low * factor) / (high * factor - low * factor);
  }
  double at(double share) const {
    if (logarithmic) return std::exp(std::log(low) + share * (std::log(high) - std::log(low)));
    return low * (1 - share) + high * share;
  }
};

void write_file(const std::string& path, const std::string& text) {
  io::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace

void History::add(const std::string& name, int64_t step, double value) {
  auto found = std::find_if(curves_.begin(), curves_.end(), [&](const auto& c) { return c.first == name; });
  if (found == curves_.end()) found = curves_.insert(curves_.end(), {name, {}});
  found->second.emplace_back(step, value);
}

std::vector<std::string> History::names() const {
  std::vector<std::string> all;
  for (const auto& entry : curves_) all.push_back(entry.first);
  return all;
}

const History::Curve& History::curve(const std::string& name) const {
  std::string known;
  for (const auto& [own, curve] : curves_) {
    if (own == name) return curve;
    known += (known.empty() ? "" : ", ") + own;
  }
  throw InvalidArgument("[History] expected one of the names " + known + ", got '" + name + "'");
}

std::string History::svg(const std::vector<std::string>& names) const {
  const std::vector<std::string> shown = names.empty() ? this->names() : names;
  Axis x, y;
  for (const std::string& name : shown)
    for (const auto& [step, value] : curve(name)) {
      if (!std::isfinite(value)) continue;
      x.include(static_cast<double>(step));
      y.include(value);
    }
  x.settle();
  x.logarithmic = false;
  y.settle();
  const auto across = [&](double v) { return kLeft + x.share(v) * (kWidth - kLeft - kRight); };
  const auto up = [&](double v) { return kHeight - kBottom - y.share(v) * (kHeight - kTop - kBottom); };

  std::ostringstream out;
  out.precision(4);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << kHeight
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (int i = 0; i <= 4; ++i) {
    const double value = y.at(i / 4.0), step = x.at(i / 4.0);
    out << "<line x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << up(value) << "\" y2=\""
        << up(value) << "\" stroke=\"#dddddd\"/>\n"
        << "<text x=\"" << kLeft - 6 << "\" y=\"" << up(value) + 4 << "\" text-anchor=\"end\">" << value
        << "</text>\n"
        << "<text x=\"" << across(step) << "\" y=\"" << kHeight - kBottom + 18 << "\" text-anchor=\"middle\">"
        << step << "</text>\n";
  }
  for (size_t k = 0; k < shown.size(); ++k) {
    const char* const colour = kColours[k % std::size(kColours)];
    std::string points;
    const auto end_line = [&] {
      if (!points.empty())
        out << "<polyline fill=\"none\" stroke=\"" << colour << "\" points=\"" << points << "\"/>\n";
      points.clear();
    };
    for (const auto& [step, value] : curve(shown[k])) {
      if (!std::isfinite(value)) {
        end_line();
        continue;
      }
      std::ostringstream point;
      point << across(static_cast<double>(step)) << ',' << up(value) << ' ';
      points += point.str();
    }
    end_line();
    out << "<text x=\"" << kLeft + 150 * static_cast<double>(k) << "\" y=\"18\" fill=\"" << colour << "\">"
        << escaped(shown[k]) << "</text>\n";
  }
  out << "</svg>\n";
  return out.str();
}

void History::write_svg(const std::string& path, const std::vector<std::string>& names) const {
  write_file(path, svg(names));
}

void History::write_html(const std::string& path, const std::string& title) const {
  std::ostringstream out;
  out << "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>" << escaped(title)
      << "</title></head>\n<body style=\"font-family:sans-serif\"><h1>" << escaped(title) << "</h1>\n"
      << "<table border=\"1\" cellpadding=\"4\" style=\"border-collapse:collapse\"><tr><th>name</th><th>steps"
         "</th><th>last</th><th>smallest</th><th>largest</th></tr>\n";
  for (const auto& [name, curve] : curves_) {
    std::optional<double> low, high;  // of the finite values
    for (const auto& [step, value] : curve) {
      if (!std::isfinite(value)) continue;
      low = std::min(low.value_or(value), value);
      high = std::max(high.value_or(value), value);
    }
    out << "<tr><td>" << escaped(name) << "</td><td>" << curve.size() << "</td><td>" << curve.back().second;
    for (const std::optional<double>& value : {low, high}) {
      out << "</td><td>";
      value ? out << *value : out << '-';
    }
    out << "</td></tr>\n";
  }
  out << "</table>\n";
  for (const auto& entry : curves_) out << "<h2>" << escaped(entry.first) << "</h2>\n" << svg({entry.first});
  out << "</body></html>\n";
  write_file(path, out.str());
}

}  // namespace mx::training
