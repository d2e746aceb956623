// History: numbers over the steps of a run, and a page of their curves.
//
//   training::History history;
//   history.add("loss", step, loss);
//   history.add("accuracy", step, accuracy);
//   history.write_html("run.html", "first run");   // one picture for each name
//   history.write_svg("loss.svg", {"loss", "validation loss"});
//
// Files are replaced as a whole and need no other files. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mx::training {

class History {
 public:
  using Curve = std::vector<std::pair<int64_t, double>>;  ///< steps and values

  /// Appends a value. NaN and infinity are kept, and leave a gap in the curve.
  void add(const std::string& name, int64_t step, double value);
  /// Returns the names, in the order in which they first occurred.
  std::vector<std::string> names() const;
  /// Throws InvalidArgument, listing the names, if there is no such curve.
  const Curve& curve(const std::string& name) const;

  /// Returns a picture of some curves, SVG; all if `names` is empty. The vertical axis is logarithmic if all
  /// values are above 0 and differ by a factor of 100 or more.
  std::string svg(const std::vector<std::string>& names = {}) const;
  /// Throw FileError if the file cannot be written.
  void write_svg(const std::string& path, const std::vector<std::string>& names = {}) const;
  void write_html(const std::string& path, const std::string& title) const;

 private:
  std::vector<std::pair<std::string, Curve>> curves_;
};

}  // namespace mx::training
