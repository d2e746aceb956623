// Files of options, for --config.
//
// A line is NAME=VALUE, or NAME alone for a flag; NAME is the long name of an option without its dashes, or
// the letter of a short one. Everything after the first "=" is the value, without the blanks around it and
// without a pair of double quotes around it. A "#" or ";" at the start of a line begins a comment. An option
// that may be repeated has one line each time.
//
// Thread-safety: any thread.
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace mx::launch {

struct ConfigLine {
  int number = 0;    ///< of the line in the file, from 1
  std::string text;  ///< the line without blanks around it, for messages
  std::string name;
  std::string value;
  bool has_value = false;
};

/// Returns the lines that set an option. Throws InvalidArgument with the number and the text of a line that
/// has no name, is the header of a section, or is longer than 64 KiB.
std::vector<ConfigLine> read_config(std::istream& input);

/// "line 3, 'np=x': ", the place that messages about a line begin with.
std::string place_of(const ConfigLine& line);

}  // namespace mx::launch
