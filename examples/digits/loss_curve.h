// The loss curve as an SVG picture.
#pragma once

#include <string>
#include <vector>

namespace mx::examples {

/// Draws one point per value, from left to right. The vertical axis is logarithmic if all values are above 0.
/// Throws FileError if the file cannot be written.
void write_loss_curve(const std::string& path, const std::vector<double>& losses);

}  // namespace mx::examples
