#include "examples/digits/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>

#include "ndarray/io/atomic_file.h"

namespace mx::examples {
namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 70, kTop = 30, kRight = 20, kBottom = 50;

// Maps values to coordinates of the picture.
class Scale {
 public:
  explicit Scale(const std::vector<double>& losses) : count_(losses.size()) {
    low_ = *std::min_element(losses.begin(), losses.end());
    high_ = *std::max_element(losses.begin(), losses.end());
    logarithmic_ = low_ > 0 && high_ > low_;
    if (high_ <= low_) high_ = low_ + 1;
  }
  double x(size_t i) const {
    const double share = count_ < 2 ? 0 : static_cast<double>(i) / static_cast<double>(count_ - 1);
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double y(double loss) const {
    const double share =
        logarithmic_ ? std::log(loss / low_) / std::log(high_ / low_) : (loss - low_) / (high_ - low_);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
  // Returns the value at a fraction of the height.
  double at(double share) const {
    return logarithmic_ ? low_ * std::pow(high_ / low_, share) : low_ + share * (high_ - low_);
  }

 private:
  size_t count_;
  double low_, high_;
  bool logarithmic_;
};

}  // namespace

void write_loss_curve(const std::string& path, const std::vector<double>& losses) {
  std::ostringstream out;
  out.precision(4);
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kWidth << "\" height=\"" << kHeight
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
         "fill=\"white\"/>\n"
      << "<text x=\"" << kWidth / 2 << "\" y=\"18\" text-anchor=\"middle\">training loss</text>\n";
  if (!losses.empty()) {
    const Scale scale(losses);
    for (int i = 0; i <= 4; ++i) {
      const double value = scale.at(i / 4.0), y = scale.y(value);
      out << "<line x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << y << "\" y2=\"" << y
          << "\" stroke=\"#dddddd\"/>\n<text x=\"" << kLeft - 6 << "\" y=\"" << y + 4
          << "\" text-anchor=\"end\">" << value << "</text>\n";
    }
    out << "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"1.5\" points=\"";
    for (size_t i = 0; i < losses.size(); ++i) out << scale.x(i) << ',' << scale.y(losses[i]) << ' ';
    out << "\"/>\n";
  }
  out << "<text x=\"" << kWidth / 2 << "\" y=\"" << kHeight - 12 << "\" text-anchor=\"middle\">"
      << losses.size() << " points, from the first step to the last</text>\n</svg>\n";
  const std::string text = out.str();
  io::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace mx::examples
