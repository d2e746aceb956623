// Pictures of curves.
#include "nn/training/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/io/io_error.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::training {
namespace {

using test::contains;
using test::error_of;

/// Returns the points of all lines of a picture.
std::vector<std::vector<std::pair<double, double>>> lines_of(const std::string& svg) {
  std::vector<std::vector<std::pair<double, double>>> lines;
  const std::string begin = "points=\"";
  for (size_t at = svg.find(begin); at != std::string::npos; at = svg.find(begin, at + 1)) {
    std::istringstream numbers(
        svg.substr(at + begin.size(), svg.find('"', at + begin.size()) - at - begin.size()));
    auto& line = lines.emplace_back();
    double x = 0, y = 0;
    for (char comma = 0; numbers >> x >> comma >> y;) line.emplace_back(x, y);
  }
  return lines;
}

TEST(History, DrawsEachCurveInOneScale) {
  History history;
  for (int64_t step = 0; step <= 10; ++step) {
    history.add("loss", step, 10 - static_cast<double>(step));
    history.add("accuracy", 2 * step, static_cast<double>(step) / 2);
  }
  EXPECT_EQ((std::vector<std::string>{"loss", "accuracy"}), history.names());
  const auto lines = lines_of(history.svg());
  ASSERT_EQ(2u, lines.size());
  ASSERT_EQ(11u, lines[0].size());
  for (size_t i = 1; i < 11; ++i) {
    EXPECT_LT(lines[0][i - 1].second, lines[0][i].second);  // a smaller loss is lower, and y grows downwards
    EXPECT_GT(lines[1][i - 1].second, lines[1][i].second);
  }
  EXPECT_NEAR(lines[0][10].first, lines[1][5].first, 0.1);    // step 10
  EXPECT_NEAR(lines[0][5].second, lines[1][10].second, 0.1);  // value 5
  EXPECT_EQ(1u, lines_of(history.svg({"loss"})).size());
}

TEST(History, ExtremesAreThoseOfFiniteValues) {
  const test::TempFolder folder;
  History history;
  int64_t step = 0;
  for (const double value : {std::nan(""), 3.0, -2.0, std::numeric_limits<double>::infinity(), 7.0})
    history.add("loss", step++, value);
  history.add("none", 0, std::nan(""));
  history.write_html(folder / "run.html", "run");
  std::ifstream file(folder / "run.html");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(contains(text, "<td>7</td><td>-2</td><td>7</td>")) << text.substr(0, 800);
  EXPECT_TRUE(contains(text, "<td>nan</td><td>-</td><td>-</td>")) << text.substr(0, 800);
}

TEST(History, DrawsTheWholeRangeOfNumbers) {
  constexpr double kMost = std::numeric_limits<double>::max(),
                   kLeast = std::numeric_limits<double>::denorm_min();
  for (const std::pair<double, double>& ends : {std::pair{-1e308, 1e308},
                                                {-kMost, kMost},
                                                {kLeast, kMost},
                                                {kMost, kMost},
                                                {1e300, 1e300},
                                                {-kLeast, kLeast}}) {
    History history;
    history.add("loss", 0, ends.first);
    history.add("loss", 1, ends.second);
    const std::string svg = history.svg();
    EXPECT_FALSE(contains(svg, "nan") || contains(svg, "inf")) << ends.first << ' ' << ends.second << svg;
    const auto lines = lines_of(svg);
    ASSERT_EQ(1u, lines.size());
    if (ends.first < ends.second) {
      EXPECT_GT(lines[0][0].second, lines[0][1].second + 200);
    }
  }
}

TEST(History, UsesALogarithmicScaleForLargeRatios) {
  History history;
  for (int64_t step = 0; step < 4; ++step)
    history.add("loss", step, std::pow(10.0, -2 * static_cast<double>(step)));
  const auto line = lines_of(history.svg()).at(0);
  EXPECT_NEAR(line[1].second - line[0].second, line[3].second - line[2].second, 0.1);
}

TEST(History, LeavesGapsForWhatIsNotFinite) {
  History history;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;
  for (const double value : {1.0, 2.0, nan, 3.0, 2.5, -std::numeric_limits<double>::infinity(), 1.0})
    history.add("loss", step++, value);
  const auto lines = lines_of(history.svg());
  ASSERT_EQ(3u, lines.size());
  EXPECT_EQ(2u, lines[1].size());
  EXPECT_TRUE(lines_of(History().svg()).empty());
  History constant;
  constant.add("one", 5, 3);
  EXPECT_EQ(1u, lines_of(constant.svg()).size());
}

TEST(History, WritesAPage) {
  const test::TempFolder folder;
  History history;
  history.add("loss <&>", 0, 1);
  history.add("loss <&>", 1, 0.5);
  history.write_html(folder / "run.html", "a \"run\"");
  history.write_svg(folder / "loss.svg");
  const std::string page = test::slurp(folder / "run.html");
  EXPECT_TRUE(contains(page, "<title>a &quot;run&quot;</title>")) << page;
  EXPECT_TRUE(contains(page, "<td>loss &lt;&amp;&gt;</td><td>2</td><td>0.5</td><td>0.5</td><td>1</td>"))
      << page;
  EXPECT_EQ(1u, lines_of(page).size());
  EXPECT_EQ(history.svg(), test::slurp(folder / "loss.svg"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { history.svg({"none"}); }), "loss <&>, got 'none'"));
  error_of<FileError>([&] { history.write_svg(folder / "none/loss.svg"); });
}

}  // namespace
}  // namespace mx::training
