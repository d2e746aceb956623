// mx-info: prints what this build has and what it finds on this machine. See docs/mxrun.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "mxrun/exit_codes.h"
#include "mxrun/info/facts.h"

int main(int argc, char** argv) {
  bool json = false;
  CLI::App app("Prints the build of mx, the machine, its devices, and the libraries that mx finds.",
               "mx-info");
  app.add_flag("--json", json, "print one JSON object of objects of strings");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "mx-info: %s; see mx-info --help\n", error.what());
    return mx::launch::kExitUsage;
  }
  try {
    const auto sections = mx::info::collect();
    const std::string text = json ? mx::info::to_json(sections) : mx::info::to_text(sections);
    return std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mx-info: %s\n", error.what());
    return 1;
  }
}
