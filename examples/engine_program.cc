// Two independent steps, then one that needs both.
#include <mx/engine.h>

#include <cstdio>

#include "examples/support/command_line.h"

int main(int argc, char** argv) {
  mx::examples::CommandLine line("Two independent steps, then one that needs both");
  if (const auto status = line.parse(argc, argv)) return *status;
  mx::Engine& engine = mx::Engine::get();
  double a = 0, b = 0, sum = 0;
  mx::Var va = engine.new_var(), vb = engine.new_var(), vs = engine.new_var();

  engine.push([&] { a = 20; }, {.writes = {va}, .name = "make a"});  // returns at once
  engine.push([&] { b = 22; }, {.writes = {vb}, .name = "make b"});  // may run at the same time as the first
  engine.push([&] { sum = a + b; }, {.reads = {va, vb}, .writes = {vs}, .name = "add"});

  engine.wait(vs);  // the only line that waits; it throws if one of the operations has failed
  std::printf("sum = %g\n", sum);
  for (mx::Var v : {va, vb, vs}) engine.delete_var(v);
}
